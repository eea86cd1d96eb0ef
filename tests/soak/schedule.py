"""What happens in a soak and when: customers' orders and faults, drawn from a seed. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tests.soak.lines import ENDPOINTS, Mixture

TENANTS: Final = {"acme": 1, "globex": 2, "initech": 4}
"""Names and weights."""
WORKERS: Final = 3
CONTROLS: Final = 2

Act = Literal["none", "cancel", "pause", "expire", "delete_input"]
_ACTS: Final[tuple[Act, ...]] = ("cancel", "pause", "expire", "delete_input")


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One batch that a customer asks for, and what else the customer does to it."""

    number: int
    at_seconds: float
    tenant: str
    endpoint: str
    mixture: Mixture
    invalid_lines: str
    act: Act
    act_after_seconds: float

    @property
    def name(self) -> str:
        """A name for its lines."""
        return f"order{self.number:03d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """One kind of fault: whom it befalls, for how long, and how long it takes to get over."""

    target: Literal["worker", "control", "api", "engine", "postgres", "store"]
    shortest_seconds: float
    longest_seconds: float
    settle_seconds: float = 6.0
    """After its end: its target is left alone for so long."""


HAZARDS: Final = {
    # Longer than a lease, and so the first of all: it has to end before the soak does.
    "worker frozen": Hazard(target="worker", shortest_seconds=33.0, longest_seconds=38.0),
    "worker killed": Hazard(target="worker", shortest_seconds=0.0, longest_seconds=5.0),
    "worker stopped": Hazard(target="worker", shortest_seconds=0.0, longest_seconds=5.0),
    "leader killed": Hazard(target="control", shortest_seconds=0.0, longest_seconds=8.0),
    "leader frozen": Hazard(target="control", shortest_seconds=8.0, longest_seconds=15.0),
    "api killed": Hazard(target="api", shortest_seconds=0.0, longest_seconds=3.0),
    "PostgreSQL restarted": Hazard(target="postgres", shortest_seconds=0.0, longest_seconds=3.0),
    "PostgreSQL killed": Hazard(target="postgres", shortest_seconds=0.0, longest_seconds=3.0),
    "connections cut": Hazard(target="postgres", shortest_seconds=0.0, longest_seconds=0.0, settle_seconds=2.0),
    "engine killed": Hazard(target="engine", shortest_seconds=0.0, longest_seconds=0.0, settle_seconds=12.0),
    "engine frozen": Hazard(target="engine", shortest_seconds=3.0, longest_seconds=12.0, settle_seconds=12.0),
    "engine hangs": Hazard(target="engine", shortest_seconds=6.0, longest_seconds=12.0, settle_seconds=12.0),
    "engine full (503)": Hazard(target="engine", shortest_seconds=2.0, longest_seconds=6.0),
    "engine fails (500)": Hazard(target="engine", shortest_seconds=2.0, longest_seconds=6.0),
    "engine talks garbage": Hazard(target="engine", shortest_seconds=2.0, longest_seconds=6.0),
    "store killed": Hazard(target="store", shortest_seconds=0.0, longest_seconds=4.0, settle_seconds=15.0),
    "store silent": Hazard(target="store", shortest_seconds=3.0, longest_seconds=10.0, settle_seconds=8.0),
}
_TARGETS: Final = {"worker": WORKERS, "engine": WORKERS, "control": 1, "api": 1, "postgres": 1, "store": 1}
"""Who leads is known only when the fault comes: the controls are one target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault of the schedule."""

    at_seconds: float
    kind: str
    target: int
    """Which of the workers or engines, from 0."""
    seconds: float
    """How long it lasts: until what was killed is started again, or what was frozen goes on."""

    @property
    def end_seconds(self) -> float:
        """When it is over."""
        return self.at_seconds + self.seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """All that is going to happen, in order."""

    seed: int
    seconds: float
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]


_FIRST_FAULT_SECONDS: Final = 6.0
_SHORTEST_GAP_SECONDS: Final = 4.5
_LONGEST_GAP_SECONDS: Final = 8.0
_SECONDS_PER_ORDER: Final = 10.0
_LEAST_ORDERS: Final = 12
_ORDERS_SHARE: Final = 0.75
"""Of the time: the last orders must be able to end."""
_SIZES: Final = ((1, 3), (10, 3), (60, 4), (200, 5), (500, 3), (1000, 1))
"""Lines of an order, and how often out of the sum."""
_TROUBLE_SHARE: Final = 0.03
_LARGE: Final = 60


def draw(seed: int, seconds: float) -> Schedule:
    """Draw a soak of so many seconds: the same seed and length draw the same."""
    return Schedule(
        seed=seed,
        seconds=seconds,
        orders=tuple(_orders(random.Random(f"orders {seed}"), seconds)),
        faults=tuple(_faults(random.Random(f"faults {seed}"), seconds)),
    )


def _orders(dice: random.Random, seconds: float) -> Iterator[Order]:
    count = max(_LEAST_ORDERS, round(seconds / _SECONDS_PER_ORDER))
    times = sorted(dice.uniform(0, seconds * _ORDERS_SHARE) for _ in range(count))
    # Every act and every kind of bad line is in every soak: each has its turn, on a batch that is large enough for it.
    for number, at in enumerate(times):
        act = _ACTS[number // 3 % len(_ACTS)] if number % 3 == 1 else "none"
        size = _size(dice, least=200 if act != "none" else 1)
        yield Order(
            number=number,
            at_seconds=round(at, 2),
            tenant=dice.choice(tuple(TENANTS)),
            endpoint=dice.choice(ENDPOINTS),
            mixture=_mixture(dice, size, poisoned=number % 6 == 2, invalid=number % 5 == 3),
            invalid_lines=("fail", "error")[number % 2],
            act=act,
            act_after_seconds=round(dice.uniform(1, 8), 2),
        )


def _size(dice: random.Random, *, least: int) -> int:
    sizes = [(size, weight) for size, weight in _SIZES if size >= least]
    most = dice.choices([size for size, _ in sizes], weights=[weight for _, weight in sizes])[0]
    return max(1, round(most * dice.uniform(0.7, 1.0)))


def _mixture(dice: random.Random, size: int, *, poisoned: bool, invalid: bool) -> Mixture:
    size = max(size, _LARGE) if poisoned else size
    trouble = round(size * _TROUBLE_SHARE)
    return Mixture(
        total=size,
        flaky=trouble,
        refused=trouble,
        invalid=min(3, size) if invalid else 0,
        poison=dice.randint(1, 2) if poisoned else 0,
    )


def _faults(dice: random.Random, seconds: float) -> Iterator[Fault]:
    """Deal every hazard once, then all again, as long as there is time; none befalls what is not over another yet."""
    gap = min(_LONGEST_GAP_SECONDS, max(_SHORTEST_GAP_SECONDS, seconds / 70))
    free_at: dict[tuple[str, int], float] = {}
    deck: list[str] = []
    at = _FIRST_FAULT_SECONDS
    while at < seconds:
        if not deck:
            longest, *others = HAZARDS
            dice.shuffle(others)
            deck = [*reversed(others), longest]
        fault = _deal(dice, deck, free_at, at, seconds)
        if fault is not None:
            hazard = HAZARDS[fault.kind]
            free_at[hazard.target, fault.target] = fault.end_seconds + hazard.settle_seconds
            yield fault
        at += gap * dice.uniform(0.6, 1.4)


def _deal(
    dice: random.Random, deck: list[str], free_at: dict[tuple[str, int], float], at: float, seconds: float
) -> Fault | None:
    """Take the first hazard of the deck that some target is ready for and that ends in time; None for none."""
    for kind in reversed(deck):
        hazard = HAZARDS[kind]
        ready = [n for n in range(_TARGETS[hazard.target]) if free_at.get((hazard.target, n), 0.0) <= at]
        lasts = dice.uniform(hazard.shortest_seconds, hazard.longest_seconds)
        if ready and at + lasts <= seconds:
            deck.remove(kind)
            return Fault(at_seconds=round(at, 2), kind=kind, target=dice.choice(ready), seconds=round(lasts, 2))
    return None
