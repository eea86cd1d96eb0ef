"""What a real Prometheus and its own linter make of our metrics, rules and dashboard."""

import asyncio
import itertools
import math
import shutil
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from prometheus_client import generate_latest

from slackwater.probe import Check, Probe
from tests.metrics_samples import MODEL, move_everything, new_metrics
from tests.prometheus import RULES, Prometheus, dashboard_queries, run_prometheus

# One Prometheus for all of them: it takes five seconds to its first scrape.
pytestmark = pytest.mark.asyncio(loop_scope="module")

_DEPLOY = RULES.parent


async def _promtool(*arguments: str, stdin: bytes = b"") -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on the PATH; `make test` brings one")
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(stdin)
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """Scrape a process whose every metric moves a little between two scrapes."""
    metrics = new_metrics()
    scrapes = itertools.count(1)

    async def move() -> None:
        now = datetime.fromtimestamp(time.time(), tz=UTC)
        move_everything(metrics, now=float(next(scrapes)), read_at=now)

    refresh = Check(name="queue", ask=move)
    async with Probe("127.0.0.1", 0, checks=(), registry=metrics.registry, refresh=refresh) as probe:
        address = f"127.0.0.1:{probe.port}"
        async with run_prometheus({"control": address}, tmp_path_factory.mktemp("prometheus")) as prometheus:
            await prometheus.scraped(4)
            yield prometheus


async def test_every_query_of_the_dashboard_has_an_answer(prometheus: Prometheus) -> None:
    answers = {query: await prometheus.ask(query.expression) for query in dashboard_queries(model=MODEL)}

    empty = [query for query, samples in answers.items() if not samples]
    not_a_number = [query for query, samples in answers.items() if not all(math.isfinite(s.value) for s in samples)]
    assert empty == []
    assert not_a_number == []


async def test_the_dashboards_shares_are_shares(prometheus: Prometheus) -> None:
    busy = {query.expression: await prometheus.ask(query.expression) for query in dashboard_queries()}
    shares = [samples for expression, samples in busy.items() if "starved_seconds" in expression]

    (starved,) = (sample.value for samples in shares for sample in samples)
    assert starved == pytest.approx(0.4)


async def test_tokens_per_gpu_hour_is_what_its_name_says(prometheus: Prometheus) -> None:
    (page_formula,) = await prometheus.ask(
        "3600 * sum by (model) (rate(slackwater_tokens_total[1h]))"
        " / sum by (model) (rate(slackwater_gpu_seconds_total[1h]))"
    )

    # 12,000 tokens for each second in which the one GPU had work.
    assert page_formula.value == pytest.approx(12_000 * 3600)
    assert page_formula.labels == {"model": MODEL}


async def test_rules_are_loaded_and_evaluate_without_an_error(prometheus: Prometheus) -> None:
    answer = await prometheus.client.get("/api/v1/rules")

    rules = [rule for group in answer.json()["data"]["groups"] for rule in group["rules"]]
    assert len(rules) == RULES.read_text().count("- alert:")
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []


async def test_promtool_finds_nothing_wrong_with_our_exposition() -> None:
    metrics = new_metrics()
    move_everything(metrics, now=10.0, read_at=datetime(2030, 1, 1, tzinfo=UTC))

    output = await _promtool("check", "metrics", stdin=generate_latest(metrics.registry))

    assert output == ""


async def test_promtool_accepts_the_configuration_of_compose() -> None:
    await _promtool("check", "config", str(_DEPLOY / "prometheus.yml"))


async def test_every_rule_fires_when_it_should_and_only_then() -> None:
    await _promtool("test", "rules", str(_DEPLOY / "rules.test.yml"))
