"""Planning on a real database and a real store: what a batch becomes, and what it leaves behind."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store
from slackwater.db.accounts import create_tenant
from slackwater.db.batches import BatchRecord, NewBatch, cancel_batch, create_batch, get_batch
from slackwater.db.catalog import add_alias, add_model
from slackwater.db.files import NewFile, create_file
from slackwater.db.session import Database
from slackwater.domain.bodies import BodyRules
from slackwater.domain.errors import StoreUnavailable, Unavailable
from slackwater.domain.ids import BatchId, TenantId, batch_id, file_id, tenant_id
from slackwater.domain.limits import InputLimits
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.plan import Planner, PlanSettings
from tests.cases.inputs import read
from tests.planning import CHAT, jsonl, request
from tests.service import Rejections, new_uuid


@dataclass(kw_only=True)
class At:
    """Calls something once when a stage of the store is reached."""

    stage: str = ""
    act: Callable[[], Awaitable[None]] | None = None
    then: Callable[[], Awaitable[None]] | None = None

    async def before(self, stage: str, key: str) -> None:
        if stage == self.stage and self.act is not None:
            act, self.act = self.act, None
            await act()

    async def after(self, stage: str, key: str) -> None:
        if stage == self.stage and self.then is not None:
            await self.then()


@dataclass(kw_only=True)
class Chunk:
    """One row of ``chunks``, and the custom_ids in its bytes."""

    seq: int
    model: str
    state: str
    n_requests: int
    errored: int
    cost_seconds: float
    err_key: str | None
    custom_ids: list[str]


@dataclass(kw_only=True)
class Scene:
    """A tenant, a planner, and hands on both."""

    db: Database
    store: BlobStore
    at: At
    tenant: TenantId
    planner: Planner
    rejections: Rejections
    clock: list[float]
    batch: BatchId = field(default_factory=lambda: BatchId(""))
    objects: list[str] = field(default_factory=list)

    async def submit(self, data: bytes, *, endpoint: str = CHAT, invalid_lines: str = "fail") -> None:
        """Make a batch of a file."""
        file = file_id(new_uuid())
        written = await self.store.put(keys.input_key(file), data, stage="test")
        new_file = NewFile(
            id=file,
            purpose="batch",
            filename="in.jsonl",
            size_bytes=written.size_bytes,
            sha256=written.sha256,
            object_key=keys.input_key(file),
            expires_after=None,
        )
        await create_file(self.db, tenant_id=self.tenant, new=new_file, once=None)
        self.batch = batch_id(new_uuid())
        new_batch = NewBatch(
            id=self.batch,
            dialect="openai",
            endpoint=endpoint,
            completion_window="24h",
            window=timedelta(hours=24),
            input_file_id=file,
            invalid_lines=invalid_lines,
            metadata=None,
            output_expires_seconds=None,
        )
        await create_batch(self.db, tenant_id=self.tenant, new=new_batch, once=None)
        self.objects = [keys.input_key(file)]

    async def plan(self, data: bytes, *, endpoint: str = CHAT, invalid_lines: str = "fail") -> BatchRecord:
        """Submit a file, plan it, return the batch."""
        await self.submit(data, endpoint=endpoint, invalid_lines=invalid_lines)
        assert await self.planner.plan_once()
        return await self.read()

    async def read(self) -> BatchRecord:
        """Read the batch."""
        return await get_batch(self.db, tenant_id=self.tenant, dialect="openai", batch_id=self.batch)

    async def row(self) -> Any:
        """Read what no customer sees of the batch."""
        wanted = "SELECT plan_key, index_key, input_key, model FROM batches WHERE id = %(batch)s"
        (row,) = await self.db.fetch("test", wanted, {"batch": self.batch})
        return row

    async def chunks(self) -> list[Chunk]:
        """Read the chunks in plan order, as a worker would."""
        rows = await self.db.fetch(
            "test", "SELECT * FROM chunks WHERE batch_id = %(batch)s ORDER BY seq", {"batch": self.batch}
        )
        batch = await self.row()
        source = await self.store.get(batch.plan_key or batch.input_key)
        return [
            Chunk(
                seq=row.seq,
                model=row.model,
                state=row.state,
                n_requests=row.n_requests,
                errored=row.errored,
                cost_seconds=row.cost_seconds,
                err_key=row.err_key,
                custom_ids=ids(source[row.byte_start : row.byte_start + row.byte_length]),
            )
            for row in rows
        ]

    async def index(self) -> list[list[Any]]:
        """Read the sidecar index."""
        return [json.loads(line) for line in (await self.store.get((await self.row()).index_key)).splitlines()]

    async def stored(self) -> list[str]:
        """List what planning has stored."""
        return sorted([one.key async for one in self.store.list("plans")])


def ids(data: bytes) -> list[str]:
    return [json.loads(line)["custom_id"] for line in data.split(b"\n") if line.strip()]


@pytest.fixture
async def scene(db: Database, tmp_path: Path) -> AsyncIterator[Scene]:
    at = At()
    store = open_store(f"file://{tmp_path / 'objects'}", seam=at)
    tenant = tenant_id(new_uuid())
    await create_tenant(db, tenant_id=tenant, name="acme", actor="test")
    await add_model(db, model_id="test-model", actor="test", max_model_len=32_768)
    await add_model(db, model_id="test-model-b", actor="test")
    await add_alias(db, alias="gpt-4.1-mini", model_id="test-model", actor="test")
    rejections = Rejections()
    clock = [0.0]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    planner = Planner(
        db=db,
        blobs=store,
        settings=PlanSettings(scratch=scratch),
        observer=rejections,
        clock=lambda: clock[0],
        choose=lambda below: (below * 7) // 11,
        returns=ClaimReturns(db),
    )
    yield Scene(db=db, store=store, at=at, tenant=tenant, planner=planner, rejections=rejections, clock=clock)
    await store.close()
    assert list(scratch.iterdir()) == []


def set_up(scene: Scene, **settings: Any) -> None:
    """Change the planner's settings."""
    scene.planner = replace(scene.planner, settings=replace(scene.planner.settings, **settings))


