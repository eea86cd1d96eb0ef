"""Every write passes the one seam under the name of a stage, and no write finds another way."""

from pathlib import Path

import pytest

from tests.crashes.stages import SOURCE, allowances, detours, stages_in, stages_of

MODULES = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))

DETOURS = {
    "a connection": "import psycopg\n\nasync def f(url):\n    await psycopg.AsyncConnection.connect(url)\n",
    "an engine": "engine = create_async_engine('postgresql://')\n",
    "a statement": "async def f(self):\n    await self.run(connection.execute('DELETE FROM chunks'))\n",
    "a backend": "from slackwater.blobs.local import LocalFolder\n\nstore = LocalFolder('/objects')\n",
    "an unseen put": "class Store:\n    async def put(self, key, data):\n        await self._backend.put(key, data)\n",
    "an unseen writer": "class Store:\n    def writer(self, key):\n        return self._backend.writer(key)\n",
    "a renamed file": "import os\n\nos.replace('part', 'inputs/file')\n",
    "a written file": "from pathlib import Path\n\nPath('inputs/file').write_bytes(b'')\n",
}

WAYS = {
    "a transaction": (
        "async def f(db):\n    async with db.transaction('s.t') as writes:\n        await writes.execute('')\n"
    ),
    "a part of one": "async def f(connection):\n    await connection.execute('')\n",
    "a watched put": (
        "class Store:\n    async def put(self, key):\n"
        "        async with self._watch.change('put', 's', (key,)):\n            await self._backend.put(key, b'')\n"
    ),
}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_writes_past_the_seam(module: str) -> None:
    assert detours((SOURCE / module).read_text(), module) == []


def test_an_object_written_beside_the_backend_is_found() -> None:
    source = "async def f(client):\n    client.put_object(Bucket='b')\n    await obstore.delete_async(store, 'key')\n"

    assert len(detours(source, "blobs/anything.py")) == 2


@pytest.mark.parametrize("source", DETOURS.values(), ids=DETOURS)
def test_a_detour_is_found(source: str) -> None:
    assert len(detours(source, "flow/anything.py")) == 1


@pytest.mark.parametrize("source", WAYS.values(), ids=WAYS)
def test_the_way_through_the_seam_is_no_detour(source: str) -> None:
    assert detours(source, "flow/anything.py") == []


def test_a_stage_is_found_wherever_it_is_named() -> None:
    source = """
async def f(db, store, statement):
    async with self._db.transaction("s.transaction"), db.driver_transaction("s.driver"):
        await db.fetch("s.fetch", SQL["x"], {})
        await statement.fetch(db, "s.compiled", id=1)
        await store.put("key", b"", stage="s.put")
        await passes(db, "s.passed")

async def passes(db, stage: str):
    await db.fetch(stage, "", {})
"""
    found = {"s.transaction", "s.driver", "s.fetch", "s.compiled", "s.put", "s.passed"}

    assert set(stages_in(source, "m.py")) == found


def test_a_stage_that_cannot_be_read_from_the_code_is_refused() -> None:
    with pytest.raises(SyntaxError, match="literal"):
        list(stages_in("async def f(db, verb):\n    await db.fetch(f'batches.{verb}', '', {})\n", "m.py"))


def test_the_service_names_its_stages_once_each() -> None:
    stages = stages_of()

    assert {"plan.publish", "work.commit", "finish.join", "intake.upload", "schedule.lease"} <= set(stages)
    assert {stage: modules for stage, modules in stages.items() if len(modules) > 1} == {}


def test_every_module_with_leave_to_pass_the_seam_exists() -> None:
    assert [module for module in allowances() if not Path(SOURCE / module).is_file()] == []
