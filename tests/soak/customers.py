"""The soak's customers: each order is a thread that speaks HTTP, waits, changes its mind, and downloads what came."""

import random
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

import psycopg

from slackwater.client.errors import Conflict
from slackwater.client.multipart_body import source_of_stream
from slackwater.client.polling import Polling
from slackwater.client.replies import Batch
from slackwater.client.sync_client import Client
from tests.soak.lines import write_lines
from tests.soak.oracle import Verdict, judge, judge_refused
from tests.soak.schedule import Order
from tests.soak.site import Site

_RETRIES: Final = 30
_TIMEOUT_SECONDS: Final = 30.0
_POLLING: Final = Polling(interval_seconds=2.0, patience=60)
_PAUSE_SECONDS: Final = 6.0
_EXPIRE: Final = "UPDATE batches SET deadline = now() + make_interval(secs => %s) WHERE id = %s"
_EXPIRE_TRIES: Final = 120


@dataclass(kw_only=True, slots=True)
class Served:
    """What came of one order."""

    order: Order
    batch_id: str | None = None
    status: str = "never placed"
    verdict: Verdict = field(default_factory=Verdict)
    trouble: str | None = None
    """Why the customer gave up; None where they did not."""


class Customers:
    """All customers of a soak."""

    def __init__(self, site: Site, *, seed: int) -> None:
        self._base_url = site.roles.base_url
        self._keys = site.keys
        self._database_url = site.postgres.url
        self._seed = seed
        self._threads: list[threading.Thread] = []
        self.served: list[Served] = []

    def expect(self, order: Order, began: float) -> None:
        """Have a customer come when the order is due; ``began`` is the soak's beginning, in monotonic seconds."""
        served = Served(order=order)
        self.served.append(served)
        thread = threading.Thread(target=self._serve, args=(served, began), name=order.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def waiting(self) -> int:
        """Orders that have not ended."""
        return sum(thread.is_alive() for thread in self._threads)

    def repeated_batches(self) -> int:
        """Count the batches of all tenants that nobody ordered: a create that was sent twice made them."""
        known = {served.batch_id for served in self.served}
        found = 0
        for tenant in self._keys:
            with self._client(tenant) as client:
                found += sum(1 for batch in client.batches() if batch.id not in known)
        return found

    def _client(self, tenant: str) -> Client:
        return Client(
            base_url=self._base_url,
            api_key=self._keys[tenant],
            new_key=lambda: uuid.uuid4().hex,
            jitter=random.random,
            max_retries=_RETRIES,
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def _serve(self, served: Served, began: float) -> None:
        time.sleep(max(0.0, began + served.order.at_seconds - time.monotonic()))
        try:
            with self._client(served.order.tenant) as client:
                self._follow(served, client)
        except Exception as error:  # noqa: BLE001  whatever ends a customer's thread has to be in the report
            served.trouble = f"{type(error).__name__}: {error}"

    def _follow(self, served: Served, client: Client) -> None:
        """Upload, create, act, wait, download, judge."""
        order = served.order
        data, asked = write_lines(order.name, order.endpoint, order.mixture, seed=self._seed)
        file = client.create_file(source_of_stream(BytesIO(data), filename=f"{order.name}.jsonl"))
        created = client.create_batch(input_file_id=file.id, endpoint=order.endpoint, invalid_lines=order.invalid_lines)
        served.batch_id = created.id
        self._act(order, client, created)
        batch = created
        for look in client.watch(created.id, polling=_POLLING):
            batch, served.status = look, look.status
        if batch.status == "failed":
            served.verdict = judge_refused(asked, len(batch.errors.data) if batch.errors else 0)
        elif batch.counts.total or batch.status == "completed":
            served.verdict = judge(
                asked,
                order.endpoint,
                batch.status,
                _download(client, batch.output_file_id),
                _download(client, batch.error_file_id),
                counts=(batch.counts.total, batch.counts.completed, batch.counts.failed),
            )
        # Else it was stopped before it was planned: it has no lines and no results.

    def _act(self, order: Order, client: Client, batch: Batch) -> None:
        """Do what else the customer does; that the batch has ended meanwhile is fine."""
        if order.act == "none":
            return
        time.sleep(order.act_after_seconds)
        with suppress(Conflict):
            match order.act:
                case "cancel":
                    client.cancel_batch(batch.id)
                case "pause":
                    client.pause_batch(batch.id)
                    time.sleep(_PAUSE_SECONDS)
                    client.resume_batch(batch.id)
                case "delete_input":
                    client.delete_file(batch.input_file_id)
                case "expire":
                    self._shorten(batch.id)

    def _shorten(self, batch_id: str) -> None:
        """Have a batch's window end in a second: the shortest that can be asked for is an hour."""
        for attempt in range(_EXPIRE_TRIES):
            try:
                with psycopg.connect(self._database_url, connect_timeout=3) as connection:
                    connection.execute(_EXPIRE, (1.0, batch_id))
                return
            except psycopg.OperationalError:
                if attempt + 1 == _EXPIRE_TRIES:
                    raise
                time.sleep(0.5)

    def statuses(self) -> Counter[str]:
        """Count the batches by how they stand."""
        return Counter(served.status for served in self.served)


def _download(client: Client, file_id: str | None) -> bytes:
    if file_id is None:
        return b""
    into = BytesIO()
    client.download(file_id, into)
    return into.getvalue()
