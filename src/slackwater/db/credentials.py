"""API keys, and who holds them.

A secret is ``sk-slw-`` and 43 characters: 32 random bytes in base64's URL-safe alphabet. It exists in the answer of
:func:`create_key` and nowhere else; the table holds its SHA-256, which is enough for 256 random bits (a slow hash is
for passwords that people choose). The prefix is kept so that people can tell their keys apart.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import Select, bindparam, func, insert, literal, or_, select, update

from slackwater.db.audit import record_act
from slackwater.db.compiled import compile_statement
from slackwater.db.session import Database
from slackwater.db.tables import api_keys, tenants
from slackwater.domain.errors import NotFound
from slackwater.domain.ids import KeyId, TenantId

Role = Literal["tenant", "operator"]

SECRET_PREFIX: Final = "sk-slw-"  # noqa: S105 - what every secret begins with
SECRET_RANDOM_BYTES: Final = 32
_SHOWN_CHARACTERS: Final = len(SECRET_PREFIX) + 4
_USE_IS_NOTED_EVERY: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who makes a request: the only source of a tenant id in the HTTP API."""

    tenant_id: TenantId
    key_id: KeyId
    role: Role


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """One key as people may see it: without its secret."""

    id: KeyId
    tenant_id: TenantId
    tenant_name: str
    prefix: str
    """The first characters of the secret."""
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """Right to a minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CreatedKey:
    """A new key and its secret, which cannot be shown again."""

    key: ApiKey
    secret: str


def key_secret(random_bytes: bytes) -> str:
    """Format a secret from 32 random bytes. Raises ValueError for any other number of them."""
    if len(random_bytes) != SECRET_RANDOM_BYTES:
        raise ValueError(f"a key is made of {SECRET_RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    return SECRET_PREFIX + base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def create_key(
    db: Database,
    *,
    key_id: KeyId,
    tenant_id: TenantId,
    random_bytes: bytes,
    actor: str,
    role: Role = "tenant",
    expires_at: datetime | None = None,
) -> CreatedKey:
    """Add a key to a tenant and return it with its secret. ``expires_at`` of None: never. Raises NotFound."""
    secret = key_secret(random_bytes)
    values = {
        "id": literal(key_id),
        "tenant_id": tenants.c.id,
        "sha256": literal(_digest(secret)),
        "prefix": literal(secret[:_SHOWN_CHARACTERS]),
        "role": literal(role),
        "expires_at": literal(expires_at, api_keys.c.expires_at.type),
    }
    owner = select(*values.values()).where(tenants.c.id == tenant_id)
    statement = insert(api_keys).from_select(list(values), owner).returning(api_keys.c.id)
    async with db.transaction("accounts.create_key") as connection:
        if (await connection.execute(statement)).one_or_none() is None:
            raise NotFound(f"there is no tenant {tenant_id!r}", param="tenant")
        await record_act(connection, actor=actor, action="key.create", subject=key_id)
        row = (await connection.execute(_shown_keys().where(api_keys.c.id == key_id))).mappings().one()
    return CreatedKey(key=_key(row), secret=secret)


async def list_keys(db: Database, *, tenant_id: TenantId | None = None) -> list[ApiKey]:
    """Return the keys of one tenant, or of all, oldest first; revoked and expired ones included."""
    statement = _shown_keys()
    if tenant_id is not None:
        statement = statement.where(api_keys.c.tenant_id == tenant_id)
    async with db.transaction("accounts.list_keys") as connection:
        rows = (await connection.execute(statement)).mappings().all()
    return [_key(row) for row in rows]


async def revoke_key(db: Database, *, key_id: KeyId, actor: str) -> bool:
    """End a key at once and for good; False when it was revoked before. Raises NotFound."""
    revoke = (
        update(api_keys)
        .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(api_keys.c.id)
    )
    async with db.transaction("accounts.revoke_key") as connection:
        if (await connection.execute(revoke)).one_or_none() is not None:
            await record_act(connection, actor=actor, action="key.revoke", subject=key_id)
            return True
        known = (await connection.execute(select(api_keys.c.id).where(api_keys.c.id == key_id))).one_or_none()
    if known is None:
        raise NotFound(f"there is no key {key_id!r}", param="key")
    return False


async def authenticate(db: Database, secret: str) -> Caller | None:
    """Return who holds this secret; None when it is unknown, revoked or expired. One statement.

    The key's last use is noted at most once a minute, so that a busy key is not an update a request.
    """
    rows = await _HOLDER.fetch(db, "auth", digest=_digest(secret))
    return Caller(tenant_id=rows[0].tenant_id, key_id=rows[0].id, role=rows[0].role) if rows else None


def _holder() -> Select[Any]:
    """Select who holds the key of a digest, and note its use."""
    found = (
        select(api_keys.c.id, api_keys.c.tenant_id, api_keys.c.role)
        .where(
            api_keys.c.sha256 == bindparam("digest"),
            api_keys.c.revoked_at.is_(None),
            or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > func.now()),
        )
        .cte("found")
    )
    # The condition on the last use stands on the table itself: a request that waited for another's row lock sees
    # that the use is noted already.
    noted = (
        update(api_keys)
        .where(
            api_keys.c.id == found.c.id,
            or_(api_keys.c.last_used_at.is_(None), api_keys.c.last_used_at < func.now() - _USE_IS_NOTED_EVERY),
        )
        .values(last_used_at=func.now())
        .returning(api_keys.c.id)
        .cte("noted")
    )
    return select(found.c.id, found.c.tenant_id, found.c.role).add_cte(noted)


_HOLDER: Final = compile_statement(_holder())
"""Asked with every request."""


def _shown_keys() -> Select[Any]:
    """Select keys as people may see them, oldest first."""
    shown = [column for column in api_keys.c if column.name != "sha256"]
    joined = api_keys.join(tenants, tenants.c.id == api_keys.c.tenant_id)
    return select(*shown, tenants.c.name.label("tenant_name")).select_from(joined).order_by(api_keys.c.id)


def _key(row: Mapping[Any, Any]) -> ApiKey:
    return ApiKey(**row)
