"""What a restored database must forget: who held what when it was backed up."""

from slackwater.db.queue.statements import SQL
from slackwater.db.snapshot import Load


async def end_holdings(load: Load) -> int:
    """Take every lease and claim from its holder, whoever may still live; returns how many chunks wait again."""
    await load.run(SQL["restore_claims"])
    await load.run(SQL["restore_workers"])
    return await load.run(SQL["restore_leases"])
