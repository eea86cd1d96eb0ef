"""The soak's engine: the simulated one as an HTTP server that has moods, and writes down every request it takes.

Run as ``python -m tests.soak.engine --port P --record FILE``; a word a line on its standard input changes its mood:
``well``, ``hang``, ``full``, ``fail``, ``garbage``. Each record is 20 bytes: the monotonic time, the CRC-32 of the
body, and the seconds that its inference takes.
"""

import asyncio
import os
import struct
import sys
import zlib
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import uvloop

from slackwater.inference.protocol import Reply
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_faults import FAULTS, Fault, Silence
from slackwater.inference.simulated_server import serve
from slackwater.inference.simulated_writer import Answer

_RECORD: Final = struct.Struct("<dId")
_MOODS: Final[dict[str, Fault]] = {
    "hang": Silence(),
    "full": FAULTS["503_retry_after_1"],
    "fail": FAULTS["empty_500"],
    "garbage": FAULTS["garbage"],
}
_ONCE: Final = frozenset({"fail", "garbage"})
"""Moods that each body meets once: their attempts count, and five of them are a line's end."""
_RESTART_SECONDS: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One request that an engine took in."""

    at_seconds: float
    """Monotonic: the clock of all processes of a machine."""
    digest: int
    inference_seconds: float


class MoodyEngine(SimulatedEngine):
    """A simulated engine that is not always well."""

    def __init__(self, settings: SimulatedSettings, record: int) -> None:
        super().__init__(settings)
        self._record = record
        self._mood = "well"
        self._met: set[int] = set()
        """Bodies that have met the mood of now."""

    def change(self, mood: str) -> None:
        """Be in another mood from now on."""
        self._mood = mood
        self._met.clear()

    def take(self, path: str, body: bytes) -> Reply | Answer | Fault:
        """See the engine; in a mood it does to a body what the mood is."""
        digest = zlib.crc32(body)
        fault = _MOODS.get(self._mood)
        if fault is not None and not (self._mood in _ONCE and digest in self._met):
            self._met.add(digest)
            return fault
        work = super().take(path, body)
        if isinstance(work, Answer) and work.prompt_tokens:
            os.write(self._record, _RECORD.pack(monotonic(), digest, self.settings.latency.seconds(work)))
        return work


def read_record(path: Path) -> Iterator[Taken]:
    """Yield what an engine took in, in order; a record that its death cut short is none."""
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) - len(data) % _RECORD.size
    for at, digest, seconds in _RECORD.iter_unpack(data[:whole]):
        yield Taken(at_seconds=at, digest=digest, inference_seconds=seconds)


async def _obey(engine: MoodyEngine) -> None:
    """Change moods as told until standard input ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while word := await reader.readline():
        engine.change(word.decode().strip())


async def _run(settings: SimulatedSettings, port: int, record: Path) -> None:
    descriptor = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    engine = MoodyEngine(settings, descriptor)
    server = await serve(engine, port=port)
    try:
        await _obey(engine)
    finally:
        await server.close()
        os.close(descriptor)


def main() -> None:
    """Serve until standard input ends."""
    parser = ArgumentParser(prog="python -m tests.soak.engine")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--seconds-per-token", type=float, required=True)
    given = parser.parse_args()
    settings = SimulatedSettings(
        max_num_seqs=given.slots,
        latency=Latency(
            decode_seconds_per_token=given.seconds_per_token,
            # Vectors have no tokens of their own: what they take is reading the prompt.
            prefill_seconds_per_token=given.seconds_per_token / 4,
        ),
        restart_seconds=_RESTART_SECONDS,
        crash_seconds=0.2,
    )
    uvloop.run(_run(settings, given.port, given.record))


if __name__ == "__main__":
    main()
