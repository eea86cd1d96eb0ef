"""What a worker's commits add up to, for the running means that planning cuts chunks by."""

from dataclasses import dataclass

from slackwater.flow.chunk_run import ChunkRun


@dataclass(kw_only=True, slots=True)
class Tally:
    """What committed chunks of one model add up to."""

    prompt_bytes: int = 0
    """Bytes of their request bodies."""
    input_tokens: int = 0


class Tallies:
    """The tallies of every model since somebody last took them."""

    def __init__(self) -> None:
        self._by_model: dict[str, Tally] = {}

    def add(self, run: ChunkRun) -> None:
        """Count a committed run."""
        tally = self._by_model.setdefault(run.lease.model, Tally())
        tally.prompt_bytes += run.prompt_bytes
        tally.input_tokens += run.usage.input_tokens

    def take(self) -> dict[str, Tally]:
        """Return all, by model, and begin anew."""
        taken, self._by_model = self._by_model, {}
        return taken
