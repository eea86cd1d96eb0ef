"""Backup and restore of database and store together, on real PostgreSQL, a local store and SeaweedFS."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from slackwater.blobs.local import LocalFolder
from slackwater.blobs.protocol import BlobStore, StoredObject
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import ObjectStore, open_store
from slackwater.db.files import delete_file
from slackwater.db.migrate import migrate
from slackwater.db.session import Database
from slackwater.db.sweep_hold import sweep_allowed, sweeping_held
from slackwater.db.tables import metadata
from slackwater.domain.errors import SetupError
from slackwater.domain.ids import BatchId, FileId, TenantId
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.audit import audit
from slackwater.flow.backup import Backup
from slackwater.flow.backup_folder import Manifest
from slackwater.flow.restore import Restore
from slackwater.flow.sweep import Sweeper
from slackwater.flow.sweep_gate import unless_held
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.cases.databases import fresh_database
from tests.s3 import S3Server
from tests.service import Service, line, running_service

Spoil = Callable[[Path], None]


@dataclass
class Heard:
    """An observer that keeps what it hears, and may be told what to do when a phase begins."""

    phases: list[str] = field(default_factory=list)
    at: dict[str, asyncio.Event] = field(default_factory=dict)
    bytes_moved: int = 0

    def begun(self, phase: str, *, count: int | None = None, size_bytes: int | None = None) -> None:
        self.phases.append(phase)
        if phase in self.at:
            self.at[phase].set()

    def moved(self, *, count: int, size_bytes: int) -> None:
        self.bytes_moved += size_bytes


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a kind of store is; each call opens another one."""

    urls: Iterator[str]
    settings: StoreSettings

    def open(self) -> BlobStore:
        return open_store(next(self.urls), settings=self.settings)


@pytest.fixture(params=["local", "seaweedfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(urls=(f"file://{tmp_path / f'store-{n}'}" for n in range(9)), settings=StoreSettings())
    server: S3Server = request.getfixturevalue("seaweedfs")
    return Place(urls=(server.new_url() for _ in range(9)), settings=server.settings())


@pytest.fixture
async def source(place: Place) -> AsyncIterator[BlobStore]:
    store = place.open()
    yield store
    await store.close()


@pytest.fixture
async def target(place: Place, source: BlobStore) -> AsyncIterator[BlobStore]:
    store = place.open()
    yield store
    await store.close()


@pytest.fixture
def other_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres_server) as url:
        yield url


def backup_of(service: Service, url: str, heard: Heard | None = None) -> Backup:
    return Backup(
        database_url=url,
        db=service.db,
        store=service.store,
        version="test",
        observer=heard or Heard(),
        hold_wait_seconds=60,
    )


async def restore(url: str, store: BlobStore, folder: Path, *, replace: bool = False) -> Manifest:
    return await Restore(database_url=url, store=store, observer=Heard(), replace=replace).run(folder)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


async def test_a_backup_of_a_busy_service_goes_on_elsewhere_and_every_batch_is_sound(
    database_url: str, empty_database_url: str, source: BlobStore, target: BlobStore, tmp_path: Path
) -> None:
    slow = SimulatedEngine(SimulatedSettings(latency=Latency(decode_seconds_per_token=0.01)))
    db = Database.connect(database_url)
    async with running_service(db, source, database_url, tmp_path, engines=[slow]) as service:
        ended = [await service.submit(line(f"{n}-{m}") for m in range(40)) for n in range(3)]
        for batch in ended:
            await service.until(batch)
        under_way = await service.submit(line(f"long-{n}") for n in range(1200))
        await service.until(under_way, "in_progress")
        await half_way(service, under_way)

        manifest = await backup_of(service, database_url).make(tmp_path / "backup")

        assert (await service.get(under_way)).status == "in_progress"  # nobody had to wait for the backup
        await service.cancel(under_way)
        await service.until(under_way)
    await db.close()
    leased = sum(b"\tleased\t" in raw for raw in (tmp_path / "backup/database/chunks").read_bytes().splitlines())
    assert leased
    assert manifest.objects.count
    restored = Database.connect(empty_database_url)
    await restore(empty_database_url, target, tmp_path / "backup")

    assert rows(empty_database_url, "SELECT 1 FROM chunks WHERE state = 'leased'") == []
    async with running_service(restored, target, empty_database_url, tmp_path) as service:
        service.tenant = tenant_of(empty_database_url, under_way)
        assert (await service.until(under_way)).status == "completed"
        for batch in (*ended, under_way):
            await service.audit(batch)
    await restored.close()


async def half_way(service: Service, batch: BatchId) -> None:
    async with asyncio.timeout(60):
        while (await service.get(batch)).succeeded < 100:
            await asyncio.sleep(0.01)


def tenant_of(url: str, batch: BatchId) -> TenantId:
    ((tenant,),) = rows(url, f"SELECT tenant_id FROM batches WHERE id = '{batch}'")  # noqa: S608  an id of ours
    return TenantId(str(tenant))


async def finished(service: Service, *, lines: int = 30) -> BatchId:
    batch = await service.submit(line(f"r{n}") for n in range(lines))
    await service.until(batch)
    return batch


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path) as running:
        yield running


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[BlobStore]:
    store = open_store(str(tmp_path / "elsewhere"))
    yield store
    await store.close()


