"""Sweeping stands back while a backup or a restore runs."""

from collections.abc import Awaitable, Callable

from slackwater.db.sweep_hold import sweep_allowed


def unless_held(once: Callable[[], Awaitable[bool]], database_url: str) -> Callable[[], Awaitable[bool]]:
    """Return a pass that finds nothing to do while deletions are held off; none begins to be while it runs."""

    async def gated() -> bool:
        async with sweep_allowed(database_url) as allowed:
            return allowed and await once()

    return gated
