"""Whole roles die, are started again, are cut off or shouted at: real processes, killed with -9 where need be."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from slackwater.embedded.postgres import EmbeddedPostgres
from tests.cases.children import LOOPBACK, listening
from tests.cases.databases import cut_connections
from tests.cases.inputs import questions, read
from tests.cases.marks import case
from tests.cases.plant import ROLES, SLOTS, Plant, running_plant
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_SECONDS = 120.0
NOISE = (
    os.urandom(4096),
    b"\0" * 512,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # how TLS begins
    b"GET / HTTP/9.9\r\n\r\n",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_plant(
    postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Plant]:
    """The module's processes."""
    async with running_plant(postgres_server, tmp_path_factory.mktemp("plant")) as plant:
        yield plant


@pytest_asyncio.fixture(loop_scope="module")
async def plant(module_plant: Plant) -> AsyncIterator[Plant]:
    """The same, nothing counted yet; what a test ended it has started again."""
    module_plant.engine.arrivals.clear()
    yield module_plant
    assert {name: child.poll() for name, child in module_plant.processes.children.items()} == dict.fromkeys(ROLES)


@case("L02", "L04", "R09")
async def test_a_killed_workers_lines_go_to_another_and_nothing_that_was_finished_is_sent_again(plant: Plant) -> None:
    batch = await plant.acme.create(await plant.acme.upload(questions(200)))
    await plant.acme.progress(batch["id"], 80)
    finished = (await plant.acme.get(batch["id"]))["request_counts"]["completed"]
    plant.kill("work-1")
    arrived = plant.lines().total()
    # As if the time of its lease had passed already.
    await plant.db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 hour' WHERE id = 'work-1'", {})

    ended = await plant.acme.ended(batch["id"], seconds=PATIENCE_SECONDS)
    await plant.start("work-1")

    assert (ended.status, ended.counts) == ("completed", (200, 200, 0))
    assert set(ended.answered) == {f"r{n}" for n in range(200)}
    assert len(plant.lines()) == 200
    assert plant.lines().total() - 200 <= arrived - finished
    assert max(plant.lines().values()) <= 2


@case("L04", "L05", "R09")
async def test_a_worker_that_is_stopped_and_started_in_place_has_no_line_sent_twice(plant: Plant) -> None:
    batch = await plant.acme.create(await plant.acme.upload(questions(200)))
    await plant.acme.progress(batch["id"], 40)
    await plant.stop("work-2")
    await plant.start("work-2")

    ended = await plant.acme.ended(batch["id"], seconds=PATIENCE_SECONDS)

    assert (ended.status, ended.counts) == ("completed", (200, 200, 0))
    assert len(plant.lines()) == 200
    assert set(plant.lines().values()) == {1}


@case("R10")
async def test_equal_bodies_are_a_result_each_although_a_worker_is_lost_among_them(plant: Plant) -> None:
    data = b"".join(
        raw.replace(b'"same-', b'"copy-%d-' % copy) + b"\n"
        for copy in range(20)
        for raw in read("v22_identical_bodies.jsonl").splitlines()
    )
    batch = await plant.acme.create(await plant.acme.upload(data))
    await plant.acme.progress(batch["id"], 10)
    plant.kill("work-1")
    await plant.start("work-1")

    ended = await plant.acme.ended(batch["id"], seconds=PATIENCE_SECONDS)

    assert (ended.status, ended.counts) == ("completed", (100, 100, 0))
    assert set(ended.answered) == {f"copy-{copy}-{n}" for copy in range(20) for n in range(5)}


@case("L06", "C04")
async def test_what_was_created_or_cancelled_before_everything_died_is_known_after_it(plant: Plant) -> None:
    cancelled = await plant.acme.create(await plant.acme.upload(questions(300)))
    await plant.acme.progress(cancelled["id"], 20)
    # From here on nobody acts on what the API is told.
    plant.kill("control")
    created = await plant.acme.create(await plant.acme.upload(jsonl([line("a")])))
    answer = await plant.acme.cancel(cancelled["id"])
    plant.kill("api", "work-1", "work-2")
    await plant.start(*ROLES)

    first = await plant.acme.ended(cancelled["id"], seconds=PATIENCE_SECONDS)
    second = await plant.acme.ended(created["id"], seconds=PATIENCE_SECONDS)

    assert answer.json()["status"] == "cancelling"
    assert first.status == "cancelled"
    assert len(first.answered) >= 20
    assert set(first.answered) | set(first.refused) == {f"r{n}" for n in range(300)}
    assert (created["status"], second.status, second.counts) == ("validating", "completed", (1, 1, 0))