SYSTEM = ["You are a pirate. " * 20, "You are a judge. " * 20, "You are a nurse. " * 20]


def mixed(n_lines: int) -> bytes:
    """Lines with three system prompts in turn, over and over."""
    return jsonl(
        *(
            request(
                f"r{n}",
                messages=[{"role": "system", "content": SYSTEM[n % 3]}, {"role": "user", "content": f"Case {n}"}],
            )
            for n in range(n_lines)
        )
    )


def plain(n_lines: int) -> bytes:
    return jsonl(*(request(f"r{n}", f"{n} is the number") for n in range(n_lines)))


async def test_without_a_batch_there_is_no_work(scene: Scene) -> None:
    assert not await scene.planner.plan_once()


async def test_a_small_batch_is_one_chunk_of_the_input_itself(scene: Scene) -> None:
    batch = await scene.plan(b"\xef\xbb\xbf" + plain(3).replace(b"\n", b"\r\n\r\n").rstrip())

    assert (batch.status, batch.total, batch.model) == ("in_progress", 3, "test-model")
    (chunk,) = await scene.chunks()
    assert chunk.custom_ids == ["r0", "r1", "r2"]
    assert (chunk.model, chunk.state, chunk.n_requests) == ("test-model", "pending", 3)
    assert (await scene.row()).plan_key is None
    assert [entry[:2] for entry in await scene.index()] == [[1, "r0"], [3, "r1"], [5, "r2"]]


async def test_lines_that_begin_alike_are_put_together(scene: Scene) -> None:
    await scene.plan(mixed(300))

    order = [int(custom_id[1:]) % 3 for chunk in await scene.chunks() for custom_id in chunk.custom_ids]
    assert sum(one != other for one, other in pairwise(order)) == 2
    assert (await scene.row()).plan_key is not None


