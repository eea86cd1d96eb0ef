"""How far a batch is, how fast it goes and when it will be done: arithmetic over the looks at it.

Counts move by whole chunks, not evenly, so a rate is taken over the last minute, and over everything seen so far
where nothing moved within that minute. The first look at a running batch is the start: a watch that begins half way
measures from there.
"""

from dataclasses import dataclass, replace
from typing import Final

from slackwater.cli.people_text import duration
from slackwater.client.replies import Batch

_WINDOW_SECONDS: Final = 60.0
_NOT_STARTED: Final = "validating"
_RUNNING: Final = "in_progress"


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What was seen at one moment."""

    at_seconds: float
    """On any clock that only goes forward."""
    done: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A batch as a progress bar shows it; None where it cannot be told."""

    status: str
    total: int
    done: int
    failed: int
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    """Output tokens."""
    eta_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The looks so far: the first one, then those of the last minute."""

    looks: tuple[Look, ...] = ()

    def seen(self, batch: Batch, at_seconds: float) -> "Pace":
        """Return the pace with one more look; a batch that does not run yet has no pace."""
        if batch.status == _NOT_STARTED:
            return self
        look = Look(
            at_seconds=at_seconds,
            done=batch.counts.done,
            output_tokens=batch.usage.output_tokens if batch.usage else 0,
        )
        recent = tuple(old for old in self.looks[1:] if at_seconds - old.at_seconds <= _WINDOW_SECONDS)
        return replace(self, looks=(*self.looks[:1], *recent, look))

    def progress(self, batch: Batch) -> Progress:
        """Return the batch's progress as of the last look."""
        counts = batch.counts
        now = Progress(status=batch.status, total=counts.total, done=counts.done, failed=counts.failed)
        since = self._start_of_measure()
        if since is None:
            return now
        last = self.looks[-1]
        seconds = last.at_seconds - since.at_seconds
        rate = (last.done - since.done) / seconds
        return replace(
            now,
            requests_per_second=rate,
            tokens_per_second=(last.output_tokens - since.output_tokens) / seconds if batch.usage else None,
            eta_seconds=(counts.total - counts.done) / rate if rate > 0 and batch.status == _RUNNING else None,
        )

    def _start_of_measure(self) -> Look | None:
        """Find the look to measure from; None where no time has passed yet."""
        if not self.looks:
            return None
        first, last = self.looks[0], self.looks[-1]
        recent = next((look for look in self.looks if last.at_seconds - look.at_seconds <= _WINDOW_SECONDS), last)
        start = recent if recent.done < last.done else first
        return start if start.at_seconds < last.at_seconds else None


def rates(progress: Progress) -> str:
    """Write the speed and the time left, as far as they are known."""
    parts = []
    if progress.requests_per_second is not None:
        parts.append(f"{progress.requests_per_second:,.1f} requests/s")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.eta_seconds is not None:
        parts.append(f"about {duration(progress.eta_seconds)} left")
    return ", ".join(parts)


def counts(progress: Progress) -> str:
    """Write how much is done."""
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.done:,}/{progress.total:,} done{failed}"


def line(progress: Progress) -> str:
    """Write the progress on one line, for a log."""
    speed = rates(progress)
    return f"{progress.status}: {counts(progress)}" + (f", {speed}" if speed else "")
