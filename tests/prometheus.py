"""A real Prometheus for tests, and the queries of our dashboard to ask it.

::

    async with run_prometheus({"control": "127.0.0.1:9464"}, tmp_path) as prometheus:
        await prometheus.scraped(3)
        for query in dashboard_queries():
            assert await prometheus.ask(query.expression), query

Loopback only, on a port that the system picks; ended by its process id. Where no Prometheus is installed the test is
skipped and says so.
"""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
import yaml

ROOT: Final = Path(__file__).parents[1]
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "dashboards" / "slackwater.json"
RULES: Final = ROOT / "deploy" / "prometheus" / "rules.yml"

_START_SECONDS: Final = 30.0
_SCRAPE_SECONDS: Final = 60.0
_ADDRESS: Final = re.compile(rb'"Listening on" address=(127\.0\.0\.1:\d+)')
_READY: Final = b"Server is ready"


class Query(NamedTuple):
    """One query of the dashboard, its variables filled in."""

    panel: str
    expression: str


class Sample(NamedTuple):
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float
    """May be NaN, as a quantile of nothing is."""


def dashboard() -> dict[str, Any]:
    """Read the dashboard."""
    document: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return document


def dashboard_queries(*, window: str = "1m", model: str = ".*") -> list[Query]:
    """List what the dashboard asks, with ``window`` for Grafana's rate interval and ``model`` for its model list."""
    return [
        Query(panel["title"], target["expr"].replace("$__rate_interval", window).replace("$model", model))
        for panel in dashboard()["panels"]
        for target in panel.get("targets", [])
    ]


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    client: httpx2.AsyncClient
    targets: int

    async def ask(self, expression: str) -> list[Sample]:
        """Evaluate an expression now. Raises AssertionError where Prometheus refuses it."""
        answer = await self.client.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(series["metric"], float(series["value"][1])) for series in data["result"]]

    async def scraped(self, times: int) -> None:
        """Return when every target was scraped so often; the first scrape is about five seconds after the start."""
        often_enough = f'count(count_over_time(up{{job="slackwater"}}[1h]) >= {times} and up == 1)'
        async with asyncio.timeout(_SCRAPE_SECONDS):
            # Another process, which tells nobody: it has to be asked.
            while [sample.value for sample in await self.ask(often_enough)] != [self.targets]:
                await asyncio.sleep(0.1)

    async def firing(self) -> set[str]:
        """Name the alerts that fire."""
        alerts = await self.ask('ALERTS{alertstate="firing"}')
        return {alert.labels["alertname"] for alert in alerts}


@asynccontextmanager
async def run_prometheus(
    targets: Mapping[str, str], folder: Path, *, scrape_interval: str = "250ms"
) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that keeps in ``folder`` what it scrapes from ``targets``: addresses by role."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on the PATH; `make test` brings one")
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(_config(targets, scrape_interval)))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--web.listen-address=127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    reading = asyncio.create_task(_started(process.stderr))
    try:
        address = await asyncio.wait_for(reading, _START_SECONDS)
        draining = asyncio.create_task(process.stderr.read())
        async with httpx2.AsyncClient(base_url=f"http://{address}", timeout=10.0) as client:
            yield Prometheus(client, len(targets))
        process.terminate()
        await draining
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _config(targets: Mapping[str, str], scrape_interval: str) -> dict[str, Any]:
    static = [{"targets": [address], "labels": {"role": role}} for role, address in targets.items()]
    return {
        "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval, "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "slackwater", "static_configs": static}],
    }


async def _started(log: asyncio.StreamReader) -> str:
    """Read the log until the server is ready; return the address it took."""
    address = None
    lines = []
    async for line in log:
        lines.append(line)
        if found := _ADDRESS.search(line):
            address = found[1].decode()
        if _READY in line and address is not None:
            return address
    raise AssertionError(f"Prometheus ended at once:\n{b''.join(lines[-10:]).decode()}")
