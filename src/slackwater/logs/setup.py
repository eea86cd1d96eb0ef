"""Wires structlog and the standard logging to one stream, once per process."""

import json
import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from slackwater.logs.redaction import Redactor
from slackwater.logs.traces import add_trace

_LOG: Final = structlog.get_logger(__name__)
_OWN_HANDLERS: Final = ("uvicorn", "uvicorn.access", "uvicorn.error", "gunicorn.error")
"""Loggers of libraries that like to bring handlers and a level of their own."""
_TALKATIVE: Final = (
    *("aiohttp", "asyncio", "boto3", "botocore", "httpcore2", "httpx2", "multipart"),
    *("psycopg", "s3transfer", "sqlalchemy", "urllib3", "uvicorn.access"),
)
"""Below WARNING these write requests, headers or parameters: bodies and signatures among them."""


def configure(
    level: str, *, stream: TextIO, terminal: bool, secrets: Sequence[str] = (), context: dict[str, str] | None = None
) -> None:
    """Send all logs from ``level`` up to ``stream``: JSON lines, or coloured text where ``terminal`` says so.

    ``secrets`` are values that must never appear (passwords, keys from the settings); ``context`` is bound for the
    whole process (``role``, ``worker``). Also takes over warnings and errors nobody caught. May be called again.
    Raises ValueError for an unknown level.
    """
    root = logging.getLogger()
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_gathering(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                add_trace,
                Redactor(secrets, escape=terminal),
                _in_order,
                _renderer(terminal=terminal),
            ],
        )
    )
    root.handlers[:] = [handler]
    for name in _OWN_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        # The standard library's configuration from a file switches off every logger that it does not name.
        logger.disabled = False
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_gathering(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    structlog.contextvars.bind_contextvars(**(context or {}))
    _catch_the_uncaught()


def bound(
    *,
    request_id: str | None = None,
    tenant_id: str | None = None,
    batch_id: str | None = None,
    chunk: int | None = None,
    worker: str | None = None,
) -> AbstractContextManager[None]:
    """Add these ids to every line logged inside the block, in tasks started there, too; None adds nothing."""
    ids = {"request_id": request_id, "tenant_id": tenant_id, "batch_id": batch_id, "chunk": chunk, "worker": worker}
    return structlog.contextvars.bound_contextvars(**{name: value for name, value in ids.items() if value is not None})


def _gathering() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _in_order(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Put first what a person looks for first."""
    return {**{name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}, **event}


def _renderer(*, terminal: bool) -> Processor:
    if terminal:
        return structlog.dev.ConsoleRenderer(sort_keys=False, exception_formatter=structlog.dev.plain_traceback)
    # ensure_ascii, which is json's default, also keeps lone surrogates and line separators of Unicode inside the line.
    return structlog.processors.JSONRenderer()


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines; what cannot be rendered is said without its content."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the standard library's name
        """Report a record that failed to render: the library's own report would print the arguments as they are."""
        error = sys.exception()
        line = {"event": "a log record could not be written", "level": "error", "logger": record.name}
        with suppress(OSError, ValueError):  # the stream is closed or gone: there is nowhere left to say it
            self.stream.write(f"{json.dumps(line | {'error': type(error).__name__})}\n")


def _catch_the_uncaught() -> None:
    """Route the three hooks of last resort here: the interpreter's own would print messages with secrets in them."""

    def died(kind: type[BaseException], error: BaseException, _trace: object) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        _LOG.critical("uncaught error", exc_info=error)

    def thread_died(args: threading.ExceptHookArgs) -> None:
        _LOG.critical("a thread died", exc_info=args.exc_value)

    def ignored(args: "sys.UnraisableHookArgs") -> None:
        _LOG.error("error that could not be raised", exc_info=args.exc_value)

    sys.excepthook = died
    threading.excepthook = thread_died
    sys.unraisablehook = ignored
