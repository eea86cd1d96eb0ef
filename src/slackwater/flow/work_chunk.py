"""One leased chunk in a worker's memory: its lines, what became of each, and the bytes its commit will write."""

import asyncio
from typing import Final

import msgspec

from slackwater.db.queue.leases import Lease
from slackwater.domain.line_errors import BATCH_CANCELLED, BATCH_EXPIRED, LineError
from slackwater.domain.outcomes import NO_ATTEMPTS, Attempts, Done
from slackwater.domain.request_lines import request_lines
from slackwater.domain.results import Dialect, OpenAIDialect, line_id_prefix
from slackwater.domain.rewriting import names_operator_keys, rewrite_body
from slackwater.domain.usage import NO_USAGE, Usage

_STOPPED: Final = {"cancelled": BATCH_CANCELLED, "expired": BATCH_EXPIRED}


class ChunkRun:
    """The run of one lease. Every line ends exactly once: :meth:`succeed`, :meth:`fail` or :meth:`close_unrun`."""

    __slots__ = (
        "_as_sent",
        "_attempts",
        "_bodies",
        "_custom_ids",
        "_dialect",
        "_errors",
        "_next",
        "_operator_prefix",
        "_outputs",
        "_rewritten_model",
        "_strip",
        "_tokens",
        "active",
        "cancelled",
        "errored",
        "expired",
        "finished",
        "lease",
        "prompt_bytes",
        "started_at",
        "stopped",
        "succeeded",
    )

    def __init__(self, lease: Lease, source: bytes, *, operator_prefix: bytes, started_at: float) -> None:
        self.lease = lease
        lines = request_lines(source, at_start=lease.byte_start == 0)
        if len(lines) != lease.n_requests:
            raise ValueError(f"chunk {lease.seq} holds {len(lines)} lines, not the {lease.n_requests} planned")
        self._custom_ids = [bytes(line.custom_id) for line in lines]
        self._bodies: list[bytes | None] = [bytes(line.body) for line in lines]
        self.prompt_bytes = sum(map(len, (line.body for line in lines)))
        aliased = lease.asked_model is not None and lease.asked_model != lease.model
        self._rewritten_model = msgspec.json.encode(lease.model) if aliased or lease.asked_model is None else None
        self._operator_prefix = operator_prefix
        self._strip = names_operator_keys(source)
        # Known once a chunk, so that the common case is no call a line.
        self._as_sent = self._rewritten_model is None and not operator_prefix and not self._strip
        names = (lease.model, lease.asked_model) if aliased and lease.asked_model is not None else None
        self._dialect: Dialect = OpenAIDialect(id_prefix=line_id_prefix(lease.batch_id), model_alias=names)
        self._outputs: list[bytes] = []
        self._errors: list[bytes] = []
        self._next = 0
        self._attempts: dict[int, Attempts] = {}
        self.active: dict[asyncio.Task[object], int] = {}
        """The tasks that have a line of this chunk at the engine now, so that a stop can end them."""
        self._tokens = [0, 0, 0, 0]
        self.succeeded = self.errored = self.cancelled = self.expired = self.finished = 0
        self.started_at = started_at
        self.stopped = False
        """Set when no further line may run: the batch stopped, or the lease is gone."""

    @property
    def usage(self) -> Usage:
        """The tokens of the succeeded lines so far."""
        return Usage(*self._tokens)

    def take(self) -> int | None:
        """Return the place of the next line that was never tried; None when there is none."""
        if self.stopped or self._next == len(self._bodies):
            return None
        place = self._next
        self._next += 1
        return place

    @property
    def untried(self) -> int:
        """How many lines were never handed out."""
        return len(self._bodies) - self._next

    @property
    def complete(self) -> bool:
        """Whether every line has ended."""
        return self.finished == len(self._bodies)

    def body(self, place: int) -> bytes:
        """Return the body that the engine gets for a line."""
        body = self._bodies[place]
        assert body is not None, "the line has ended"
        if self._as_sent:
            return body
        return rewrite_body(body, model=self._rewritten_model, prefix=self._operator_prefix, strip=self._strip)

    def attempts(self, place: int) -> Attempts:
        """Return what the line has behind it."""
        return self._attempts.get(place, NO_ATTEMPTS)

    def tried(self, place: int, attempts: Attempts) -> None:
        """Remember one more failed attempt."""
        self._attempts[place] = attempts

    def succeed(self, place: int, done: Done) -> None:
        """End a line with its result."""
        number = self.lease.first_number + place
        self._outputs.append(self._dialect.success(number, self._custom_ids[place], done))
        self._end(place)
        self.succeeded += 1
        usage = done.usage
        if usage is not NO_USAGE:
            tokens = self._tokens
            tokens[0] += usage.input_tokens
            tokens[1] += usage.cached_tokens
            tokens[2] += usage.output_tokens
            tokens[3] += usage.reasoning_tokens

    def fail(self, place: int, error: LineError) -> None:
        """End a line with its error."""
        self._write_error(place, error)
        self.errored += 1

    def close_unrun(self, reason: str) -> None:
        """End every line that has no result because its batch was ``cancelled`` or ``expired``."""
        error = _STOPPED[reason]
        unrun = [place for place, body in enumerate(self._bodies) if body is not None]
        for place in unrun:
            self._write_error(place, error)
        if reason == "expired":
            self.expired += len(unrun)
        else:
            self.cancelled += len(unrun)

    def output(self) -> bytes:
        """Return the output lines so far, joined."""
        return b"".join(self._outputs)

    def errors(self) -> bytes:
        """Return the error lines so far, joined."""
        return b"".join(self._errors)

    def _write_error(self, place: int, error: LineError) -> None:
        number = self.lease.first_number + place
        self._errors.append(self._dialect.failure(number, self._custom_ids[place], error))
        self._end(place)

    def _end(self, place: int) -> None:
        """A line's body is no longer needed: what is in flight is all that a chunk keeps."""
        self._bodies[place] = None
        self.finished += 1
