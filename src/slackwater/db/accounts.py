"""Tenants: the customers of the service. For operators; a customer's requests learn their tenant from a key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.dialects.postgresql import insert as upsert

from slackwater.db.audit import record_act
from slackwater.db.session import Database
from slackwater.db.tables import tenants
from slackwater.domain.errors import NotFound, StateConflict
from slackwater.domain.ids import TenantId


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """One customer of the service; limits of None are the service's own."""

    id: TenantId
    name: str
    weight: float
    """Share of contended capacity, relative to the other tenants."""
    max_lines: int | None
    max_input_bytes: int | None
    created_at: datetime


async def create_tenant(
    db: Database,
    *,
    tenant_id: TenantId,
    name: str,
    actor: str,
    weight: float = 1.0,
    max_lines: int | None = None,
    max_input_bytes: int | None = None,
) -> Tenant:
    """Add a tenant. Raises StateConflict when the name is taken."""
    limits = {"weight": weight, "max_lines": max_lines, "max_input_bytes": max_input_bytes}
    statement = upsert(tenants).values(id=tenant_id, name=name, **limits).on_conflict_do_nothing().returning(tenants)
    async with db.transaction("accounts.create_tenant") as connection:
        row = (await connection.execute(statement)).mappings().one_or_none()
        if row is None:
            raise StateConflict(f"there is already a tenant named {name!r}", param="name")
        await record_act(connection, actor=actor, action="tenant.create", subject=tenant_id)
    return _tenant(row)


async def list_tenants(db: Database) -> list[Tenant]:
    """Return every tenant, oldest first."""
    async with db.transaction("accounts.list_tenants") as connection:
        rows = (await connection.execute(select(tenants).order_by(tenants.c.id))).mappings().all()
    return [_tenant(row) for row in rows]


async def find_tenant(db: Database, name_or_id: str) -> Tenant:
    """Return the tenant of this name or id. Raises NotFound."""
    named = or_(tenants.c.id == name_or_id, tenants.c.name == name_or_id)
    statement = select(tenants).where(named).order_by(tenants.c.id != name_or_id).limit(1)
    async with db.transaction("accounts.find_tenant") as connection:
        row = (await connection.execute(statement)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no tenant {name_or_id!r}", param="tenant")
    return _tenant(row)


def _tenant(row: Mapping[Any, Any]) -> Tenant:
    return Tenant(**row)
