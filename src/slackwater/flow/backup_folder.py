"""What a backup is on disk, and its manifest.

::

    manifest.json       what the backup holds, with sizes and digests; written last: without it there is no backup
    objects.jsonl       one line an object: key, size_bytes, sha256
    database/<table>    its rows, in the text form of PostgreSQL's COPY
    objects/<key>       the objects, as a local store keeps them
    incomplete          there while the backup is being made; a run that broke off is taken up where it was
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from slackwater.domain.errors import SetupError

FORMAT: Final = 1
"""What this version writes, and the newest it reads."""

_PIECE_BYTES: Final = 1 << 20


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One table's rows."""

    name: str
    columns: tuple[str, ...]
    rows: int
    size_bytes: int
    sha256: str


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object."""

    key: str
    size_bytes: int
    sha256: str


class ObjectsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All objects; the digest is that of their list."""

    count: int
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. Times are ISO 8601 in UTC."""

    format: int
    slackwater: str
    """The version that made it."""
    revision: str
    """Of the schema."""
    taken_at: str
    """The moment the database was as it is here, by the database's clock."""
    tables: tuple[TableEntry, ...]
    """A table that is referred to comes before those that refer to it."""
    objects: ObjectsEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupFolder:
    """The folder of one backup."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What makes it a backup."""
        return self.path / "manifest.json"

    @property
    def incomplete(self) -> Path:
        """Says that this folder is ours, and not finished."""
        return self.path / "incomplete"

    @property
    def wanted(self) -> Path:
        """The list of the objects to copy, while they are copied."""
        return self.path / "objects.wanted"

    @property
    def list(self) -> Path:
        """The list of the objects."""
        return self.path / "objects.jsonl"

    @property
    def objects(self) -> Path:
        """The folder of a local store with the objects."""
        return self.path / "objects"

    def table(self, name: str) -> Path:
        """Name the file of a table's rows."""
        return self.path / "database" / name

    def begin(self) -> None:
        """Make the folder, or take up one that is incomplete. Raises SetupError where it holds anything else."""
        if self.manifest.exists():
            raise SetupError(f"{self.path} holds a backup already; name another folder")
        if self.path.is_dir() and not self.incomplete.exists() and any(self.path.iterdir()):
            raise SetupError(f"{self.path} holds something else; name a folder that is empty or not there yet")
        # Rows hold digests of keys and names of tenants, objects what customers sent.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.incomplete.touch(mode=0o600)
        self.table("").mkdir(exist_ok=True)

    def complete(self, manifest: Manifest) -> None:
        """Make it a backup, durably."""
        self.wanted.unlink(missing_ok=True)
        staged = self.manifest.with_suffix(".staged")
        staged.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        for path in (*(self.table(table.name) for table in manifest.tables), self.list, staged, self.table("")):
            _make_durable(path)
        staged.rename(self.manifest)
        self.incomplete.unlink()
        _make_durable(self.path)

    def read_manifest(self) -> Manifest:
        """Read the manifest. Raises SetupError where this is no backup, an incomplete one, or a newer version's."""
        try:
            raw = self.manifest.read_bytes()
        except FileNotFoundError:
            unfinished = self.incomplete.exists()
            why = "an unfinished backup: run `slackwater backup` on it again" if unfinished else "no backup"
            raise SetupError(f"{self.path} is {why}") from None
        try:
            found = json.loads(raw).get("format", 0)
            if found > FORMAT:
                raise SetupError(f"{self.path} was made by a newer version; restore it with that version")
            return msgspec.json.decode(raw, type=Manifest)
        except (ValueError, AttributeError, TypeError) as error:
            raise SetupError(f"{self.manifest} is damaged: {error}") from error

    def verify_lists(self, manifest: Manifest) -> None:
        """Compare the digests of the rows and of the list of objects. Raises SetupError on the first difference."""
        for table in manifest.tables:
            _verify(self.table(table.name), table.sha256)
        _verify(self.list, manifest.objects.sha256)

    def entries(self) -> Iterator[ObjectEntry]:
        """Yield the entries of the list of objects, one by one."""
        with self.list.open("rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line, type=ObjectEntry)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _verify(path: Path, sha256: str) -> None:
    try:
        found = digest_of(path)
    except FileNotFoundError:
        raise SetupError(f"the backup is damaged: {path} is missing") from None
    if found != sha256:
        raise SetupError(f"the backup is damaged: {path} is not what was written")


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
