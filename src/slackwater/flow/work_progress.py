"""Whether an engine gets on: health pages say nothing of that, answers and tokens do."""

from collections.abc import Callable

from slackwater.domain.errors import EngineError
from slackwater.flow.work_feed import Feeder
from slackwater.inference.protocol import Engine


class Progress:
    """Since when an engine has got on with nothing. ``clock`` is monotonic, in seconds."""

    def __init__(self, engine: Engine, feeder: Feeder, *, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._feeder = feeder
        self._clock = clock
        self._answers = self._finished = 0
        self._tokens: int | None = None
        self._sign_at = self._fruit_at = clock()

    @property
    def counts_tokens(self) -> bool:
        """Whether the engine counts its tokens: else one long answer looks like none."""
        return self._tokens is not None

    @property
    def silent_seconds(self) -> float:
        """How long requests have been in while there was no answer of any kind and no token."""
        return self._clock() - self._sign_at

    @property
    def fruitless_seconds(self) -> float:
        """How long lines have been tried while none ended and no token was counted."""
        return self._clock() - self._fruit_at

    def begin(self) -> None:
        """Count from now: the engine is there again."""
        self._sign_at = self._fruit_at = self._clock()

    async def look(self) -> None:
        """Note what has happened since the last look; the engine's tokens are asked for where nothing else has."""
        feeder = self._feeder
        if feeder.finished_lines != self._finished or not feeder.busy:
            self._finished = feeder.finished_lines
            self._fruit_at = self._clock()
        if feeder.answers != self._answers or not feeder.in_flight:
            self._answers = feeder.answers
            self._sign_at = self._clock()
            return
        try:
            tokens = (await self._engine.load()).tokens_total
        except EngineError:
            return
        if tokens is not None and tokens != self._tokens:
            self.begin()
        self._tokens = tokens