@case("W16")
async def test_bytes_at_random_on_every_port_harm_nothing_and_every_port_is_on_loopback(plant: Plant) -> None:
    children = plant.processes.children
    ports = {address for name in ROLES for address in listening(children[name])}

    def scan() -> None:
        for _, port in ports:
            for noise in NOISE:
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(noise)

    await asyncio.to_thread(scan)

    assert (await plant.acme.run(jsonl([line("a")]))).counts == (1, 1, 0)
    assert {(LOOPBACK, plant.port(name)) for name in ROLES} <= ports
    assert {address for address, _ in ports} == {LOOPBACK}
    for name in ROLES:
        assert (await plant.acme.http.get(f"http://127.0.0.1:{plant.port(name)}/healthz")).status_code == 200


@case("D11", "O07")
async def test_a_database_that_is_away_shows_in_readiness_alone_and_nothing_is_lost(
    plant: Plant, postgres_server: EmbeddedPostgres
) -> None:
    batch = await plant.acme.create(await plant.acme.upload(questions(200)))
    await plant.acme.progress(batch["id"], 10)
    before = {name: len(plant.log(name)) for name in ("control", "work-1", "work-2")}

    def allow(allowed: str) -> None:
        with psycopg.connect(postgres_server.url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {plant.database} ALLOW_CONNECTIONS {allowed}".encode())
        cut_connections(postgres_server, plant.database)

    await asyncio.to_thread(allow, "false")
    down = {name: await plant.until_ready(name, 503) for name in ROLES}
    alive = [(await plant.acme.http.get(f"http://127.0.0.1:{plant.port(name)}/healthz")).status_code for name in ROLES]
    for name, start in before.items():
        await plant.until_told(name, "database does not answer", after=start)
    await asyncio.to_thread(allow, "true")
    for name in ROLES:
        await plant.until_ready(name, 200)

    ended = await plant.acme.ended(batch["id"], seconds=PATIENCE_SECONDS)

    assert alive == [200] * len(ROLES)
    assert (down["api"]["database"], down["api"]["store"]) == ("unavailable", "ok")
    assert down["control"]["checks"]["database"] != "ok"
    assert down["work-1"]["checks"]["database"] != "ok" == down["work-1"]["checks"]["engine"]
    assert (ended.status, ended.counts) == ("completed", (200, 200, 0))
    assert not any("Traceback" in plant.log(name)[start:] for name, start in before.items())


@case("O02", "O07")
async def test_the_death_of_an_engine_is_told_once_however_many_lines_wait(plant: Plant) -> None:
    before = {name: len(plant.log(name)) for name in ("work-1", "work-2")}
    batch = await plant.acme.create(await plant.acme.upload(questions(500)))
    await plant.acme.progress(batch["id"], 20)
    plant.engine.crash()
    said = {name: await plant.until_ready(name, 503) for name in before}
    for name, start in before.items():
        await plant.until_told(name, "engine is down", after=start)
    alive = [(await plant.acme.http.get(f"http://127.0.0.1:{plant.port(name)}/healthz")).status_code for name in before]
    plant.engine.restart()

    ended = await plant.acme.ended(batch["id"], seconds=PATIENCE_SECONDS)

    assert alive == [200, 200]
    assert (ended.status, ended.counts) == ("completed", (500, 500, 0))
    for name, start in before.items():
        assert said[name]["checks"]["engine"] != "ok" == said[name]["checks"]["database"]
        told = plant.log(name)[start:]
        assert told.count("engine is down") == 1
        assert "Traceback" not in told
        assert len(told.splitlines()) < SLOTS
