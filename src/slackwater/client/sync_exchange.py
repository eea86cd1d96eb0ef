"""The synchronous transport: sends calls over httpx2 and waits, deciding nothing itself."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TypeVar

import httpx2

from slackwater.client import wire
from slackwater.client.calls import Call, Operation, Reply, normal_base_url
from slackwater.client.downloading import Download
from slackwater.client.errors import ClientError
from slackwater.client.multipart_body import MultipartBody
from slackwater.client.polling import Polling
from slackwater.client.retrying import Outcome, Retries, settled

T = TypeVar("T")


class SyncExchange:
    """One service's connections; the twin of :class:`~slackwater.client.async_exchange.AsyncExchange`."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        retries: Retries,
        sleep: Callable[[float], None] = time.sleep,
        timeout_seconds: float = 600.0,
    ) -> None:
        self.base_url = normal_base_url(base_url)
        self._http = httpx2.Client(**wire.client_arguments(self.base_url, api_key, timeout_seconds=timeout_seconds))
        self._retries = retries
        self._sleep = sleep

    def close(self) -> None:
        """Close every connection. Idempotent."""
        self._http.close()

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    def run(self, operation: Operation[T]) -> T:
        """Send the operation's call until an outcome stands, and read it."""
        return operation.decode(self._settle(operation.call))

    def look(self, call: Call, polling: Polling, missed: Callable[[ClientError], object] | None) -> Reply:
        """Send a call until it has a 2xx answer, over an outage as long as ``polling`` allows."""
        misses = 0
        while True:
            try:
                reply = self._settle(call)
                reply.checked()
            except ClientError as error:
                misses += 1
                pause = polling.outage_pause_seconds(error, misses)
                if pause is None:
                    raise
                if missed is not None:
                    missed(error)
                self._sleep(pause)
            else:
                return reply

    def stream(self, file_id: str) -> Generator[bytes, None, None]:
        """Give a file's content piece by piece; a read that breaks is resumed."""
        download = Download(file_id, retries=self._retries)
        while True:
            outcome: Outcome | None
            try:
                with self._open(download.call()) as response:
                    if response.is_success:
                        download.opened(response.status_code, wire.plain_headers(response))
                        yield from filter(None, map(download.take, response.iter_raw()))
                        outcome = download.closed()
                    else:
                        response.read()
                        outcome = wire.whole_reply(response)
            except httpx2.RequestError as error:
                outcome = wire.unreachable(error, self.base_url)
            if outcome is None:
                return
            pause = download.pause_seconds(outcome)
            if pause is None:
                settled(outcome).checked()
                return
            self._sleep(pause)

    def _settle(self, call: Call) -> Reply:
        """Send until an outcome stands; the reply may be a refusal."""
        attempt = 0
        while True:
            outcome = self._send(call)
            pause = self._retries.pause_seconds(attempt, outcome, repeatable=call.repeatable)
            if pause is None:
                return settled(outcome)
            attempt += 1
            self._sleep(pause)

    def _send(self, call: Call) -> Outcome:
        try:
            with self._open(call) as response:
                response.read()
                return wire.whole_reply(response)
        except httpx2.RequestError as error:
            return wire.unreachable(error, self.base_url)

    def _open(self, call: Call) -> AbstractContextManager[httpx2.Response]:
        body = call.body.pieces() if isinstance(call.body, MultipartBody) else call.body
        return self._http.stream(
            call.method, call.path, params=call.query or None, headers=wire.request_headers(call), content=body
        )
