"""A site of real processes: an api, a control and two workers, whose engine is the test's own, over HTTP."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.blobs.store import open_store
from slackwater.db.catalog import add_model
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.audit import Report, audit
from slackwater.inference.protocol import Reply
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_faults import Fault
from slackwater.inference.simulated_server import serve
from slackwater.inference.simulated_writer import Answer, SimulatedModel
from tests.api_under_test import make_tenant
from tests.cases.customer import Customer
from tests.cases.databases import fresh_database
from tests.cases.inputs import MODEL
from tests.processes import Processes, running

ROLES: Final = {"api": "api", "control": "control", "work-1": "work", "work-2": "work"}
"""What runs, by its name."""
SLOTS: Final = 8
"""Lines that each worker has at the engine at once."""
_END_SECONDS: Final = 60.0


class CountingEngine(SimulatedEngine):
    """A simulated engine that counts how often each body arrives."""

    def __init__(self, settings: SimulatedSettings) -> None:
        super().__init__(settings)
        self.arrivals: Counter[bytes] = Counter()

    def take(self, path: str, body: bytes) -> Reply | Answer | Fault:
        self.arrivals[bytes(body)] += 1
        return super().take(path, body)


@dataclass(frozen=True, kw_only=True)
class Plant:
    """Handles on the processes, their customer and their engine."""

    processes: Processes
    db: Database
    database: str
    """The database's name."""
    acme: Customer
    engine: CountingEngine

    def port(self, name: str) -> int:
        """Where a role answers for its health."""
        return self.processes.api_port if name == "api" else self.processes.probes[name]

    def log(self, name: str) -> str:
        """All that a role has logged so far."""
        return (self.processes.logs / f"{name}.log").read_text()

    def kill(self, *names: str) -> None:
        """End roles as a power cut would, one right after the other."""
        for name in names:
            self.processes.kill(name)

    async def start(self, *names: str) -> None:
        """Start roles at once, and wait until each is alive; the engine goes on meanwhile."""
        for name in names:
            self.processes.spawn(ROLES[name], name, **({"worker_id": name} if ROLES[name] == "work" else {}))
        urls = [f"http://127.0.0.1:{self.port(name)}/healthz" for name in names]
        await asyncio.gather(*(asyncio.to_thread(self.processes.wait, url) for url in urls))

    async def stop(self, name: str) -> None:
        """Ask a role to end, and wait until it has; it must end well."""
        child = self.processes.children[name]
        child.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(child.wait, _END_SECONDS) == 0

    async def until_ready(self, name: str, status: int) -> dict[str, Any]:
        """Wait until the readiness of a role has this status; return what it says."""
        async with asyncio.timeout(_END_SECONDS):
            while True:
                answer = await self.acme.http.get(f"http://127.0.0.1:{self.port(name)}/readyz")
                if answer.status_code == status:
                    said: dict[str, Any] = answer.json()
                    return said
                await asyncio.sleep(0.05)

    async def until_told(self, name: str, words: str, *, after: int) -> None:
        """Wait until a role has logged these words, beyond so many characters of its log."""
        async with asyncio.timeout(_END_SECONDS):
            while words not in self.log(name)[after:]:
                await asyncio.sleep(0.05)

    def lines(self) -> Counter[bytes]:
        """How often each line of a batch of ``questions`` was sent; what a worker asks for its own sake is none."""
        return Counter({body: count for body, count in self.engine.arrivals.items() if b"question" in body})


@asynccontextmanager
async def running_plant(server: EmbeddedPostgres, folder: Path) -> AsyncIterator[Plant]:
    """Run the processes while the block runs, on a database of their own."""
    latency = Latency(decode_seconds_per_token=0.015)
    engine = CountingEngine(
        SimulatedSettings(model=SimulatedModel(names=(MODEL,)), latency=latency, max_num_seqs=8 * SLOTS)
    )
    served = await serve(engine)
    with fresh_database(server) as url:
        settings = {
            "SLACKWATER_DATABASE_URL": url,
            "SLACKWATER_STORE_URL": f"file://{folder / 'objects'}",
            "SLACKWATER_ENGINE": "url",
            "SLACKWATER_ENGINE_URL": served.url,
            "SLACKWATER_ENGINE_SERVED_NAME": MODEL,
            "SLACKWATER_MAX_NUM_SEQS": str(SLOTS),
            "SLACKWATER_CHECKPOINT_SECONDS": "0.2",
        }
        db, store = Database.connect(url), open_store(settings["SLACKWATER_STORE_URL"])
        await add_model(db, model_id=MODEL, max_model_len=engine.settings.model.max_model_len, actor="test")
        tenant = await make_tenant(db, "acme")

        async def auditing(batch: BatchId) -> Report:
            return await audit(db, store, batch)

        with running(settings, folder) as processes:
            acme = Customer(processes.base_url.removesuffix("/v1"), tenant.secret, auditing)
            plant = Plant(processes=processes, db=db, database=url.rpartition("/")[2], acme=acme, engine=engine)
            await plant.start(*ROLES)
            yield plant
            await acme.close()
        await store.close()
        await db.close()
    await served.close()