@pytest.mark.parametrize("make", [mixed, plain])
async def test_every_line_is_in_one_chunk_and_the_index_says_where(scene: Scene, make: Callable[[int], bytes]) -> None:
    data = make(250)
    batch = await scene.plan(data)

    chunks = await scene.chunks()
    found = [custom_id for chunk in chunks for custom_id in chunk.custom_ids]
    assert sorted(found) == sorted(f"r{n}" for n in range(250))
    assert [chunk.n_requests for chunk in chunks] == [len(chunk.custom_ids) for chunk in chunks]
    assert batch.total == 250
    row = await scene.row()
    source = await scene.store.get(row.plan_key or row.input_key)
    for number, custom_id, offset, length, seq in await scene.index():
        line = json.loads(source[offset : offset + length])
        assert line["custom_id"] == custom_id == f"r{number - 1}"
        assert custom_id in chunks[seq].custom_ids


async def test_where_sorting_gains_nothing_the_input_is_not_copied(scene: Scene) -> None:
    await scene.plan(plain(400))

    assert (await scene.row()).plan_key is None
    assert len(await scene.chunks()) > 1
    assert len(await scene.stored()) == 1


@pytest.mark.parametrize("make", [mixed, plain])
async def test_a_large_batch_begins_with_a_small_chunk_from_somewhere_in_it(
    scene: Scene, make: Callable[[int], bytes]
) -> None:
    await scene.plan(make(5_200))

    first, *others = await scene.chunks()
    assert first.n_requests == 64
    assert "r0" not in first.custom_ids
    together = [custom_id for chunk in [first, *others] for custom_id in chunk.custom_ids]
    assert sorted(together) == sorted(f"r{n}" for n in range(5_200))
    assert [chunk.seq for chunk in others] == list(range(1, len(others) + 1))


