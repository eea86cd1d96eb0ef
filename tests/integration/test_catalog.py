"""Models, aliases and workers in a real database."""

import uuid

import pytest

from slackwater.db import catalog
from slackwater.db.session import Database
from slackwater.domain.errors import NotFound, StateConflict


async def new_worker(db: Database, name: str, *, models: list[str], silent_seconds: float = 0) -> None:
    await db.fetch(
        "test",
        "INSERT INTO workers (id, incarnation, models, slots, heartbeat_at)"
        " VALUES (%(id)s, %(incarnation)s, %(models)s, 8, now() - make_interval(secs => %(silent)s))",
        {"id": name, "incarnation": uuid.uuid4(), "models": models, "silent": silent_seconds},
    )


async def names(db: Database) -> list[str]:
    return [each.name for each in await catalog.list_names(db)]


async def test_a_model_is_known_by_its_id_and_its_aliases(db: Database) -> None:
    await catalog.add_model(db, model_id="org/small", actor="test", max_model_len=2048)
    await catalog.add_alias(db, alias="gpt-4.1-mini", model_id="org/small", actor="test")

    assert await names(db) == ["gpt-4.1-mini", "org/small"]
    found = await catalog.find_name(db, "gpt-4.1-mini")
    assert found is not None
    assert found.max_model_len == 2048
    assert await catalog.find_name(db, "gpt-4") is None


async def test_adding_a_model_again_changes_what_is_said_and_keeps_the_rest(db: Database) -> None:
    await catalog.add_model(db, model_id="small", actor="test", max_model_len=2048, endpoints=["/v1/embeddings"])
    await catalog.add_model(db, model_id="small", actor="test", max_model_len=4096)

    (model,) = await catalog.list_models(db)

    assert (model.max_model_len, model.endpoints) == (4096, ("/v1/embeddings",))


async def test_a_model_announced_by_a_worker_becomes_the_operators(db: Database) -> None:
    await db.fetch("test", "INSERT INTO models (id, registered_by) VALUES ('small', 'worker')", {})
    await catalog.add_model(db, model_id="small", actor="test")

    (model,) = await catalog.list_models(db)

    assert model.registered_by == "operator"


async def test_an_alias_moves_to_another_model(db: Database) -> None:
    for model_id in ("small", "large"):
        await catalog.add_model(db, model_id=model_id, actor="test")
    await catalog.add_alias(db, alias="best", model_id="small", actor="test")
    await catalog.add_alias(db, alias="best", model_id="large", actor="test")

    assert {model.id: model.aliases for model in await catalog.list_models(db)} == {"large": ("best",), "small": ()}


async def test_an_alias_and_a_model_never_share_a_name(db: Database) -> None:
    for model_id in ("small", "large"):
        await catalog.add_model(db, model_id=model_id, actor="test")
    await catalog.add_alias(db, alias="best", model_id="small", actor="test")

    with pytest.raises(StateConflict, match="large"):
        await catalog.add_alias(db, alias="large", model_id="small", actor="test")
    with pytest.raises(StateConflict, match="best"):
        await catalog.add_model(db, model_id="best", actor="test")


async def test_an_alias_needs_a_model(db: Database) -> None:
    with pytest.raises(NotFound, match="large"):
        await catalog.add_alias(db, alias="best", model_id="large", actor="test")


async def test_a_removed_model_takes_its_aliases_along(db: Database) -> None:
    await catalog.add_model(db, model_id="small", actor="test")
    await catalog.add_alias(db, alias="best", model_id="small", actor="test")

    await catalog.remove_model(db, name="small", actor="test")

    assert await names(db) == []
    with pytest.raises(NotFound, match="small"):
        await catalog.remove_model(db, name="small", actor="test")


async def test_removing_an_alias_leaves_its_model(db: Database) -> None:
    await catalog.add_model(db, model_id="small", actor="test")
    await catalog.add_alias(db, alias="best", model_id="small", actor="test")

    await catalog.remove_model(db, name="best", actor="test")

    assert await names(db) == ["small"]


async def test_only_workers_heard_from_count_as_live(db: Database) -> None:
    await catalog.add_model(db, model_id="small", actor="test")
    await new_worker(db, "one", models=["small", "other"])
    await new_worker(db, "two", models=["small"], silent_seconds=31)

    (model,) = await catalog.list_models(db)

    assert model.live_workers == 1
    assert [(worker.id, worker.alive) for worker in await catalog.list_workers(db)] == [("one", True), ("two", False)]


async def test_a_worker_is_drained_and_taken_back(db: Database) -> None:
    await new_worker(db, "one", models=["small"])

    await catalog.set_draining(db, worker_id="one", draining=True, actor="test")
    assert [worker.draining for worker in await catalog.list_workers(db)] == [True]

    await catalog.set_draining(db, worker_id="one", draining=False, actor="test")
    assert [worker.draining for worker in await catalog.list_workers(db)] == [False]
    with pytest.raises(NotFound, match="two"):
        await catalog.set_draining(db, worker_id="two", draining=True, actor="test")
