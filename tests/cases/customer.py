"""A customer of a running service: everything over HTTP, and every batch that ends is audited."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from openai import AsyncOpenAI

from slackwater.domain.ids import BatchId
from slackwater.flow.audit import Report
from tests.cases.inputs import CHAT

TERMINAL: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A batch at its end, with the bytes of both result files."""

    batch: dict[str, Any]
    output: bytes
    error_file: bytes
    report: Report

    @property
    def status(self) -> str:
        return str(self.batch["status"])

    @property
    def counts(self) -> tuple[int, int, int]:
        """Total, completed, failed."""
        counts = self.batch["request_counts"]
        return counts["total"], counts["completed"], counts["failed"]

    @property
    def answered(self) -> dict[str, dict[str, Any]]:
        """Lines of the output file by custom_id."""
        return _by_id(self.output)

    @property
    def refused(self) -> dict[str, dict[str, Any]]:
        """Lines of the error file by custom_id."""
        return _by_id(self.error_file)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Why the whole batch failed."""
        return list((self.batch["errors"] or {"data": []})["data"])

    @property
    def error_lines(self) -> list[tuple[int | None, str]]:
        """Physical line and code of each."""
        return [(error["line"], error["code"]) for error in self.errors]


def _by_id(data: bytes) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in data.split(b"\n") if line]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines), Counter(line["custom_id"] for line in lines).most_common(3)
    return found


class Customer:
    """One tenant's client. ``auditing`` audits a batch by its id."""

    def __init__(self, origin: str, key: str, auditing: Callable[[BatchId], Awaitable[Report]]) -> None:
        self.origin: Final = origin
        self.key: Final = key
        self.http: Final = httpx2.AsyncClient(
            base_url=origin, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=120
        )
        self.sdk: Final = AsyncOpenAI(
            base_url=f"{origin}/v1", api_key=key, max_retries=0, _strict_response_validation=True
        )
        self._auditing = auditing

    async def close(self) -> None:
        await self.http.aclose()
        await self.sdk.close()

    async def upload(self, data: bytes, *, filename: str = "in.jsonl") -> str:
        """Upload a batch input; return its id."""
        answer = await self.http.post("/v1/files", data={"purpose": "batch"}, files={"file": (filename, data)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def create(self, file_id: str, *, endpoint: str = CHAT, **options: Any) -> dict[str, Any]:
        """Create a batch; return it as it was first shown."""
        body = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h", **options}
        answer = await self.http.post("/v1/batches", json=body)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def get(self, batch_id: str) -> dict[str, Any]:
        """Return a batch as it is now."""
        answer = await self.http.get(f"/v1/batches/{batch_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def cancel(self, batch_id: str) -> httpx2.Response:
        """Ask for a batch to be cancelled."""
        return await self.http.post(f"/v1/batches/{batch_id}/cancel")

    async def content(self, file_id: str | None) -> bytes:
        """Download a file; no bytes where there is none."""
        if file_id is None:
            return b""
        answer = await self.http.get(f"/v1/files/{file_id}/content")
        assert answer.status_code == 200, answer.text
        return answer.content

    async def until(self, batch_id: str, *statuses: str, seconds: float = 60.0) -> dict[str, Any]:
        """Poll until a batch is in one of the states; any final one by default."""
        wanted, pause = set(statuses) or TERMINAL, _FIRST_PAUSE_SECONDS
        async with asyncio.timeout(seconds):
            while True:
                shown = await self.get(batch_id)
                if shown["status"] in wanted:
                    return shown
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.25)

    async def progress(self, batch_id: str, completed: int, *, seconds: float = 60.0) -> None:
        """Poll until so many lines of a batch are shown as completed."""
        async with asyncio.timeout(seconds):
            while (await self.get(batch_id))["request_counts"]["completed"] < completed:
                await asyncio.sleep(_FIRST_PAUSE_SECONDS)

    async def ended(self, batch_id: str, *, seconds: float = 60.0) -> Ended:
        """Wait for a batch's end, download what it gave, and have it audited."""
        batch = await self.until(batch_id, seconds=seconds)
        report = await self._auditing(BatchId(batch_id))
        assert report.sound, report.faults
        found = Ended(
            batch=batch,
            output=await self.content(batch["output_file_id"]),
            error_file=await self.content(batch["error_file_id"]),
            report=report,
        )
        _check_shape(found)
        return found

    async def run(self, data: bytes, *, seconds: float = 60.0, **options: Any) -> Ended:
        """Upload, create, wait, download, audit."""
        batch = await self.create(await self.upload(data), **options)
        assert batch["status"] == "validating"
        return await self.ended(batch["id"], seconds=seconds)


def _check_shape(ended: Ended) -> None:
    """What holds for every batch, whatever was in its file."""
    total, completed, failed = ended.counts
    if ended.status == "failed":
        assert ended.errors, ended.batch
        assert (completed, failed) == (0, 0)
    else:
        assert completed + failed == total, ended.batch
    for data in (ended.output, ended.error_file):
        assert data == b"" or data.endswith(b"}\n")
        assert b"\r" not in data
        assert b"\n\n" not in data
