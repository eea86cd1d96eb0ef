"""What an operator asks of a database: which server it is, whether it keeps what it commits, and who leads."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from slackwater.db.session import Database

_SERVER = text("""
    SELECT current_setting('server_version_num')::int / 10000 AS major,
           current_setting('server_version') AS version,
           clock_timestamp() AS now,
           pg_is_in_recovery() AS standby,
           current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' AS survives_power_loss,
           current_setting('synchronous_commit') <> 'off' AS waits_for_commits
""")

_LEADER = text("""
    SELECT l.term, l.holder, l.elected_at,
           EXISTS (SELECT 1
                   FROM pg_locks k
                   JOIN pg_stat_activity a ON a.pid = k.pid
                   WHERE k.locktype = 'advisory' AND k.granted AND a.datname = current_database()
                     AND a.application_name = 'slackwater leader') AS alive
    FROM leader l
    WHERE l.id = 1
""")
"""The name is the one that the election's own connection gives itself; everybody may see it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A PostgreSQL server, as far as the service depends on it."""

    major: int
    version: str
    now: datetime
    """The server's clock when it was asked."""
    standby: bool
    """Whether it only follows another server and takes no writes."""
    survives_power_loss: bool
    """Whether what is on its disk is whole after a power cut."""
    waits_for_commits: bool
    """Whether a commit is on its disk when it answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leadership:
    """The newest term of the leader."""

    term: int
    holder: str
    """The process that began it."""
    elected_at: datetime
    alive: bool
    """Whether some process holds the election now."""


async def ask_server(db: Database) -> Server:
    """Return what the server says of itself. Raises DatabaseUnavailable."""
    async with db.transaction("diagnosis.server") as connection:
        row = (await connection.execute(_SERVER)).mappings().one()
    return Server(**row)


async def find_leadership(db: Database) -> Leadership | None:
    """Return the newest term; None where no process ever led. Raises DatabaseUnavailable."""
    async with db.transaction("diagnosis.leader") as connection:
        row = (await connection.execute(_LEADER)).mappings().one_or_none()
    return None if row is None else Leadership(**row)
