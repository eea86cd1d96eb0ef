"""The weighted fair policy: shares, order, room."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.ids import BatchId, TenantId, WorkerId
from slackwater.domain.policy import EXPRESS_LINES, FairShare, Grant, Opening, Runnable

INCARNATION = uuid.UUID(int=1)


def opening(
    worker: str = "w", *, free: int = 10_000, express: bool = True, models: frozenset[str] | None = None
) -> Opening:
    return Opening(
        worker_id=WorkerId(worker),
        incarnation=INCARNATION,
        models=models or frozenset({"m"}),
        free_lines=free,
        express=express,
    )


def runnable(
    batch: str,
    *,
    tenant: str = "t",
    weight: float = 1.0,
    deadline: float = 0.0,
    chunks: int = 4,
    lines: int = 100,
    model: str = "m",
    cost: float = 1.0,
) -> Runnable:
    return Runnable(
        batch_id=BatchId(batch),
        tenant_id=TenantId(tenant),
        weight=weight,
        deadline=deadline,
        model=model,
        seqs=tuple(range(chunks)),
        lines=(lines,) * chunks,
        costs=(cost,) * chunks,
    )


def batches(grants: list[Grant]) -> list[str]:
    return [grant.batch_id for grant in grants]


def test_one_tenants_batches_run_by_deadline() -> None:
    waiting = [runnable("late", deadline=9.0, chunks=2), runnable("soon", deadline=1.0, chunks=2)]
    assert batches(FairShare({}).grant(waiting, [opening()], limit=64)) == ["soon", "soon", "late", "late"]


def test_chunks_of_a_batch_run_in_plan_order() -> None:
    grants = FairShare({}).grant([runnable("b", chunks=3)], [opening()], limit=64)
    assert [grant.seq for grant in grants] == [0, 1, 2]


def test_equal_tenants_take_turns() -> None:
    waiting = [runnable("a", tenant="a"), runnable("b", tenant="b")]
    assert batches(FairShare({}).grant(waiting, [opening()], limit=6)) == ["a", "b", "a", "b", "a", "b"]


def test_a_tenant_of_twice_the_weight_gets_twice_the_service() -> None:
    waiting = [runnable("a", tenant="a", weight=2.0, chunks=60), runnable("b", tenant="b", chunks=60)]
    granted = batches(FairShare({}).grant(waiting, [opening()], limit=60))
    assert (granted.count("a"), granted.count("b")) == (40, 20)


def test_idleness_earns_no_credit() -> None:
    policy = FairShare({})
    policy.grant([runnable("a", tenant="a", chunks=50)], [opening()], limit=50)
    both = [runnable("a", tenant="a", chunks=50), runnable("b", tenant="b", chunks=50)]
    granted = batches(policy.grant(both, [opening()], limit=20))
    assert abs(granted.count("a") - granted.count("b")) <= 1


def test_tags_outlive_the_policy() -> None:
    tags: dict[tuple[str, str], float] = {}
    FairShare(tags).grant([runnable("a", tenant="a", chunks=10)], [opening()], limit=10)
    assert tags == {("a", "m"): 10.0}
    both = [runnable("a", tenant="a"), runnable("b", tenant="b")]
    assert batches(FairShare({("a", "m"): 10.0, ("b", "m"): 0.0}).grant(both, [opening()], limit=4)) == ["b"] * 4


def test_no_worker_is_given_more_than_its_room_and_one_chunk() -> None:
    grants = FairShare({}).grant([runnable("b", chunks=10)], [opening(free=250)], limit=64)
    assert len(grants) == 3


def test_the_worker_with_the_most_room_goes_first() -> None:
    grants = FairShare({}).grant([runnable("b", chunks=4)], [opening("x", free=150), opening("y", free=350)], limit=64)
    assert [grant.worker_id for grant in grants] == ["y", "y", "x", "y"]


def test_a_full_worker_takes_one_small_chunk_on_its_express_slot() -> None:
    small = runnable("small", tenant="s", chunks=2, lines=EXPRESS_LINES)
    large = runnable("large", tenant="l")
    assert batches(FairShare({}).grant([large, small], [opening(free=0)], limit=64)) == ["small"]
    assert FairShare({}).grant([large, small], [opening(free=0, express=False)], limit=64) == []


def test_a_worker_gets_only_its_own_models() -> None:
    waiting = [runnable("a", model="a"), runnable("b", model="b")]
    assert set(batches(FairShare({}).grant(waiting, [opening(models=frozenset({"b"}))], limit=64))) == {"b"}


def test_the_room_of_a_worker_is_shared_by_its_models() -> None:
    waiting = [runnable("a", model="a"), runnable("b", model="b")]
    grants = FairShare({}).grant(waiting, [opening(free=100, express=False, models=frozenset({"a", "b"}))], limit=64)
    assert len(grants) == 1


def test_the_limit_holds_over_all_models() -> None:
    waiting = [runnable("a", model="a"), runnable("b", model="b")]
    assert len(FairShare({}).grant(waiting, [opening(models=frozenset({"a", "b"}))], limit=5)) == 5


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0.5, 4.0), st.floats(0, 1e6), st.integers(1, 8), st.integers(1, 300)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(-50, 2000), min_size=1, max_size=5),
    st.integers(0, 64),
)
def test_no_chunk_is_granted_twice_and_no_limit_is_passed(
    shapes: list[tuple[int, float, float, int, int]], rooms: list[int], limit: int
) -> None:
    weights = {tenant: weight for tenant, weight, *_ in shapes}
    waiting = [
        runnable(f"b{n}", tenant=f"t{tenant}", weight=weights[tenant], deadline=deadline, chunks=chunks, lines=lines)
        for n, (tenant, _, deadline, chunks, lines) in enumerate(shapes)
    ]
    openings = [opening(f"w{n}", free=free) for n, free in enumerate(rooms)]
    grants = FairShare({}).grant(waiting, openings, limit=limit)
    assert len({(grant.batch_id, grant.seq) for grant in grants}) == len(grants) <= limit
    lines_of = {one.batch_id: one.lines[0] for one in waiting}
    for n, free in enumerate(rooms):
        given_lines = [lines_of[grant.batch_id] for grant in grants if grant.worker_id == f"w{n}"]
        # The last chunk may go beyond the room; before it there was room.
        assert sum(given_lines[:-1]) < max(free, 1)


@given(st.lists(st.floats(0.5, 4.0), min_size=2, max_size=4), st.integers(20, 64))
def test_busy_tenants_are_served_by_weight_within_one_chunk(weights: list[float], rounds: int) -> None:
    waiting = [runnable(f"b{n}", tenant=f"t{n}", weight=w, chunks=64) for n, w in enumerate(weights)]
    granted = batches(FairShare({}).grant(waiting, [opening(free=10**9)], limit=rounds))
    service = [granted.count(f"b{n}") / weight for n, weight in enumerate(weights)]
    # Start-time fair queueing: two busy tenants never differ by more than one chunk of each.
    assert max(service) - min(service) <= 2 / min(weights) + 1e-9
