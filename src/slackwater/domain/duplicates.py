"""Finding a custom_id that stands on two lines, in flat memory.

A set of a million ids as strings takes well over 100 MB. So only a 64-bit hash of each is kept, in 64 arrays by its low
bits (8 MB a million); at the end each array becomes a set for a moment (1 MB of a million). Hashes that stand there
twice are only a suspicion: the lines are read once more and the ids themselves compared, which costs nothing where
nobody is suspect. Python seeds its hash of bytes for each process, so that nobody can prepare ids that collide.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from slackwater.domain.input_errors import InputError, quoted

_SHARDS: Final = 64
_MOST_SUSPECTS: Final = 1_000
"""More than can be listed, and few enough to remember the first line of each."""


class Seen:
    """Byte strings that were seen, as hashes: to find out which of very many stand there twice."""

    def __init__(self) -> None:
        self._shards = [array("q") for _ in range(_SHARDS)]

    def add(self, strings: Iterable[bytes]) -> None:
        """Take note of strings. Costs 0.15 µs and 8 bytes each."""
        append = [shard.append for shard in self._shards]
        for key in map(hash, strings):
            append[key & (_SHARDS - 1)](key)

    def repeated(self) -> tuple[frozenset[int], int]:
        """Return hashes that were added more than once, a thousand at most, and how many additions were repetitions.

        Forgets them all: ask once, at the end.
        """
        suspects: set[int] = set()
        total = 0
        shards, self._shards = self._shards, []
        while shards:
            shard = shards.pop()
            distinct = set(shard)
            if len(distinct) == len(shard):
                continue
            total += len(shard) - len(distinct)
            for key in shard:
                if key in distinct:
                    distinct.discard(key)
                elif len(suspects) < _MOST_SUSPECTS:
                    suspects.add(key)
        return frozenset(suspects), total


def duplicate_errors(ids: Iterable[tuple[int, str]], suspects: frozenset[int], *, limit: int) -> list[InputError]:
    """Compare the ids themselves where the hash of their UTF-8 is suspect; at most ``limit`` errors.

    ``ids`` are pairs of physical line and custom_id, in order of lines.
    """
    first_lines: dict[str, int] = {}
    errors: list[InputError] = []
    for line, custom_id in ids:
        if hash(custom_id.encode()) not in suspects:
            continue
        first = first_lines.setdefault(custom_id, line)
        if first != line:
            message = f"The custom_id {quoted(custom_id)} is already used on line {first}. Each must be used once."
            errors.append(InputError(code="duplicate_custom_id", message=message, param="custom_id", line=line))
            if len(errors) == limit:
                break
    return errors