async def test_every_table_comes_back_row_by_row_and_numbers_go_on(
    service: Service, database_url: str, other_database_url: str, elsewhere: BlobStore, tmp_path: Path
) -> None:
    await finished(service)
    await stopped(service)
    manifest = await backup_of(service, database_url).make(tmp_path / "backup")
    await restore(other_database_url, elsewhere, tmp_path / "backup")

    assert {table.name for table in manifest.tables} == set(metadata.tables)
    for table in metadata.sorted_tables:
        columns = ", ".join(f'"{column.name}"' for column in table.columns if column.name != "engine_ready")
        statement = f"SELECT {columns} FROM {table.name} ORDER BY {columns}"  # noqa: S608  names of the schema
        assert rows(database_url, statement) == rows(other_database_url, statement), table.name
    ((highest,),) = rows(database_url, "SELECT max(id) FROM audit_log")
    ((following,),) = rows(
        other_database_url, "INSERT INTO audit_log (actor, action, subject) VALUES ('a', 'b', 'c') RETURNING id"
    )
    assert isinstance(highest, int)
    assert following == highest + 1


class PatientStore(ObjectStore):
    """A store whose listing waits until it may begin."""

    def __init__(self, backend: LocalFolder) -> None:
        super().__init__(backend)
        self.may_list = asyncio.Event()

    async def list(self, prefix: str) -> AsyncGenerator[StoredObject]:
        await self.may_list.wait()
        async for stored in super().list(prefix):
            yield stored


async def stopped(service: Service) -> None:
    """End the workers and the stages: nothing moves any more."""
    for worker_stop in service.worker_stops:
        worker_stop.set()
    await asyncio.gather(*service.workers)
    service.stop.set()


async def test_nothing_that_a_backup_needs_is_deleted_while_it_runs(
    db: Database,
    store: BlobStore,
    database_url: str,
    other_database_url: str,
    elsewhere: BlobStore,
    tmp_path: Path,
) -> None:
    async with running_service(db, store, database_url, tmp_path) as service:
        batch = await finished(service)
        found = await service.get(batch)
    assert found.output_file_id is not None
    heard = Heard(at={"list of objects": asyncio.Event()})
    listing = PatientStore(LocalFolder(tmp_path / "objects"))
    sweeper = Sweeper(db=db, store=store, keep_seconds=0, now=lambda: datetime.now(UTC) + timedelta(days=9))
    passes = [unless_held(once, database_url) for once in (sweeper.sweep_files_once, sweeper.sweep_batches_once)]
    making = asyncio.create_task(
        replace(backup_of(service, database_url, heard), store=listing).make(tmp_path / "backup")
    )
    await heard.at["list of objects"].wait()
    await delete_file(db, tenant_id=service.tenant, file_id=FileId(found.output_file_id))

    assert [await once() for once in passes] == [False, False]
    listing.may_list.set()
    await making
    await listing.close()
    await restore(other_database_url, elsewhere, tmp_path / "backup")
    restored = Database.connect(other_database_url)
    report = await audit(restored, elsewhere, batch)
    await restored.close()
    assert report.sound, report.faults
    assert not report.unchecked
    assert [await once() for once in passes] == [True, True]  # and afterwards it goes


async def test_a_backup_waits_for_the_sweep_under_way_and_no_longer_than_it_may(database_url: str) -> None:
    async with sweep_allowed(database_url) as allowed:
        assert allowed
        with pytest.raises(SetupError, match="another backup or restore is under way, or a sweep"):
            async with sweeping_held(database_url, wait_seconds=0.1):
                pass
    async with sweeping_held(database_url, wait_seconds=10), sweep_allowed(database_url) as allowed:
        assert not allowed


async def test_a_hold_whose_connection_was_cut_makes_no_backup(
    service: Service, database_url: str, tmp_path: Path
) -> None:
    await finished(service)
    heard = Heard(at={"objects": asyncio.Event()})
    making = asyncio.create_task(backup_of(service, database_url, heard).make(tmp_path / "backup"))
    await heard.at["objects"].wait()
    rows(
        database_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slackwater backup'",
    )

    with pytest.raises(SetupError, match="kept objects from being deleted broke"):
        await making
    with pytest.raises(SetupError, match="an unfinished backup"):
        await restore(database_url, service.store, tmp_path / "backup")
    manifest = await backup_of(service, database_url).make(tmp_path / "backup")  # taken up again
    assert manifest.objects.count


