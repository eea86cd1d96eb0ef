"""One leased chunk in a worker's memory: its lines, what became of each, and the bytes its commit will write."""

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """Some finished lines of a chunk, as a checkpoint keeps them."""

    places: tuple[int, ...]
    output: bytes
    errors: bytes
    succeeded: int
    errored: int
    usage: Usage


class ChunkRun:
    """The run of one lease. Every line ends exactly once: :meth:`succeed`, :meth:`fail` or :meth:`close_unrun`."""

    __slots__ = (
        "_apart",
        "_as_sent",
        "_attempts",
        "_bodies",
        "_custom_ids",
        "_dialect",
        "_errors",
        "_kept",
        "_next",
        "_operator_prefix",
        "_outputs",
        "_rewritten_model",
        "_strip",
        "_tokens",
        "_untried",
        "at_engine",
        "cancelled",
        "errored",
        "expired",
        "finished",
        "lease",
        "on_trial",
        "prompt_bytes",
        "started_at",
        "stopped",
        "succeeded",
        "suspects",
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
        # Apart are suspects from before any line was handed out: whoever tries them sends them, and again after that.
        self._next, self._untried, self._apart = 0, len(self._bodies), set[int]()
        self._kept = _Kept()
        self._attempts: dict[int, Attempts] = {}
        self.suspects: set[int] = set()
        """Lines that were at the engine when it died: they run only apart from all others."""
        self.on_trial: set[int] = set()
        """Former suspects that run now with nothing else running."""
        self.at_engine = 0
        """How many lines are at the engine now."""
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
        while not self.stopped and self._next < len(self._bodies):
            place = self._next
            self._next += 1
            if self._bodies[place] is not None and place not in self._apart:
                self._untried -= 1
                return place
        return None

    @property
    def untried(self) -> int:
        """How many lines were never handed out."""
        return self._untried

    def unended(self) -> list[int]:
        """Return the places of the lines without a result."""
        return [place for place, body in enumerate(self._bodies) if body is not None]

    def suspect(self, places: Iterable[int]) -> None:
        """Take lines that were never handed out as suspects."""
        new = {place for place in places if self._bodies[place] is not None} - self.suspects
        self.suspects |= new
        self._apart |= new
        self._untried -= len(new)

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

    @property
    def all_attempts(self) -> dict[int, Attempts]:
        """What every line without a result has behind it, where it has anything."""
        return {place: attempts for place, attempts in self._attempts.items() if self._bodies[place] is not None}

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
        unrun = self.unended()
        for place in unrun:
            self._write_error(place, error)
        if reason == "expired":
            self.expired += len(unrun)
        else:
            self.cancelled += len(unrun)

    def cut(self) -> Finished | None:
        """Return what ended since the last cut, to be kept; None where nothing did."""
        kept = self._kept
        if not kept.places:
            return None
        finished = Finished(
            places=tuple(kept.places),
            output=b"".join(self._outputs[kept.outputs :]),
            errors=b"".join(self._errors[kept.errors :]),
            succeeded=self.succeeded - kept.succeeded,
            errored=self.errored - kept.errored,
            usage=Usage(*(now - then for now, then in zip(self._tokens, kept.tokens, strict=True))),
        )
        self._begin_cut()
        return finished

    def adopt(self, finished: Finished) -> None:
        """Take over lines that an earlier lease finished. Before any line is handed out."""
        self._outputs.append(finished.output)
        self._errors.append(finished.errors)
        self.succeeded += finished.succeeded
        self.errored += finished.errored
        for number, tokens in enumerate(msgspec.structs.astuple(finished.usage)):
            self._tokens[number] += tokens
        for place in finished.places:
            self._end(place)
        self._untried -= len(finished.places)
        self._begin_cut()

    def _begin_cut(self) -> None:
        """What ended so far is kept."""
        self._kept = _Kept(
            outputs=len(self._outputs),
            errors=len(self._errors),
            succeeded=self.succeeded,
            errored=self.errored,
            tokens=tuple(self._tokens),
        )

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
        self._kept.places.append(place)
        self.finished += 1


class _Kept:
    """How far a chunk's results are kept, and which lines ended since."""

    __slots__ = ("errored", "errors", "outputs", "places", "succeeded", "tokens")

    def __init__(
        self,
        *,
        outputs: int = 0,
        errors: int = 0,
        succeeded: int = 0,
        errored: int = 0,
        tokens: tuple[int, ...] = (0, 0, 0, 0),
    ) -> None:
        self.outputs = outputs
        self.errors = errors
        self.succeeded = succeeded
        self.errored = errored
        self.tokens = tokens
        self.places: list[int] = []