async def test_runs_that_do_not_fit_in_memory_are_merged(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.flow.plan_sort.RUN_RECORDS", 50)

    await scene.plan(mixed(300))

    order = [int(custom_id[1:]) % 3 for chunk in await scene.chunks() for custom_id in chunk.custom_ids]
    assert sum(one != other for one, other in pairwise(order)) == 2


async def test_an_alias_is_kept_as_the_batchs_name_and_resolved_in_its_chunks(scene: Scene) -> None:
    batch = await scene.plan(jsonl(request("a", model="gpt-4.1-mini")))

    assert batch.model == "gpt-4.1-mini"
    assert [chunk.model for chunk in await scene.chunks()] == ["test-model"]


async def test_models_do_not_share_chunks(scene: Scene) -> None:
    set_up(scene, rules=BodyRules(allow_mixed_models=True))

    batch = await scene.plan(
        jsonl(*(request(f"r{n}", model="test-model" if n % 2 else "test-model-b") for n in range(60)))
    )

    assert batch.model is None
    for chunk in await scene.chunks():
        assert {int(custom_id[1:]) % 2 for custom_id in chunk.custom_ids} == {int(chunk.model == "test-model")}


async def test_a_bad_file_fails_its_batch_with_its_errors_and_leaves_nothing(scene: Scene) -> None:
    batch = await scene.plan(read("v05_method_bad_missing.jsonl", model="test-model"))

    assert (batch.status, batch.total) == ("failed", 0)
    assert [(error["line"], error["code"]) for error in batch.errors or []] == [
        (2, "invalid_method"),
        (4, "missing_required_parameter"),
        (5, "missing_required_parameter"),
        (6, "missing_required_parameter"),
    ]
    assert await scene.stored() == []
    assert scene.rejections.lines == {"invalid_method": 1, "missing_required_parameter": 3}
    assert scene.rejections.batches == 1


@pytest.mark.parametrize("invalid_lines", ["fail", "error"])
async def test_a_repeated_custom_id_fails_the_batch_whatever_it_asks_for(scene: Scene, invalid_lines: str) -> None:
    data = b"\xef\xbb\xbf\n" + jsonl(request("a"), request("é"), request("a", "again"), request("é"))

    batch = await scene.plan(data, invalid_lines=invalid_lines)

    assert batch.status == "failed"
    assert [(error["line"], error["code"]) for error in batch.errors or []] == [
        (4, "duplicate_custom_id"),
        (5, "duplicate_custom_id"),
    ]
    assert "'a' is already used on line 2" in (batch.errors or [])[0]["message"]
    assert scene.rejections.lines == {"duplicate_custom_id": 2}


async def test_fifty_thousand_bad_lines_are_a_hundred_errors_and_a_number(scene: Scene) -> None:
    batch = await scene.plan(b"".join(b"bad line %d\n" % n for n in range(50_000)))

    assert len(batch.errors or []) == 100
    assert "49900 more errors are not listed" in (batch.errors or [])[-1]["message"]


@pytest.mark.parametrize("name", ["p35_empty.jsonl", "p36_only_newlines.jsonl"])
async def test_a_file_without_requests_fails_its_batch(scene: Scene, name: str) -> None:
    batch = await scene.plan(read(name))

    assert [error["code"] for error in batch.errors or []] == ["empty_file"]


async def test_refused_lines_are_answered_at_once_and_the_rest_runs(scene: Scene) -> None:
    lines = [request(f"r{n}", max_tokens=8 if n % 4 else 10**9) for n in range(40)]

    batch = await scene.plan(jsonl(*lines))

    assert (batch.status, batch.total, batch.errored) == ("in_progress", 40, 10)
    *running, refused = await scene.chunks()
    assert sum(chunk.n_requests for chunk in running) == 30
    assert (refused.state, refused.n_requests, refused.errored) == ("done", 10, 10)
    answers = [json.loads(line) for line in (await scene.store.get(refused.err_key or "")).splitlines()]
    assert [answer["custom_id"] for answer in answers] == [f"r{n}" for n in range(0, 40, 4)]
    assert {answer["response"]["status_code"] for answer in answers} == {400}
    assert len({answer["id"] for answer in answers}) == 10
    index = await scene.index()
    assert [entry[1] for entry in index if entry[4] == refused.seq] == [f"r{n}" for n in range(0, 40, 4)]
    assert len(index) == 40


async def test_bad_lines_are_their_own_errors_where_the_batch_asks_for_that(scene: Scene) -> None:
    data = read("v02_custom_id_missing_types.jsonl", model="test-model")

    batch = await scene.plan(data, invalid_lines="error")

    assert (batch.status, batch.total, batch.errored) == ("in_progress", 7, 6)
    _, refused = await scene.chunks()
    answers = [json.loads(line) for line in (await scene.store.get(refused.err_key or "")).splitlines()]
    assert [answer["custom_id"] for answer in answers] == [None] * 6
    assert [entry[:2] for entry in (await scene.index())[1:]] == [[line, None] for line in range(2, 8)]


async def test_a_batch_of_refused_lines_alone_goes_straight_to_its_end(scene: Scene) -> None:
    batch = await scene.plan(read("v18_media_urls.jsonl", model="test-model"))

    assert (batch.status, batch.total, batch.errored) == ("finalizing", 12, 12)
    assert (await scene.row()).plan_key is None


async def test_too_many_lines_fail_the_batch_before_the_rest_is_read(scene: Scene) -> None:
    set_up(scene, limits=InputLimits(max_lines=10))

    batch = await scene.plan(plain(20_000))

    assert [(error["code"], error["line"]) for error in batch.errors or []] == [("too_many_tasks", 11)]


async def test_a_tenants_own_limit_counts(scene: Scene) -> None:
    await scene.db.fetch("test", "UPDATE tenants SET max_lines = 5 RETURNING id", {})

    batch = await scene.plan(plain(6))

    assert [error["code"] for error in batch.errors or []] == ["too_many_tasks"]


async def test_a_file_over_the_limit_is_not_read_at_all(scene: Scene) -> None:
    set_up(scene, limits=InputLimits(max_input_bytes=100))

    batch = await scene.plan(plain(6))

    assert [error["code"] for error in batch.errors or []] == ["input_too_large"]


async def test_a_line_over_the_limit_is_its_own_error_where_the_batch_asks_for_that(scene: Scene) -> None:
    set_up(scene, limits=InputLimits(max_line_bytes=1_000))

    batch = await scene.plan(jsonl(request("a"), request("b", "x" * 2_000_000), request("c")), invalid_lines="error")

    assert (batch.total, batch.errored) == (3, 1)
    assert [entry[:2] for entry in await scene.index()] == [[1, "a"], [3, "c"], [2, None]]


async def test_an_endpoint_nobody_knows_fails_the_batch(scene: Scene) -> None:
    batch = await scene.plan(plain(1), endpoint="/v1/moderations")

    assert [(error["code"], error["param"]) for error in batch.errors or []] == [("invalid_request", "endpoint")]


async def test_an_input_that_is_gone_fails_the_batch(scene: Scene) -> None:
    await scene.submit(plain(3))
    await scene.store.delete(scene.objects, stage="test")

    assert await scene.planner.plan_once()

    batch = await scene.read()
    assert batch.status == "failed"
    assert [error["code"] for error in batch.errors or []] == ["input_unavailable"]


async def test_a_store_that_does_not_answer_leaves_the_batch_waiting(scene: Scene) -> None:
    async def fail() -> None:
        raise StoreUnavailable("the store does not answer")

    scene.at.stage, scene.at.act = "plan.index", fail
    await scene.submit(plain(3))

    with pytest.raises(StoreUnavailable):
        await scene.planner.plan_once()

    assert (await scene.read()).status == "validating"
    assert await scene.stored() == []


async def test_a_batch_that_is_cancelled_meanwhile_stays_cancelled_and_its_plan_is_dropped(scene: Scene) -> None:
    async def cancel() -> None:
        await cancel_batch(scene.db, tenant_id=scene.tenant, dialect="openai", batch_id=scene.batch)

    scene.at.stage, scene.at.act = "plan.index", cancel

    batch = await scene.plan(mixed(100))

    assert batch.status == "cancelled"
    assert batch.total == 0
    assert await scene.stored() == []


async def take_over(scene: Scene) -> None:
    await scene.db.fetch("test", "UPDATE batches SET claim_token = gen_random_uuid() RETURNING id", {})


async def test_a_planner_whose_claim_was_taken_over_stops_and_drops_its_objects(scene: Scene) -> None:
    async def lapse() -> None:
        await take_over(scene)
        scene.clock[0] += 1_000.0

    scene.at.stage, scene.at.act = "plan.write", lapse

    batch = await scene.plan(mixed(100))

    assert batch.status == "validating"
    assert await scene.stored() == []


class Overtaken:
    """The store of a planner whose claim is another's by the time it has read its input."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scene.store, name)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Read the object, then lose the claim."""
        async for piece in self.scene.store.read(key):
            yield piece
        await take_over(self.scene)


@pytest.mark.parametrize("data", [plain(3), b"no json"])
async def test_a_lost_claim_neither_publishes_nor_fails_a_batch(scene: Scene, data: bytes) -> None:
    scene.planner = replace(scene.planner, blobs=cast("BlobStore", Overtaken(scene)))

    batch = await scene.plan(data)

    assert (batch.status, batch.errors) == ("validating", None)
    assert await scene.chunks() == []
    assert await scene.stored() == []


async def test_a_claim_is_renewed_when_a_third_of_its_time_is_gone(scene: Scene) -> None:
    left: list[float] = []

    async def take_long() -> None:
        scene.clock[0] += 25.0
        await scene.db.fetch("test", "UPDATE batches SET claimed_until = now() RETURNING id", {})

    async def look() -> None:
        wanted = "SELECT extract(epoch FROM claimed_until - now())::float8 AS left FROM batches"
        left.append((await scene.db.fetch("test", wanted, {}))[0].left)

    scene.at.stage, scene.at.act, scene.at.then = "plan.write", take_long, look

    batch = await scene.plan(mixed(100))

    assert batch.status == "in_progress"
    assert 50 < left[0] <= 60


async def test_a_full_scratch_disk_is_no_fault_of_the_batch(scene: Scene) -> None:
    set_up(scene, scratch=Path("/nowhere/at/all"))
    await scene.submit(plain(1000))

    with pytest.raises(Unavailable, match="scratch"):
        await scene.planner.plan_once()
    assert (await scene.read()).status == "validating"


async def test_a_planner_that_is_stopped_leaves_no_object_and_no_thread_behind(scene: Scene) -> None:
    running = asyncio.Event()

    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    scene.at.stage, scene.at.act = "plan.write", hang
    await scene.submit(mixed(2_000))
    task = asyncio.create_task(scene.planner.plan_once())
    await running.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await scene.stored() == []
    assert (await scene.read()).status == "validating"
