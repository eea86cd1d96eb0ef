"""Where a download goes."""

from typing import Protocol


class Sink(Protocol):
    """Anything with a ``write`` that takes all of what it is given: an open binary file, a buffer."""

    def write(self, piece: bytes, /) -> object:
        """Take the next bytes."""
        ...