async def test_a_backup_taken_up_again_copies_only_what_it_lacks(
    service: Service, database_url: str, tmp_path: Path
) -> None:
    await finished(service)
    folder = tmp_path / "backup"
    whole = await backup_of(service, database_url).make(folder)
    (folder / "manifest.json").unlink()
    (folder / "incomplete").touch()
    kept = {path: path.stat().st_ino for path in (folder / "objects").rglob("*") if path.is_file()}
    lost = next(path for path in kept if "/outputs/" in str(path) or "/parts/" in str(path))
    lost.unlink()

    again = await backup_of(service, database_url).make(folder)

    assert again.objects.count == whole.objects.count
    assert again.objects.size_bytes == whole.objects.size_bytes
    assert all(path.stat().st_ino == number for path, number in kept.items() if path != lost)


@pytest.mark.parametrize("name", ["photo.jpg", "manifest.json"])
async def test_a_folder_that_holds_something_else_is_left_alone(
    service: Service, database_url: str, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / name).write_text("mine")

    with pytest.raises(SetupError, match=r"holds (something else|a backup already)"):
        await backup_of(service, database_url).make(folder)
    assert [path.name for path in folder.iterdir()] == [name]


@pytest.fixture
async def a_backup(service: Service, database_url: str, tmp_path: Path) -> Path:
    await finished(service)
    await backup_of(service, database_url).make(tmp_path / "backup")
    return tmp_path / "backup"


def spoilt_object(folder: Path) -> None:
    path = max(
        (each for each in (folder / "objects").rglob("*") if each.is_file()), key=lambda each: each.stat().st_size
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lost_object(folder: Path) -> None:
    max(
        (each for each in (folder / "objects").rglob("*") if each.is_file()), key=lambda each: each.stat().st_size
    ).unlink()


def spoilt_rows(folder: Path) -> None:
    path = folder / "database" / "batches"
    path.write_bytes(path.read_bytes().replace(b"completed", b"cancelled"))


def cut_list(folder: Path) -> None:
    path = folder / "objects.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def newer_format(folder: Path) -> None:
    change_manifest(folder, format=99)


def newer_schema(folder: Path) -> None:
    change_manifest(folder, revision="9999")


def change_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoilt_object, "the object .* is not what was written"),
        (lost_object, "the object .* is missing"),
        (spoilt_rows, "database/batches is not what was written"),
        (cut_list, "objects.jsonl is not what was written"),
        (newer_format, "made by a newer version"),
        (newer_schema, "of a newer version"),
    ],
)
async def test_a_damaged_or_newer_backup_is_refused_and_the_database_stays_empty(
    a_backup: Path, empty_database_url: str, elsewhere: BlobStore, spoil: Spoil, said: str
) -> None:
    spoil(a_backup)

    with pytest.raises(SetupError, match=said):
        await restore(empty_database_url, elsewhere, a_backup)
    assert rows(empty_database_url, "SELECT relname FROM pg_class WHERE relname = 'batches'") == []


async def test_a_database_with_rows_is_only_replaced_when_told_to(
    a_backup: Path, other_database_url: str, elsewhere: BlobStore
) -> None:
    with psycopg.connect(other_database_url) as connection:
        connection.execute("INSERT INTO tenants (id, name) VALUES ('tenant_other', 'other')")

    with pytest.raises(SetupError, match="holds rows in tenants; --force drops them"):
        await restore(other_database_url, elsewhere, a_backup)
    assert rows(other_database_url, "SELECT id FROM tenants") == [("tenant_other",)]
    await restore(other_database_url, elsewhere, a_backup, replace=True)
    assert ("tenant_other",) not in rows(other_database_url, "SELECT id FROM tenants")


async def test_a_restore_beside_running_processes_is_refused(
    a_backup: Path, other_database_url: str, elsewhere: BlobStore
) -> None:
    running = Database.connect(other_database_url)
    await running.ping()

    with pytest.raises(SetupError, match="1 connections of the service's processes"):
        await restore(other_database_url, elsewhere, a_backup)
    await running.close()


async def test_a_restore_run_again_leaves_the_objects_it_finds(
    a_backup: Path, other_database_url: str, elsewhere: BlobStore, tmp_path: Path
) -> None:
    await restore(other_database_url, elsewhere, a_backup)
    there = {path: path.stat().st_ino for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}

    await restore(other_database_url, elsewhere, a_backup, replace=True)

    assert all(path.stat().st_ino == number for path, number in there.items() if path.exists())
    assert len(there) > 1


async def test_a_schema_that_is_not_this_versions_is_not_backed_up(
    empty_database_url: str, store: BlobStore, tmp_path: Path
) -> None:
    migrate(empty_database_url, revision="0001")
    db = Database.connect(empty_database_url)
    job = Backup(database_url=empty_database_url, db=db, store=store, version="test", observer=Heard())

    with pytest.raises(SetupError, match="not at this version's schema"):
        await job.make(tmp_path / "backup")
    await db.close()
    assert not (tmp_path / "backup").exists()
