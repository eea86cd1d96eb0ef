"""What a benchmark reports: figures with a unit, the target each is held against, and the arithmetic behind them."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

Verdict = Literal["ok", "missed"]

MEGABYTE: Final = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a figure has to reach: a least or a most value, or both, in the figure's unit."""

    least: float | None = None
    most: float | None = None

    def verdict(self, value: float) -> Verdict:
        """Say whether a value reaches it; both bounds are inclusive."""
        low = self.least is not None and value < self.least
        high = self.most is not None and value > self.most
        return "missed" if low or high else "ok"

    def __str__(self) -> str:
        bounds = [("≥", self.least), ("≤", self.most)]
        return ", ".join(f"{sign} {shown(bound)}" for sign, bound in bounds if bound is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured quantity: all its samples, of which the median counts."""

    name: str
    unit: str
    samples: tuple[float, ...]
    """One a round, in order; never empty."""
    target: Target | None = None

    @property
    def value(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the median reaches the target; None without one."""
        return None if self.target is None else self.target.verdict(self.value)

    @property
    def spread(self) -> str:
        """The least and the greatest sample, as text; empty where there is one sample."""
        return f"{shown(min(self.samples))}–{shown(max(self.samples))}" if len(self.samples) > 1 else ""

    def to_json(self) -> dict[str, Any]:
        """Return what is written to the results file; :meth:`from_json` reads it back."""
        return asdict(self) | {"value": self.value, "verdict": self.verdict}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read a figure from a results file."""
        target = fields["target"]
        return cls(
            name=fields["name"],
            unit=fields["unit"],
            samples=tuple(fields["samples"]),
            target=None if target is None else Target(**target),
        )


def figure(
    name: str, samples: Sequence[float], unit: str, *, least: float | None = None, most: float | None = None
) -> Figure:
    """Make a figure from its samples; without a bound it has no target."""
    bounded = least is not None or most is not None
    target = Target(least=least, most=most) if bounded else None
    return Figure(name=name, unit=unit, samples=tuple(samples), target=target)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least this share of all samples do not exceed; ``share`` in (0, 1]."""
    ordered = sorted(samples)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]


def percent(part: float, whole: float) -> float:
    """Return a part as a percentage of the whole; 0 of nothing is 0."""
    return 100.0 * part / whole if whole else 0.0


def pairwise_percent(parts: Sequence[float], wholes: Sequence[float]) -> list[float]:
    """Return each part as a percentage of the whole measured beside it, in the same round."""
    return [percent(part, whole) for part, whole in zip(parts, wholes, strict=True)]


def shown(value: float) -> str:
    """Write a number with as many digits as its size deserves."""
    size = abs(value)
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.3g}"
