"""The crash points: before and after every stage that writes in a running role, and which scenario drives it there."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

When = Literal["before", "after"]


class Point(NamedTuple):
    """One place at which a process may die."""

    when: When
    stage: str

    def __str__(self) -> str:
        return f"{self.when}:{self.stage}"


DRIVEN: Final[Mapping[str, str]] = {
    "intake.upload": "customer",
    "intake.file": "customer",
    "intake.drop": "customer",
    "intake.batch": "customer",
    "batches.pause": "customer",
    "batches.resume": "customer",
    "batches.cancel": "customer",
    "files.delete": "customer",
    "plan.claim": "whole",
    "plan.index": "whole",
    "plan.write": "whole",
    "plan.publish": "whole",
    "plan.errors": "tolerant",
    "plan.fail": "refused",
    "plan.drop": "cancelled",
    "claim.renew": "long_claim",
    "claim.release": "stopped_planner",
    "schedule.elect": "whole",
    "schedule.lease": "whole",
    "schedule.save_tags": "whole",
    "schedule.reap": "dead_worker",
    "finish.claim": "whole",
    "finish.join": "whole",
    "finish.end": "whole",
    "finish.expire": "expired",
    "finish.revoke": "expired",
    "finish.lease": "expired",
    "finish.errors": "expired",
    "finish.rerun": "part_gone",
    "finish.stand_in": "part_gone_for_good",
    "finish.replace": "part_gone_for_good",
    "finish.fail": "given_up",
    "sweep.expire_files": "swept",
    "sweep.file": "swept",
    "sweep.purged": "swept",
    "sweep.batch": "swept",
    "sweep.chunks": "swept",
    "sweep.segment": "swept",
    "sweep.segments": "swept",
    "sweep.orphan": "swept",
    "sweep.repeats": "swept",
    "sweep.workers": "swept",
    "work.announce": "worker",
    "work.register": "worker",
    "work.sync": "worker",
    "work.part": "worker",
    "work.commit": "worker",
    "work.learn": "worker",
    "work.segment": "worker",
    "work.checkpoint": "worker",
    "work.forget_segment": "damaged_segment",
    "work.release": "stopped_worker",
    "work.leave": "stopped_worker",
}
"""The scenario (``scenarios``) that takes a process to each stage that writes."""

READS: Final = frozenset(
    {
        "audit.batch",
        "audit.ledger",
        "audit.pointers",
        "auth",
        "batches.get",
        "batches.list",
        "files.get",
        "files.list",
        "finish.lost",
        "finish.parts",
        "finish.unrun",
        "ping",
        "plan.models",
        "readyz",
        "schedule.load_tags",
        "schedule.openings",
        "schedule.runnable",
        "sweep.batches",
        "sweep.needed",
        "sweep.purgeable",
        "sweep.referenced",
        "sweep.spent",
        "view",
        "work.committed",
        "work.history",
        "work.segments",
    }
)
"""A crash at one of these is a crash after the write before it: they change nothing."""

COMMANDS: Final = frozenset(
    {
        "accounts.create_key",
        "accounts.create_tenant",
        "accounts.find_tenant",
        "accounts.list_keys",
        "accounts.list_tenants",
        "accounts.revoke_key",
        "backup.object",
        "catalog.add_alias",
        "catalog.add_model",
        "catalog.drain",
        "catalog.find_name",
        "catalog.list_models",
        "catalog.list_names",
        "catalog.list_workers",
        "catalog.remove_model",
        "diagnosis.leader",
        "diagnosis.server",
        "doctor.delete",
        "doctor.put",
        "restore.object",
    }
)
"""An operator's command ends with its process. It is one transaction, or, as a backup, given again from its start."""

REPRESENTATIVE: Final = (
    Point("before", "intake.file"),
    Point("after", "intake.batch"),
    Point("after", "plan.write"),
    Point("before", "plan.publish"),
    Point("after", "plan.publish"),
    Point("after", "schedule.lease"),
    Point("after", "work.part"),
    Point("before", "work.commit"),
    Point("after", "work.commit"),
    Point("after", "work.segment"),
    Point("after", "finish.join"),
    Point("before", "finish.end"),
    Point("after", "finish.end"),
    Point("before", "sweep.chunks"),
)
"""What every run of the suite tries; ``make crashes`` tries all."""


def points() -> Iterator[Point]:
    """Yield every crash point, in the order of the table."""
    for stage in DRIVEN:
        yield Point("before", stage)
        yield Point("after", stage)
