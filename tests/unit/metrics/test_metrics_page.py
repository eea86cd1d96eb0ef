"""docs/metrics.md and the registry say the same, in both directions."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import Metric

from tests.metrics_samples import move_everything, new_metrics

_PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `((?:slackwater|process)_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)
_VALUES = re.compile(r"^\| `(slackwater_\w+)` `(\w+)` \| (.*) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


class Described(NamedTuple):
    """What the page and the registry must agree on."""

    kind: str
    labels: frozenset[str]


def _on_the_page() -> dict[str, Described]:
    return {name: Described(kind, frozenset(_CODE.findall(labels))) for name, kind, labels in _ROW.findall(_PAGE)}


def _families() -> Mapping[str, Metric]:
    metrics = new_metrics()
    move_everything(metrics, now=10.0, read_at=datetime(2030, 1, 1, tzinfo=UTC))
    families = metrics.registry.collect()
    # The library drops a counter's suffix from the family's name; what Prometheus stores has it.
    return {f"{family.name}_total" if family.type == "counter" else family.name: family for family in families}


def test_page_and_registry_name_the_same_metrics_with_the_same_types_and_labels() -> None:
    moved = _families()
    without_samples = [name for name, family in moved.items() if not family.samples]
    in_code = {
        name: Described(family.type, frozenset(label for sample in family.samples for label in sample.labels) - {"le"})
        for name, family in moved.items()
    }

    assert without_samples == []
    assert in_code == _on_the_page()


def test_the_page_lists_each_metric_once() -> None:
    names = [name for name, _, _ in _ROW.findall(_PAGE)]

    assert len(names) == len(set(names))


def test_the_page_lists_every_value_of_the_closed_labels() -> None:
    families = _families()
    listed = {(name, label): set(_CODE.findall(values)) for name, label, values in _VALUES.findall(_PAGE)}
    shown = {
        (name, label): {sample.labels[label] for sample in families[name].samples if label in sample.labels}
        for name, label in listed
    }

    assert shown == listed


def test_every_label_is_bounded() -> None:
    """A new label has to be argued for here: what keeps its values few?"""
    closed = {label for _, label, _ in _VALUES.findall(_PAGE)}
    by_operators = {"model"}
    by_code = {"code", "route", "method", "version"}

    used = {label for described in _on_the_page().values() for label in described.labels}

    assert used <= closed | by_operators | by_code


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, described in _on_the_page().items():
        assert name.endswith("_total") == (described.kind == "counter"), name
        if described.kind == "histogram":
            assert name.endswith("_seconds"), name


def test_two_processes_worth_of_metrics_live_side_by_side() -> None:
    first, second = new_metrics(), new_metrics()

    first.upload_bytes.inc(5)

    assert second.registry.get_sample_value("slackwater_upload_bytes_total") == 0


def test_the_version_is_shown() -> None:
    registry = new_metrics().registry

    assert registry.get_sample_value("slackwater_build_info", {"version": "0.0.0"}) == 1
