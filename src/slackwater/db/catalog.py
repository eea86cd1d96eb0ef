"""Which models are known, under which names, and the workers that run them. Operators' business; customers see names.

A model is known once an operator added it or a worker ever announced it, until an operator removes it. Lines of a known
model without a live worker wait.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, union_all, update
from sqlalchemy.dialects.postgresql import aggregate_order_by, array
from sqlalchemy.dialects.postgresql import insert as upsert

from slackwater.db.audit import record_act
from slackwater.db.session import Database
from slackwater.db.tables import model_aliases, models, workers
from slackwater.domain.errors import NotFound, StateConflict

_ALIVE: Final = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelName:
    """One name that a customer may write, served id or alias."""

    name: str
    created_at: datetime
    max_model_len: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One model as an operator sees it."""

    id: str
    endpoints: tuple[str, ...] | None
    """Where its lines may go; None: anywhere."""
    max_model_len: int | None
    registered_by: str
    """``operator`` or ``worker``."""
    aliases: tuple[str, ...]
    live_workers: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One worker as an operator sees it."""

    id: str
    models: tuple[str, ...]
    slots: int
    in_flight: int
    engine_ready: bool
    draining: bool
    alive: bool
    """Whether it was heard from in the last half minute."""
    lines_per_second: float | None
    started_at: datetime
    heartbeat_at: datetime


async def add_model(
    db: Database,
    *,
    model_id: str,
    actor: str,
    endpoints: Collection[str] | None = None,
    max_model_len: int | None = None,
) -> None:
    """Make a model known, or change one that is; None leaves what is known. Raises StateConflict for an alias."""
    row = upsert(models).values(
        id=model_id,
        endpoints=None if endpoints is None else sorted(endpoints),
        max_model_len=max_model_len,
        registered_by="operator",
    )
    statement = row.on_conflict_do_update(
        index_elements=[models.c.id],
        set_={
            "endpoints": func.coalesce(row.excluded.endpoints, models.c.endpoints),
            "max_model_len": func.coalesce(row.excluded.max_model_len, models.c.max_model_len),
            "registered_by": "operator",
        },
    )
    async with db.transaction("catalog.add_model") as connection:
        if (await connection.execute(select(exists().where(model_aliases.c.alias == model_id)))).scalar_one():
            raise StateConflict(f"{model_id!r} is an alias; remove the alias first", param="model")
        await connection.execute(statement)
        await record_act(connection, actor=actor, action="model.add", subject=model_id)


async def add_alias(db: Database, *, alias: str, model_id: str, actor: str) -> None:
    """Let ``alias`` stand for a model; an alias that exists is pointed at the new one.

    Raises NotFound for an unknown model and StateConflict where the alias is itself a model's id.
    """
    row = upsert(model_aliases).values(alias=alias, model_id=model_id)
    statement = row.on_conflict_do_update(
        index_elements=[model_aliases.c.alias], set_={"model_id": row.excluded.model_id}
    )
    async with db.transaction("catalog.add_alias") as connection:
        ids = select(models.c.id).where(models.c.id.in_([alias, model_id])).with_for_update(read=True)
        known = set((await connection.execute(ids)).scalars())
        if alias in known:
            raise StateConflict(f"{alias!r} is the id of a model; an alias must be another name", param="alias")
        if model_id not in known:
            raise NotFound(f"there is no model {model_id!r}", param="model")
        await connection.execute(statement)
        await record_act(connection, actor=actor, action="model.alias", subject=f"{alias} -> {model_id}")


async def remove_model(db: Database, *, name: str, actor: str) -> None:
    """Forget a model with its aliases, or one alias. Raises NotFound. A worker that restarts announces it again."""
    async with db.transaction("catalog.remove_model") as connection:
        gone = await connection.execute(delete(model_aliases).where(model_aliases.c.alias == name))
        if not gone.rowcount:
            gone = await connection.execute(delete(models).where(models.c.id == name))
        if not gone.rowcount:
            raise NotFound(f"there is no model or alias {name!r}", param="model")
        await record_act(connection, actor=actor, action="model.remove", subject=name)


async def list_models(db: Database) -> list[Model]:
    """Return every known model with its aliases and live workers, by id."""
    aliases = (
        select(func.array_agg(aggregate_order_by(model_aliases.c.alias, model_aliases.c.alias)))
        .where(model_aliases.c.model_id == models.c.id)
        .scalar_subquery()
    )
    serving = (
        select(func.count())
        .select_from(workers)
        .where(workers.c.models.contains(array([models.c.id])), _alive())
        .scalar_subquery()
    )
    statement = select(
        models.c.id,
        models.c.endpoints,
        models.c.max_model_len,
        models.c.registered_by,
        models.c.created_at,
        aliases.label("aliases"),
        serving.label("live_workers"),
    ).order_by(models.c.id)
    async with db.transaction("catalog.list_models") as connection:
        rows = (await connection.execute(statement)).mappings().all()
    return [_model(row) for row in rows]


async def list_names(db: Database) -> list[ModelName]:
    """Return every name a line may carry, by name."""
    async with db.transaction("catalog.list_names") as connection:
        rows = (await connection.execute(_names().order_by("name"))).mappings().all()
    return [ModelName(**row) for row in rows]


async def find_name(db: Database, name: str) -> ModelName | None:
    """Return one name a line may carry; None when it is not known."""
    names = _names().subquery()
    async with db.transaction("catalog.find_name") as connection:
        found = await connection.execute(select(names).where(names.c.name == name))
        row = found.mappings().one_or_none()
    return None if row is None else ModelName(**row)


async def list_workers(db: Database) -> list[Worker]:
    """Return every worker that registered and was not forgotten yet, by id."""
    columns = [workers.c[name] for name in Worker.__dataclass_fields__ if name != "alive"]
    statement = select(*columns, _alive().label("alive")).order_by(workers.c.id)
    async with db.transaction("catalog.list_workers") as connection:
        rows = (await connection.execute(statement)).mappings().all()
    return [Worker(**{**row, "models": tuple(row["models"])}) for row in rows]


async def set_draining(db: Database, *, worker_id: str, draining: bool, actor: str) -> None:
    """Let a worker finish what it holds and take nothing new, or take it back into service. Raises NotFound."""
    async with db.transaction("catalog.drain") as connection:
        done = await connection.execute(update(workers).where(workers.c.id == worker_id).values(draining=draining))
        if not done.rowcount:
            raise NotFound(f"there is no worker {worker_id!r}", param="worker")
        action = "worker.drain" if draining else "worker.undrain"
        await record_act(connection, actor=actor, action=action, subject=worker_id)


def _alive() -> ColumnElement[bool]:
    return workers.c.heartbeat_at > func.now() - _ALIVE


def _names() -> Any:
    """Select every name with what it stands for; an id wins over an alias of the same name."""
    ids: Select[Any] = select(models.c.id.label("name"), models.c.created_at, models.c.max_model_len)
    aliases = (
        select(model_aliases.c.alias.label("name"), model_aliases.c.created_at, models.c.max_model_len)
        .join(models, models.c.id == model_aliases.c.model_id)
        .where(model_aliases.c.alias.not_in(select(models.c.id)))
    )
    return union_all(ids, aliases)


def _model(row: Mapping[Any, Any]) -> Model:
    endpoints = row["endpoints"]
    return Model(
        id=row["id"],
        endpoints=None if endpoints is None else tuple(endpoints),
        max_model_len=row["max_model_len"],
        registered_by=row["registered_by"],
        aliases=tuple(row["aliases"] or ()),
        live_workers=row["live_workers"],
        created_at=row["created_at"],
    )
