"""Where a request belongs in the order of a plan: next to those that begin like it.

An engine keeps the attention state of prefixes it has seen. Requests that share one are cheapest when they run one
after another, so lines are sorted by hashes of what the engine reads first, nested at 256 B, 1 KB, 4 KB and 16 KB: the
first hash groups what shares a system prompt, the later ones what shares more. Measured on public traces such an order
reaches the most that any order can (design: scheduling, prefix order). Equal prefixes are sorted by size.

The hashes are CRC-32, each going on from the one before: a collision costs a little order and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final
from zlib import crc32

from slackwater.domain.records import KEY_BYTES, MODEL_BYTES
from slackwater.domain.verdicts import HASHED_BYTES

LEVELS: Final = (256, 1_024, 4_096, HASHED_BYTES)
"""Bytes of prompt behind each hash."""
DEEPEST: Final = len(LEVELS) + 1
"""Levels of a whole key, the model being the first."""

_FIRST, _SECOND, _THIRD, _FOURTH = LEVELS

SortKey = tuple[int, int, int, int, int]
"""Number of the model, then the four hashes."""
_LEVEL_ENDS: Final = tuple(MODEL_BYTES + 4 * level for level in range(DEEPEST - 1))
"""Where in a packed key each level but the last ends."""
FIRST_LEVEL_BYTES: Final = _LEVEL_ENDS[1]
"""The front of a packed key that tells apart what does not even begin alike."""
_STRETCH: Final = 50
_STRETCHES: Final = 100


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


def shared_levels(key: bytes, other: bytes) -> int:
    """Count how much two keys, as they stand in records, have in common: 0 not even the model, 5 all of it."""
    if key == other:
        return DEEPEST
    for level, end in enumerate(_LEVEL_ENDS):
        if key[:end] != other[:end]:
            return level
    return DEEPEST - 1


def mean_sharing(neighbours: Iterable[tuple[bytes, bytes]]) -> float:
    """Return how many levels two neighbours in an order have in common, on average. They are records, or keys."""
    shared = [shared_levels(one[:KEY_BYTES], other[:KEY_BYTES]) for one, other in neighbours]
    return sum(shared) / max(1, len(shared))


def some_neighbours(records: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Choose neighbours to judge an order by: all of a short sequence, a hundred stretches of a long one."""
    stride = max(_STRETCH, len(records) // _STRETCHES)
    for begin in range(0, len(records), stride):
        yield from pairwise(records[begin : begin + _STRETCH + 1])
