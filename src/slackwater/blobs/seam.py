"""The one seam that every write and every delete passes, and the eye that times every operation.

Both are optional and cost a None check when absent. A seam that raises stands for a fault; one that ends the process
stands for a crash: before the write nothing is there, after it the object is whole and durable but its caller has not
heard so yet. Reads change nothing and do not pass it.
"""

from typing import Protocol


class Seam(Protocol):
    """Hooks around every change to the store. What they raise reaches the writer unchanged."""

    async def before(self, stage: str, key: str) -> None:
        """Run when nothing of this change has happened yet."""
        ...

    async def after(self, stage: str, key: str) -> None:
        """Run when the change is durable, before the caller learns of it."""
        ...


class BlobObserver(Protocol):
    """Gets one call per finished operation, successful or not."""

    def observed(self, op: str, seconds: float, size_bytes: int, *, ok: bool) -> None:
        """Take note of one operation.

        ``op`` is one of put, write, get, get_range, size, read (once a piece), join, delete, list. ``size_bytes`` is
        what was moved, 0 where nothing was or where it failed. A missing object counts as not ok.
        """
        ...
