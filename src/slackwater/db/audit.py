"""The log of what operators did: one row an act, written in the transaction of the act."""

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.db.tables import audit_log


async def record_act(connection: AsyncConnection, *, actor: str, action: str, subject: str) -> None:
    """Append one act, ``record_act(connection, actor="cli", action="key.revoke", subject="key_…")``. Never a secret."""
    await connection.execute(insert(audit_log).values(actor=actor, action=action, subject=subject))
