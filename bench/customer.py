"""A lean customer: plain HTTP on one connection, so that the machine's time goes to the service, not to its client."""

import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.site import Failed
from bench.workload import PATH

TERMINAL: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_BOUNDARY: Final = "slackwater-bench-7d1f"
_TIMEOUT_SECONDS: Final = 120.0
_BUFFER_BYTES: Final = 1 << 20


class Customer:
    """One tenant's connection to the API. Not safe to share between threads."""

    def __init__(self, base_url: str, api_key: str) -> None:
        """``base_url`` ends in ``/v1``."""
        place = urlsplit(base_url)
        assert place.hostname is not None
        self._http = http.client.HTTPConnection(place.hostname, place.port, timeout=_TIMEOUT_SECONDS)
        self._root = place.path
        self._authorization = f"Bearer {api_key}"
        self._buffer = bytearray(_BUFFER_BYTES)

    def upload(self, path: Path) -> str:
        """Upload a batch input, from the page cache straight into the socket; returns the file's id."""
        head = (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{path.name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{_BOUNDARY}--\r\n".encode()
        self._begin("POST", "/files")
        self._http.putheader("Content-Type", f"multipart/form-data; boundary={_BOUNDARY}")
        self._http.putheader("Content-Length", str(len(head) + path.stat().st_size + len(tail)))
        self._http.endheaders(head)
        with path.open("rb") as file:
            self._http.sock.sendfile(file)
        self._http.send(tail)
        return str(self._object()["id"])

    def create(self, file_id: str, *, endpoint: str = PATH) -> dict[str, Any]:
        """Create a batch of a file's lines; returns it."""
        body = json.dumps({"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h"}).encode()
        self._begin("POST", "/batches")
        self._http.putheader("Content-Type", "application/json")
        self._http.putheader("Content-Length", str(len(body)))
        self._http.endheaders(body)
        return self._object()

    def batch(self, batch_id: str) -> dict[str, Any]:
        """Read a batch."""
        self._begin("GET", f"/batches/{batch_id}")
        self._http.endheaders()
        return self._object()

    def until_completed(
        self, batch_id: str, *, poll_seconds: float, timeout_seconds: float, watch: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Poll until a batch has ended, at once first, and return it. Raises Failed unless every line succeeded.

        ``watch`` is called before each pause.
        """
        deadline = time.monotonic() + timeout_seconds
        while (found := self.batch(batch_id))["status"] not in TERMINAL:
            if time.monotonic() > deadline:
                raise Failed(f"{batch_id} is still {found['status']}: {found['request_counts']}")
            if watch is not None:
                watch()
            time.sleep(poll_seconds)
        counts = found["request_counts"]
        if found["status"] != "completed" or counts["failed"] or counts["completed"] != counts["total"]:
            raise Failed(f"{batch_id} ended as {found['status']}: {counts}, {found['errors']}")
        return found

    def download(self, file_id: str) -> int:
        """Download a file whole and return how many lines it has; its bytes are looked at, not kept."""
        self._begin("GET", f"/files/{file_id}/content")
        self._http.endheaders()
        response = self._http.getresponse()
        if response.status != http.client.OK:
            raise Failed(f"download: {response.status} {response.read()[:500]!r}")
        lines, view = 0, memoryview(self._buffer)
        while count := response.readinto(view):
            lines += self._buffer.count(b"\n", 0, count)
        return lines

    def delete(self, file_id: str) -> None:
        """Delete a file."""
        self._begin("DELETE", f"/files/{file_id}")
        self._http.endheaders()
        self._object()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _begin(self, method: str, path: str) -> None:
        self._http.putrequest(method, self._root + path, skip_accept_encoding=True)
        self._http.putheader("Authorization", self._authorization)

    def _object(self) -> dict[str, Any]:
        response = self._http.getresponse()
        data = response.read()
        if response.status != http.client.OK:
            raise Failed(f"{response.status} {data[:500]!r}")
        decoded: dict[str, Any] = json.loads(data)
        return decoded
