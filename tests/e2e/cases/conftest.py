"""One running site for each module; no test on it may cause a 5xx or fail a stage."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.inference.simulated import SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_writer import SimulatedModel
from tests.cases.databases import fresh_database
from tests.cases.inputs import SMALL_MODEL
from tests.cases.recording import RecordingEngine
from tests.cases.site import Site, running_site, simulated


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(*ids): the collected troubles that a test provokes; see docs/cases.md")


@pytest.fixture(scope="module")
def module_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A migrated database of the module's own."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_site(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The running site of a module: two models on one engine, one of a small context on another."""
    small = SimulatedModel(names=(SMALL_MODEL,), max_model_len=2048)
    engines = [simulated(), RecordingEngine(SimulatedEngine(SimulatedSettings(model=small)))]
    async with running_site(module_database_url, tmp_path_factory.mktemp("site"), engines=engines) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(module_site: Site) -> AsyncIterator[Site]:
    """The module's site, its record begun anew; afterwards it must still answer, and have met no error of its own."""
    for engine in module_site.engines:
        engine.forget()
    errors = (module_site.server_errors(), module_site.stage_errors())
    yield module_site
    assert (module_site.server_errors(), module_site.stage_errors()) == errors
    assert (await module_site.acme.http.get("/healthz")).status_code == 200
