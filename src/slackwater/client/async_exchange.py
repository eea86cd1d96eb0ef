"""The asyncio transport: sends calls over httpx2 and waits, deciding nothing itself."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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


class AsyncExchange:
    """One service's connections; the twin of :class:`~slackwater.client.sync_exchange.SyncExchange`."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        retries: Retries,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        timeout_seconds: float = 600.0,
    ) -> None:
        self.base_url = normal_base_url(base_url)
        self._http = httpx2.AsyncClient(
            **wire.client_arguments(self.base_url, api_key, timeout_seconds=timeout_seconds)
        )
        self._retries = retries
        self._sleep = sleep

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._http.aclose()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await self._sleep(seconds)

    async def run(self, operation: Operation[T]) -> T:
        """Send the operation's call until an outcome stands, and read it."""
        return operation.decode(await self._settle(operation.call))

    async def look(self, call: Call, polling: Polling, missed: Callable[[ClientError], object] | None) -> Reply:
        """Send a call until it has a 2xx answer, over an outage as long as ``polling`` allows."""
        misses = 0
        while True:
            try:
                reply = await self._settle(call)
                reply.checked()
            except ClientError as error:
                misses += 1
                pause = polling.outage_pause_seconds(error, misses)
                if pause is None:
                    raise
                if missed is not None:
                    missed(error)
                await self._sleep(pause)
            else:
                return reply

    async def stream(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """Give a file's content piece by piece; a read that breaks is resumed."""
        download = Download(file_id, retries=self._retries)
        while True:
            outcome: Outcome | None
            try:
                async with self._open(download.call()) as response:
                    if response.is_success:
                        download.opened(response.status_code, wire.plain_headers(response))
                        async for piece in response.aiter_raw():
                            if new := download.take(piece):
                                yield new
                        outcome = download.closed()
                    else:
                        await response.aread()
                        outcome = wire.whole_reply(response)
            except httpx2.RequestError as error:
                outcome = wire.unreachable(error, self.base_url)
            if outcome is None:
                return
            pause = download.pause_seconds(outcome)
            if pause is None:
                settled(outcome).checked()
                return
            await self._sleep(pause)

    async def _settle(self, call: Call) -> Reply:
        """Send until an outcome stands; the reply may be a refusal."""
        attempt = 0
        while True:
            outcome = await self._send(call)
            pause = self._retries.pause_seconds(attempt, outcome, repeatable=call.repeatable)
            if pause is None:
                return settled(outcome)
            attempt += 1
            await self._sleep(pause)

    async def _send(self, call: Call) -> Outcome:
        try:
            async with self._open(call) as response:
                await response.aread()
                return wire.whole_reply(response)
        except httpx2.RequestError as error:
            return wire.unreachable(error, self.base_url)

    def _open(self, call: Call) -> AbstractAsyncContextManager[httpx2.Response]:
        body = _read_in_threads(call.body) if isinstance(call.body, MultipartBody) else call.body
        return self._http.stream(
            call.method, call.path, params=call.query or None, headers=wire.request_headers(call), content=body
        )


async def _read_in_threads(body: MultipartBody) -> AsyncIterator[bytes]:
    """Give the body's pieces; a slow disk holds up a thread, never the loop."""
    pieces = body.pieces()
    # None ends it: a StopIteration cannot leave a thread's future.
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
