"""Where a request belongs in the order of a plan: next to those that begin like it.

An engine keeps the attention state of prefixes it has seen. Requests that share one are cheapest when they run one
after another, so lines are sorted by hashes of what the engine reads first, nested at 256 B, 1 KB, 4 KB and 16 KB: the
first hash groups what shares a system prompt, the later ones what shares more. Measured on public traces such an order
reaches the most that any order can (design: scheduling, prefix order). Equal prefixes are sorted by size.

The hashes are CRC-32, each going on from the one before: a collision costs a little order and nothing else.
"""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from slackwater.domain.verdicts import HASHED_BYTES

LEVELS: Final = (256, 1_024, 4_096, HASHED_BYTES)
"""Bytes of prompt behind each hash."""
DEEPEST: Final = len(LEVELS) + 1
"""Levels of a whole key, the model being the first."""

_FIRST, _SECOND, _THIRD, _FOURTH = LEVELS

SortKey = tuple[int, int, int, int, int]
"""Number of the model, then the four hashes."""
NO_KEY: Final[SortKey] = (-1, 0, 0, 0, 0)
"""Shares nothing with any key."""


def sort_key(model: int, prefix: bytes) -> SortKey:
    """Hash a prompt's prefix at each level; a prompt that ends before a level has the hash of the level it reached."""
    first = crc32(prefix[:_FIRST])
    size = len(prefix)
    if size <= _FIRST:
        return model, first, first, first, first
    second = crc32(prefix[_FIRST:_SECOND], first)
    if size <= _SECOND:
        return model, first, second, second, second
    third = crc32(prefix[_SECOND:_THIRD], second)
    return model, first, second, third, crc32(prefix[_THIRD:_FOURTH], third) if size > _THIRD else third


def shared_levels(one: SortKey, other: SortKey) -> int:
    """Count how much two keys have in common from the left: 0 where not even the model, 5 where all."""
    if one == other:
        return DEEPEST
    if one[0] != other[0]:
        return 0
    if one[1] != other[1]:
        return 1
    if one[2] != other[2]:
        return 2
    return 3 if one[3] != other[3] else 4


class PrefixChanges:
    """Counts, along a sequence of lines, how many levels of the key differ from the line before.

    In sorted order that is the number of distinct values: the difference between the totals of two orders is what one
    gains on the other.
    """

    __slots__ = ("_last", "total")

    def __init__(self) -> None:
        self._last = NO_KEY
        self.total = 0
        """Over the model and all hashes: at most five a line."""

    def add(self, keys: Iterable[SortKey]) -> None:
        """Take the next lines."""
        last, total = self._last, self.total
        for key in keys:
            if key != last:
                total += DEEPEST - shared_levels(key, last)
                last = key
        self._last, self.total = last, total
