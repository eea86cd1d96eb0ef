"""Where a local object is written before it gets its name, so that it appears whole and durable or not at all.

The order is what makes it safe against a power cut: write to a nameless place, fsync the file, rename it to its key,
fsync the folder that now holds the name. Renaming first (as obstore's local store does, which never fsyncs) can leave
an object of the right name and the wrong bytes.

Every process has a place of its own, ``.staging/<random>/`` beside the objects on the same file system, and holds a
lock on it for as long as it lives. A place nobody holds belonged to a process that died: whoever opens the store next
removes it. Everything here blocks and belongs in a thread.
"""

import fcntl
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from slackwater.blobs.protocol import Checksum, Written

FOLDER: Final = ".staging"
LOCK: Final = "lock"
COPY_BYTES: Final = 1 << 20
PUBLISH_TRIES: Final = 20
REMEMBERED_FOLDERS: Final = 4096
WRITEV_PIECES: Final = 512


def remove_abandoned(root: Path) -> int:
    """Remove the places of processes that died, in a store's folder; returns how many. Safe beside any live one."""
    area = root / FOLDER
    if not area.is_dir():
        return 0
    doorkeeper = _locked(area / LOCK)
    try:
        return _sweep(area)
    finally:
        os.close(doorkeeper)


class Staging:
    """This process's staging place in a store's folder. Thread-safe."""

    def __init__(self, root: Path, *, fsync: Callable[[int], None] = os.fsync) -> None:
        self._root = root
        self._fsync = fsync
        self._names = itertools.count()
        self._durable: set[Path] = set()
        area = root / FOLDER
        area.mkdir(parents=True, exist_ok=True)
        # Held while sweeping and making: nobody may take a place that is made but not yet locked for an abandoned one.
        doorkeeper = _locked(area / LOCK)
        try:
            _sweep(area)
            self._place = Path(tempfile.mkdtemp(dir=area))
            self._lock = _locked(self._place / LOCK)
        finally:
            os.close(doorkeeper)

    def create(self) -> "StagedFile":
        """Name a new file that nobody can see yet; it comes into being with its first byte."""
        return StagedFile(self, self._place / str(next(self._names)), fsync=self._fsync)

    def publish(self, staged: Path, key: str) -> None:
        """Give a file that is already durable its name, durably. An older object of that name is replaced."""
        target = self._root / key
        for tries_left in reversed(range(PUBLISH_TRIES)):
            try:
                staged.rename(target)
            except FileNotFoundError:
                # The first object of this folder, or somebody removed the folder because it had become empty.
                if not tries_left:
                    raise
                target.parent.mkdir(parents=True, exist_ok=True)
            else:
                break
        try:
            self._sync_folders(target.parent)
        except OSError:
            # Whether the name survives is unknown now, and the caller is about to hear that nothing was written.
            target.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Give up the place and whatever is still in it. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self._place, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _sync_folders(self, folder: Path) -> None:
        self._sync_folder(folder)
        if folder in self._durable:
            return
        # The folders' own names have to survive too, and another process may have made them a moment ago.
        for above in folder.parents:
            if not above.is_relative_to(self._root):
                break
            self._sync_folder(above)
        if len(self._durable) >= REMEMBERED_FOLDERS:
            self._durable.clear()
        self._durable.add(folder)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)


class StagedFile:
    """One file on its way into the store. ``discard`` may come from another thread while a call is still running."""

    def __init__(self, staging: Staging, path: Path, *, fsync: Callable[[int], None]) -> None:
        self._staging = staging
        self._path = path
        self._fsync = fsync
        self._mutex = threading.Lock()
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._file: int | None = None
        self._over = False
        self._buffer: memoryview | None = None

    def append(self, pieces: Sequence[bytes | memoryview]) -> bool:
        """Write and hash bytes. False, and nothing done, once discarded: a cancelled writer's last bytes come late."""
        with self._mutex:
            if self._over:
                return False
            for piece in pieces:
                self._hash.update(piece)
            _write_all(self._opened(), pieces)
            self._size_bytes += sum(map(len, pieces))
            return True

    def append_file(self, path: Path) -> Checksum:
        """Append a whole file and say what was appended. Raises FileNotFoundError."""
        # Reading and writing through one warm buffer costs less than copy_file_range does, and the hash has to see
        # every byte anyway.
        buffer = self._buffer = self._buffer or memoryview(bytearray(COPY_BYTES))
        crc32 = size_bytes = 0
        with path.open("rb", buffering=0) as source:
            while length := source.readinto(buffer):
                crc32 = zlib.crc32(buffer[:length], crc32)
                size_bytes += length
                if not self.append((buffer[:length],)):
                    break
        return Checksum(size_bytes, crc32)

    def publish(self, key: str) -> Written:
        """Make the file durable and visible under its key. After an error, ``discard`` it."""
        with self._mutex:
            self._fsync(self._opened())
            self._close()
            self._staging.publish(self._path, key)
            return Written(size_bytes=self._size_bytes, sha256=self._hash.hexdigest())

    def discard(self) -> None:
        """Remove the file unless it was published. Idempotent."""
        with self._mutex:
            self._close()
            self._path.unlink(missing_ok=True)

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        return self._file

    def _close(self) -> None:
        descriptor, self._file, self._over = self._file, None, True
        if descriptor is not None:
            os.close(descriptor)


def _write_all(descriptor: int, pieces: Sequence[bytes | memoryview]) -> None:
    for first in range(0, len(pieces), WRITEV_PIECES):
        group = pieces[first : first + WRITEV_PIECES]
        written = os.writev(descriptor, group)
        if written == sum(map(len, group)):
            continue
        # A short write is rare (a full disk's last block, a signal): finish it the plain way.
        rest = memoryview(b"".join(group))[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _locked(path: Path, *, wait: bool = True) -> int:
    """Open a lock file, making it if need be, and lock it until it is closed; -1 if it is held and we may not wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def _sweep(area: Path) -> int:
    removed = 0
    for place in area.iterdir():
        if not place.is_dir():
            continue
        with suppress(FileNotFoundError):  # its owner is just leaving and removes it
            lock = _locked(place / LOCK, wait=False)
            if lock >= 0:
                shutil.rmtree(place, ignore_errors=True)
                os.close(lock)
                removed += 1
    return removed
