"""Creating something once although the request that asks for it comes more than once.

Two kinds of repetition are known. An *explicit* one carries the same ``Idempotency-Key``. A *silent* one is an SDK that
sends a POST again because the answer got lost: it carries no such header, but says in ``x-stainless-retry-count`` that
it is a retry; the first request left a row under the hash of its body, and a retry within a minute finds it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from sqlalchemy import Interval, bindparam, case, func, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import ReturningInsert

from slackwater.db.compiled import compile_statement
from slackwater.db.session import DriverTransaction
from slackwater.db.tables import idempotency_keys
from slackwater.domain.errors import BadRequest
from slackwater.domain.ids import TenantId

Attempt = Literal["explicit", "silent_first", "silent_retry"]

_KEEP: Final[dict[Attempt, timedelta]] = {
    "explicit": timedelta(hours=24),
    "silent_first": timedelta(0),
    "silent_retry": timedelta(minutes=1),
}
"""How old the earlier request may be for this one to be its repetition; a first attempt repeats nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Once:
    """What makes one request recognisable as the repetition of another."""

    route: str
    key: str
    """Unique within tenant, route and kind: the caller's own key, or the API key's id and the body's hash."""
    body_sha256: bytes
    attempt: Attempt


async def claim_once(
    transaction: DriverTransaction, *, tenant_id: TenantId, once: Once, resource_id: str
) -> str | None:
    """Record that this request makes ``resource_id``; or return the id an earlier request made, and record nothing.

    Call it first in the transaction that makes the resource: an equal request that runs at the same time waits here
    until that transaction ends. Raises BadRequest when the same key came with another body.
    """
    (kept,) = await _CLAIM.fetch_in(
        transaction,
        tenant_id=tenant_id,
        route=_route(once),
        key=once.key,
        body_sha256=once.body_sha256,
        resource_id=resource_id,
        keep=_KEEP[once.attempt],
    )
    if kept.resource_id == resource_id:
        return None
    if kept.body_sha256 != once.body_sha256:
        raise BadRequest(
            "This Idempotency-Key was used with another request body. Use a new key for a new request.",
            code="idempotency_key_reused",
        )
    return str(kept.resource_id)


async def reclaim(transaction: DriverTransaction, *, tenant_id: TenantId, once: Once, resource_id: str) -> None:
    """Have an earlier claim stand for another resource from now on, where the one that it made is gone."""
    await _RECLAIM.fetch_in(transaction, tenant_id=tenant_id, route=_route(once), key=once.key, resource_id=resource_id)


def _route(once: Once) -> str:
    return once.route if once.attempt == "explicit" else f"{once.route} (silent)"


def _claim() -> ReturningInsert[tuple[Any, ...]]:
    """Insert a row, or replace one that is older than ``keep``, or leave it; return what stands there now."""
    columns = ("tenant_id", "route", "key", "body_sha256", "resource_id")
    row = upsert(idempotency_keys).values({name: bindparam(name) for name in columns})
    # clock_timestamp(), not now(): the row waited for may be younger than this transaction.
    stale = idempotency_keys.c.created_at <= func.clock_timestamp() - bindparam("keep", type_=Interval)
    replaced = ("body_sha256", "resource_id", "created_at")
    return row.on_conflict_do_update(
        constraint=idempotency_keys.primary_key,
        set_={name: case((stale, row.excluded[name]), else_=idempotency_keys.c[name]) for name in replaced},
    ).returning(idempotency_keys.c.resource_id, idempotency_keys.c.body_sha256)


_CLAIM: Final = compile_statement(_claim())
"""Part of every create, so it is put together once: building it costs more than running it."""

_RECLAIM: Final = compile_statement(
    update(idempotency_keys)
    .where(*(idempotency_keys.c[name] == bindparam(name) for name in ("tenant_id", "route", "key")))
    .values(resource_id=bindparam("resource_id"), created_at=func.clock_timestamp())
)
