"""What planning remembers of a line it will run: 45 bytes whose order as bytes is the order of the plan.

Sorted by model, prefix hashes, size, and then place in the file. Bytes rather than tuples: a tenth of the memory, they
compare in C, and a million of them go through a file when they do not fit in memory.
"""

from struct import Struct
from typing import Final, NamedTuple

_WRITTEN: Final = Struct(">HIIIIBQIQIH")
_READ: Final = Struct(">18sBQIQIH")

RECORD_BYTES: Final = _WRITTEN.size
MODEL_BYTES: Final = 2
"""At the front of a record, and of its key."""
KEY_BYTES: Final = 18
"""The sort key, at the front of a record: number of the model, then the prefix hashes."""

pack_record: Final = _WRITTEN.pack
"""Write a record: model and four hashes, then the fields of :class:`Record` after ``key``, in order."""
unpack_record: Final = _READ.unpack
"""Read the fields of a record: for hot loops, where a :class:`Record` would cost as much as all else."""


class Record(NamedTuple):
    """A line's place in the order of the plan and in the file."""

    key: bytes
    """The sort key."""
    size: int
    """Size bucket."""
    start: int
    """Offset of the line's first byte."""
    length: int
    """Bytes, without the line feed."""
    number: int
    """Physical line, counted from 1."""
    id_start: int
    """Offset within the line of the custom_id's JSON string."""
    id_length: int
    """0 where that is not known."""


def read_record(packed: bytes) -> Record:
    """Read one record."""
    return Record._make(_READ.unpack(packed))


def split_records(packed: bytes) -> list[bytes]:
    """Cut records that stand one after another, without reading them."""
    return [packed[start : start + RECORD_BYTES] for start in range(0, len(packed), RECORD_BYTES)]
