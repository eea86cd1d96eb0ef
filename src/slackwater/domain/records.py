"""What planning remembers of a line it will run: 45 bytes whose order as bytes is the order of the plan.

Sorted by model, prefix hashes, size, and then place in the file. Bytes rather than tuples: a tenth of the memory, they
compare in C, and a million of them go through a file when they do not fit in memory.
"""

from struct import Struct
from typing import Final, NamedTuple

_LAYOUT: Final = Struct(">HIIIIBQIQIH")

RECORD_BYTES: Final = _LAYOUT.size
MODEL_BYTES: Final = 2
"""At the front of a record."""
KEY_FIELDS: Final = 5
"""How many of a record's fields are its sort key."""

pack_record: Final = _LAYOUT.pack
"""Write a record from the fields of :class:`Record`, in order."""
unpack_record: Final = _LAYOUT.unpack
"""Read the fields of one record: in hot loops, where a :class:`Record` would cost as much as all else."""


class Record(NamedTuple):
    """A line's place in the order of the plan and in the file."""

    model: int
    """Number of the model among the file's."""
    first: int
    second: int
    third: int
    fourth: int
    """The prefix hashes."""
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
    return Record._make(_LAYOUT.unpack(packed))


def split_records(packed: bytes) -> list[bytes]:
    """Cut records that stand one after another, without reading them."""
    return [packed[start : start + RECORD_BYTES] for start in range(0, len(packed), RECORD_BYTES)]
