"""What the simulated engine says: words that are a pure function of the request body.

Every answer begins with eight hex digits, the CRC-32 of the body, so that a test or the auditor can tell from an answer
alone which request it belongs to. Equal bodies get equal answers, whatever else runs, on every machine.
"""

import base64
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist
from typing import Final

# fmt: off
_WORDS: Final = (
    "tide", "ebb", "flow", "slack", "neap", "spring", "moon", "shore", "reef", "shoal", "bar", "sound", "strait",
    "inlet", "cove", "bay", "harbour", "quay", "pier", "jetty", "wharf", "buoy", "beacon", "light", "bell", "chart",
    "lead", "line", "fathom", "knot", "log", "helm", "rudder", "keel", "hull", "mast", "spar", "boom", "sail", "jib",
    "sheet", "halyard", "cleat", "anchor", "chain", "rope", "hawser", "gull", "tern", "heron", "kelp", "sand",
    "shingle", "foam", "swell", "gale", "calm", "drift", "wake", "current", "eddy", "berth", "mole", "spit",
)
# fmt: on
_TAPE_WORDS: Final = 512
_LENGTHS: Final = 1024


Saying = tuple[bytes, int, bool]
"""One answer: its text, fit for a JSON string as it is; its tokens, which are words; whether a bound cut it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLength:
    """How long answers are when nothing cuts them: log-normal, drawn by the body's digest."""

    median_tokens: float = 24.0
    sigma: float = 0.7
    """Standard deviation of the logarithm; 0 gives every answer the median length."""

    def at(self, share: float) -> int:
        """Return the length that this share of all answers stays below, in tokens; ``share`` is between 0 and 1."""
        return max(1, round(self.median_tokens * math.exp(self.sigma * NormalDist().inv_cdf(share))))


class Speaker:
    """Turns digests into answers. Immutable; about half a microsecond an answer."""

    def __init__(self, length: OutputLength) -> None:
        words = [_WORDS[draw >> 58] for draw in _draws(1, _TAPE_WORDS)] * 2
        self._tape = " ".join(words).encode()
        self._starts = [0, *accumulate(len(word) + 1 for word in words)]
        self._lengths = [length.at((step + 0.5) / _LENGTHS) for step in range(_LENGTHS)]

    def say(self, digest: int, most_tokens: int, *, to_the_bound: bool = False) -> Saying:
        """Answer in the digest's natural length, at most ``most_tokens``; or in just as many (``ignore_eos``)."""
        tokens = self._lengths[digest >> 22]
        cut = to_the_bound or tokens > most_tokens
        if cut:
            tokens = most_tokens
        first = digest & (_TAPE_WORDS - 1)
        if tokens > _TAPE_WORDS:
            return self._long_text(digest, first, tokens - 1), tokens, cut
        if tokens == 1:
            return b"%08x" % digest, 1, cut
        starts = self._starts
        return b"%08x %b" % (digest, self._tape[starts[first] : starts[first + tokens - 1] - 1]), tokens, cut

    def _long_text(self, digest: int, first: int, words: int) -> bytes:
        turns, rest = divmod(words, _TAPE_WORDS)
        start = self._starts[first]
        turn = self._tape[start : self._starts[first + _TAPE_WORDS]]
        return (b"%08x %b%b" % (digest, turn * turns, self._tape[start : self._starts[first + rest]])).rstrip()


def digest_of(body: bytes) -> int:
    """Return the body's CRC-32: cheap, and equal everywhere."""
    return zlib.crc32(body)


def variant(digest: int, index: int) -> int:
    """Derive the digest of the ``index``-th of several answers to one body; the first is the body's own."""
    return (digest + index * 0x9E3779B1) & 0xFFFFFFFF


def vector(digest: int, width: int) -> list[float]:
    """Return an embedding: numbers between -1 and 1 that float32 holds exactly."""
    return [(draw >> 48) / 32768.0 - 1.0 for draw in _draws(digest, width)]


def packed(numbers: list[float]) -> bytes:
    """Encode an embedding as the API's base64 form: little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers))


def _draws(seed: int, count: int) -> Iterator[int]:
    """64-bit numbers of Knuth's MMIX generator, whose high bits are good: the same on every machine."""
    state = seed
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state
