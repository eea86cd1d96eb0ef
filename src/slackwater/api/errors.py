"""From errors to HTTP: the one status table, and the handlers that leave no framework's default body standing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slackwater.api.dialect import AnthropicError, Dialect, OpenAIError, anthropic_body, dialect_of, openai_body
from slackwater.api.replies import id_headers
from slackwater.domain.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    RequestRefused,
    SlackwaterError,
    StateConflict,
    StoreFull,
    TooLarge,
    Unauthorized,
    Unavailable,
)

_LOG: Final = structlog.get_logger(__name__)
_RETRY_AFTER_SECONDS: Final = 2
_FULL_RETRY_AFTER_SECONDS: Final = 30
_SHOWN_PATH_CHARACTERS: Final = 200
_NO_RETRY: Final = {"x-should-retry": "false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """How one kind of error is answered."""

    status: int
    openai_type: str
    anthropic_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


_TABLE: Final[Mapping[type[Exception], Answer]] = {
    BadRequest: Answer(status=400, openai_type="invalid_request_error", anthropic_type="invalid_request_error"),
    Unauthorized: Answer(
        status=401,
        openai_type="invalid_request_error",
        anthropic_type="authentication_error",
        headers={"www-authenticate": "Bearer"},
    ),
    Forbidden: Answer(status=403, openai_type="invalid_request_error", anthropic_type="permission_error"),
    NotFound: Answer(status=404, openai_type="invalid_request_error", anthropic_type="not_found_error"),
    # SDKs repeat a 409 unless they are told that it is final.
    StateConflict: Answer(
        status=409, openai_type="invalid_request_error", anthropic_type="conflict_error", headers=_NO_RETRY
    ),
    TooLarge: Answer(status=413, openai_type="invalid_request_error", anthropic_type="request_too_large"),
    # At most 60: newer OpenAI SDKs give up on large values, Anthropic ones sleep through any.
    Unavailable: Answer(
        status=503,
        openai_type="server_error",
        anthropic_type="api_error",
        headers={"retry-after": str(_RETRY_AFTER_SECONDS)},
    ),
    StoreFull: Answer(
        status=507,
        openai_type="server_error",
        anthropic_type="api_error",
        headers={"retry-after": str(_FULL_RETRY_AFTER_SECONDS)},
    ),
}
_FAILURE: Final = Answer(status=500, openai_type="server_error", anthropic_type="api_error")
_METHOD_NOT_ALLOWED: Final = 405
_FRAMEWORK_TYPES: Final[Mapping[int, str]] = {404: "not_found_error", 413: "request_too_large"}


def answer_for(error: BaseException) -> Answer:
    """Look an error up in the table, by its nearest ancestor; what is not in it is our failure, a 500."""
    return next((_TABLE[kind] for kind in type(error).__mro__ if kind in _TABLE), _FAILURE)


def error_response(
    request: Request, answer: Answer, message: str, *, refused: RequestRefused | None = None
) -> Response:
    """Answer with an error in the shape of the caller's family."""
    if dialect_of(request.headers) is Dialect.ANTHROPIC:
        inner = AnthropicError(type=answer.anthropic_type, message=message)
        body = anthropic_body(inner, request.state.request_id)
    else:
        param, code = (refused.param, refused.code) if refused else (None, None)
        body = openai_body(OpenAIError(message=message, type=answer.openai_type, param=param, code=code))
    return Response(body, status_code=answer.status, headers=answer.headers, media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error with a body of ours: our own errors, the framework's, and whatever nobody expected."""
    app.add_exception_handler(SlackwaterError, _on_error)
    app.add_exception_handler(HTTPException, _on_framework_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_failure)


async def _on_error(request: Request, error: Exception) -> Response:
    """Answer an error of our tree. One that is not in the table is our failure: it goes on to be logged as such."""
    answer = answer_for(error)
    if answer is _FAILURE:
        raise error
    if isinstance(error, Unavailable):
        # The caller learns which part is down; only the operator may see what the driver said about it.
        driver = None if error.__cause__ is None else repr(error.__cause__)
        _LOG.warning("request not served", request_id=request.state.request_id, cause=str(error), driver=driver)
    return error_response(request, answer, str(error), refused=error if isinstance(error, RequestRefused) else None)


async def _on_framework_error(request: Request, error: Exception) -> Response:
    """Answer what the router or the framework refuses: unknown paths, wrong methods."""
    if not isinstance(error, HTTPException):
        raise error
    asked = f"{request.method} {request.state.asked_path[:_SHOWN_PATH_CHARACTERS]}"
    message = {404: f"Invalid URL ({asked})", 405: f"Method not allowed ({asked})"}.get(error.status_code, error.detail)
    answer = Answer(
        status=error.status_code,
        openai_type="invalid_request_error",
        anthropic_type=_FRAMEWORK_TYPES.get(error.status_code, "invalid_request_error"),
        headers={"allow": _allowed_methods(request)}
        if error.status_code == _METHOD_NOT_ALLOWED
        else error.headers or {},
    )
    return error_response(request, answer, message)


def _allowed_methods(request: Request) -> str:
    """List what this path may be asked for; the framework would name the first route of several."""
    path: str = request.scope["path"]
    routes: Sequence[APIRoute] = request.app.state.routes
    allowed = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return ", ".join(sorted(allowed))


async def _on_validation_error(request: Request, _error: Exception) -> Response:
    """Answer a parameter that the framework itself could not read; ours are parsed by ``bodies`` and ``queries``."""
    return error_response(request, _TABLE[BadRequest], "The request could not be read.")


async def _on_failure(request: Request, error: Exception) -> Response:
    """Answer an error nobody expected: no word about it to the caller but the id under which the log has it."""
    request_id = request.state.request_id
    # The trace is logged by the server, which does not know the id.
    _LOG.error("request failed", request_id=request_id, path=request.state.asked_path, error=type(error).__name__)
    message = f"The server had an error while processing your request; it is logged under the request id {request_id}."
    # This answer is made outside the gate, which puts the id on all others.
    answer = replace(_FAILURE, headers=id_headers(request_id))
    return error_response(request, answer, message)
