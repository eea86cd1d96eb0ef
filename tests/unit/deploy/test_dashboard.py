"""The dashboard asks only for metrics and labels that exist, and reads well."""

import functools
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import promql_parser
import pytest
import yaml

from tests.metrics_samples import move_everything, new_metrics
from tests.prometheus import RULES, dashboard, dashboard_queries

_OF_THE_TARGET = {"job", "instance", "role"}
_OF_PROMETHEUS = {"up"}
_NOT_SHOWN = {"slackwater_build_info", "slackwater_model_workers"}
"""The one is for joins, the other for the alert on a backlog without workers."""


@functools.cache
def _known() -> dict[str, set[str]]:
    """Labels by the name of a series."""
    metrics = new_metrics()
    move_everything(metrics, now=10.0, read_at=datetime(2030, 1, 1, tzinfo=UTC))
    known: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    return known


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(expression, name, None)
        if child is not None:
            yield from _nodes(child)
    for child in getattr(expression, "args", None) or ():
        yield from _nodes(child)


def _selectors(text: str) -> list[promql_parser.VectorSelector]:
    return [node for node in _nodes(promql_parser.parse(text)) if isinstance(node, promql_parser.VectorSelector)]


def _rule_expressions() -> list[str]:
    return [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


_EXPRESSIONS = [query.expression for query in dashboard_queries()] + _rule_expressions()


@pytest.mark.parametrize("expression", _EXPRESSIONS)
def test_an_expression_of_ours_parses_and_names_only_series_and_labels_that_exist(expression: str) -> None:
    known = _known()

    selectors = _selectors(expression)

    assert selectors
    for selector in selectors:
        if selector.name in _OF_PROMETHEUS:
            continue
        assert selector.name in known, selector.name
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= known[selector.name] | _OF_THE_TARGET, selector.name


@pytest.mark.parametrize("expression", _EXPRESSIONS)
def test_an_expression_of_ours_groups_only_by_labels_that_exist(expression: str) -> None:
    known = _known()

    for node in _nodes(promql_parser.parse(expression)):
        if not isinstance(node, promql_parser.AggregateExpr) or node.modifier is None:
            continue
        inside = [n for n in _nodes(node.expr) if isinstance(n, promql_parser.VectorSelector)]
        existing = (
            set(itertools.chain(*(known.get(selector.name or "", set()) for selector in inside))) | _OF_THE_TARGET
        )
        assert set(node.modifier.labels) <= existing, expression


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {selector.name for query in dashboard_queries() for selector in _selectors(query.expression)}
    families = {(name or "").removesuffix("_bucket") for name in shown}
    ours = {
        name.removesuffix("_bucket")
        for name in _known()
        if name.startswith("slackwater_") and not name.endswith(("_count", "_sum"))
    }

    assert ours - families == _NOT_SHOWN


def test_a_queue_gauge_is_never_summed_over_processes() -> None:
    """Every control process shows the same queue."""
    queue = {"slackwater_lines_waiting", "slackwater_batches", "slackwater_chunks", "slackwater_workers"}

    for expression in _EXPRESSIONS:
        for node in _nodes(promql_parser.parse(expression)):
            inner = getattr(node, "expr", None)
            if isinstance(node, promql_parser.AggregateExpr) and isinstance(inner, promql_parser.VectorSelector):
                assert inner.name not in queue or str(node.op) in {"max", "min"}, expression


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = dashboard()["panels"]
    return panels


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in _panels():
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"] or panel["type"] == "stat", panel["title"]


def test_panels_fill_the_grid_without_lying_on_one_another() -> None:
    cells = [
        (x, y)
        for panel in _panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    height = max(y for _, y in cells) + 1

    assert len(cells) == len(set(cells)) == 24 * height


def test_panels_have_ids_and_titles_of_their_own_within_a_row() -> None:
    ids = [panel["id"] for panel in _panels()]

    assert len(ids) == len(set(ids))


def test_names_in_legends_are_labels_of_their_query() -> None:
    for panel in _panels():
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
            root = promql_parser.parse(expression)
            grouped = {
                label
                for node in _nodes(root)
                if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
                for label in node.modifier.labels
            }
            in_legend = {part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
            assert in_legend <= grouped, (panel["title"], target["legendFormat"])


def test_every_alert_says_how_urgent_it_is_and_what_to_do_and_has_a_test() -> None:
    tests = RULES.with_name("rules.test.yml").read_text()
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]

    for rule in rules:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
        assert rule["alert"] in tests or rule["alert"].startswith("SlackwaterEngine"), rule["alert"]
