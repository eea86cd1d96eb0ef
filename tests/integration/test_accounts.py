"""Tenants and keys in a real database."""

import asyncio
import hashlib
import uuid
from datetime import timedelta

import pytest

from slackwater.db import accounts, credentials
from slackwater.db.session import Database
from slackwater.domain import ids
from slackwater.domain.errors import NotFound, StateConflict

SECRET_BYTES = bytes(range(32))


async def new_tenant(db: Database, name: str) -> accounts.Tenant:
    return await accounts.create_tenant(db, tenant_id=ids.tenant_id(uuid.uuid4()), name=name, actor="test")


async def new_key(db: Database, tenant: accounts.Tenant, random_bytes: bytes = SECRET_BYTES) -> credentials.CreatedKey:
    return await credentials.create_key(
        db, key_id=ids.key_id(uuid.uuid4()), tenant_id=tenant.id, random_bytes=random_bytes, actor="test"
    )


async def execute(db: Database, statement: str, **params: object) -> None:
    await db.fetch("test", statement, params)


async def value(db: Database, statement: str) -> object:
    return (await db.fetch("test", statement, {}))[0][0]


async def test_a_key_is_shown_once_and_stored_as_a_hash(db: Database) -> None:
    created = await new_key(db, await new_tenant(db, "acme"))

    assert created.secret.startswith("sk-slw-")
    assert len(created.secret) == len("sk-slw-") + 43
    assert created.secret.startswith(created.key.prefix)
    stored = await db.fetch("test", "SELECT * FROM api_keys", {})
    assert stored[0].sha256 == hashlib.sha256(created.secret.encode()).digest()
    assert created.secret not in repr(stored)
    assert created.secret not in repr(created.key)


async def test_a_secret_names_its_tenant_and_role(db: Database) -> None:
    tenant = await new_tenant(db, "acme")
    created = await new_key(db, tenant)

    caller = await credentials.authenticate(db, created.secret)

    assert caller == credentials.Caller(tenant_id=tenant.id, key_id=created.key.id, role="tenant")
    assert await credentials.authenticate(db, created.secret + "x") is None


async def test_a_revoked_key_opens_nothing_from_then_on(db: Database) -> None:
    created = await new_key(db, await new_tenant(db, "acme"))

    assert await credentials.revoke_key(db, key_id=created.key.id, actor="test")
    assert not await credentials.revoke_key(db, key_id=created.key.id, actor="test")

    assert await credentials.authenticate(db, created.secret) is None


async def test_an_expired_key_opens_nothing(db: Database) -> None:
    created = await new_key(db, await new_tenant(db, "acme"))
    await execute(db, "UPDATE api_keys SET expires_at = now() - interval '1 second'")

    assert await credentials.authenticate(db, created.secret) is None


async def test_a_busy_key_notes_its_use_at_most_once_a_minute(db: Database) -> None:
    created = await new_key(db, await new_tenant(db, "acme"))

    await asyncio.gather(*[credentials.authenticate(db, created.secret) for _ in range(5)])
    first = await value(db, "SELECT last_used_at FROM api_keys")
    await credentials.authenticate(db, created.secret)
    assert await value(db, "SELECT last_used_at FROM api_keys") == first

    await execute(db, "UPDATE api_keys SET last_used_at = now() - interval '61 seconds'")
    await credentials.authenticate(db, created.secret)
    assert await value(db, "SELECT now() - last_used_at < interval '5 seconds' FROM api_keys")


async def test_lists_show_every_tenant_and_the_keys_asked_for(db: Database) -> None:
    acme, globex = await new_tenant(db, "acme"), await new_tenant(db, "globex")
    of_acme = await new_key(db, acme)
    await new_key(db, globex, bytes(32))

    assert {each.name for each in await accounts.list_tenants(db)} == {"acme", "globex"}
    assert await credentials.list_keys(db, tenant_id=acme.id) == [of_acme.key]
    assert len(await credentials.list_keys(db)) == 2


async def test_a_tenant_is_found_by_name_and_by_id(db: Database) -> None:
    acme = await new_tenant(db, "acme")

    assert await accounts.find_tenant(db, "acme") == await accounts.find_tenant(db, acme.id) == acme
    with pytest.raises(NotFound, match="globex"):
        await accounts.find_tenant(db, "globex")


async def test_a_name_is_taken_once(db: Database) -> None:
    await new_tenant(db, "acme")

    with pytest.raises(StateConflict, match="acme"):
        await new_tenant(db, "acme")


async def test_a_key_needs_a_tenant(db: Database) -> None:
    with pytest.raises(NotFound, match="no tenant"):
        await credentials.create_key(
            db,
            key_id=ids.key_id(uuid.uuid4()),
            tenant_id=ids.tenant_id(uuid.uuid4()),
            random_bytes=SECRET_BYTES,
            actor="test",
        )


async def test_an_expiry_is_kept(db: Database) -> None:
    tenant = await new_tenant(db, "acme")
    expires_at = tenant.created_at + timedelta(days=1)

    created = await credentials.create_key(
        db,
        key_id=ids.key_id(uuid.uuid4()),
        tenant_id=tenant.id,
        random_bytes=SECRET_BYTES,
        actor="test",
        role="operator",
        expires_at=expires_at,
    )

    assert (created.key.expires_at, created.key.role) == (expires_at, "operator")


async def test_what_operators_do_is_on_record(db: Database) -> None:
    created = await new_key(db, await new_tenant(db, "acme"))
    await credentials.revoke_key(db, key_id=created.key.id, actor="ann")

    acts = await db.fetch("test", "SELECT actor, action, subject FROM audit_log ORDER BY id", {})

    assert [act.action for act in acts] == ["tenant.create", "key.create", "key.revoke"]
    assert tuple(acts[-1]) == ("ann", "key.revoke", created.key.id)
