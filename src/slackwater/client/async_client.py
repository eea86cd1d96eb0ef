"""The client for asyncio: each method is one call, retried as :mod:`slackwater.client.retrying` says."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Self

from slackwater.client import batches, files
from slackwater.client.async_exchange import AsyncExchange
from slackwater.client.errors import ClientError
from slackwater.client.multipart_body import Source
from slackwater.client.polling import Polling
from slackwater.client.replies import Batch, Deleted, File, Model
from slackwater.client.retrying import Retries, retry_after_seconds
from slackwater.client.sink import Sink


class AsyncClient:
    """A connection to one service as one customer; an async context manager.

    ``new_key`` mints idempotency keys (letters and digits, unique), ``jitter`` gives 0 to 1; ``base_url`` may end in
    ``/v1`` or have no path. Every method raises the tree of :mod:`slackwater.client.errors`.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        new_key: Callable[[], str],
        jitter: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        max_retries: int = 2,
        timeout_seconds: float = 600.0,
    ) -> None:
        self._exchange = AsyncExchange(
            base_url=base_url,
            api_key=api_key,
            retries=Retries(max_retries=max_retries, jitter=jitter),
            sleep=sleep,
            timeout_seconds=timeout_seconds,
        )
        self._new_key = new_key

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._exchange.close()

    async def create_file(
        self,
        source: Source,
        *,
        purpose: str = "batch",
        expires_after_seconds: int | None = None,
        sent: Callable[[int], object] | None = None,
    ) -> File:
        """Upload a file in pieces. A source that can be read only once is not retried. Also raises its OSError."""
        key = self._new_key()
        return await self._exchange.run(
            files.create_file(source, purpose=purpose, key=key, expires_after_seconds=expires_after_seconds, sent=sent)
        )

    async def files(
        self, *, purpose: str | None = None, order: str = "desc", after: str | None = None, page_size: int = 1000
    ) -> AsyncIterator[File]:
        """List all files, page by page, newest first unless ``order`` is ``asc``."""
        while True:
            page = await self._exchange.run(
                files.list_files(purpose=purpose, order=order, after=after, limit=page_size)
            )
            for item in page.data:
                yield item
            if not page.has_more or not page.data:
                return
            after = page.data[-1].id

    async def get_file(self, file_id: str) -> File:
        """Look at one file."""
        return await self._exchange.run(files.get_file(file_id))

    async def delete_file(self, file_id: str) -> Deleted:
        """Delete one file."""
        return await self._exchange.run(files.delete_file(file_id))

    def stream_file(self, file_id: str) -> AsyncIterator[bytes]:
        """Give a file's content piece by piece; a read that breaks is resumed. The whole content, or an error."""
        return self._exchange.stream(file_id)

    async def download(self, file_id: str, into: Sink) -> int:
        """Write a file's content (in threads), and return how many bytes it had."""
        written = 0
        async with aclosing(self._exchange.stream(file_id)) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(into.write, piece)
                written += len(piece)
        return written

    async def create_batch(
        self,
        *,
        input_file_id: str,
        endpoint: str,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        output_expires_after_seconds: int | None = None,
        invalid_lines: str | None = None,
    ) -> Batch:
        """Start a batch; a retry makes no second one."""
        return await self._exchange.run(
            batches.create_batch(
                input_file_id=input_file_id,
                endpoint=endpoint,
                key=self._new_key(),
                completion_window=completion_window,
                metadata=metadata,
                output_expires_after_seconds=output_expires_after_seconds,
                invalid_lines=invalid_lines,
            )
        )

    async def batches(self, *, after: str | None = None, page_size: int = 100) -> AsyncIterator[Batch]:
        """List all batches, page by page, newest first."""
        while True:
            page = await self._exchange.run(batches.list_batches(after=after, limit=page_size))
            for item in page.data:
                yield item
            if not page.has_more or not page.data:
                return
            after = page.data[-1].id

    async def get_batch(self, batch_id: str) -> Batch:
        """Look at one batch."""
        return await self._exchange.run(batches.get_batch(batch_id))

    async def cancel_batch(self, batch_id: str) -> Batch:
        """Ask for a batch's end; what is done stays. Raises Conflict where it has ended."""
        return await self._exchange.run(batches.cancel_batch(batch_id))

    async def pause_batch(self, batch_id: str) -> Batch:
        """Ask that nothing more of a batch runs for now; its deadline stays."""
        return await self._exchange.run(batches.pause_batch(batch_id))

    async def resume_batch(self, batch_id: str) -> Batch:
        """Let a paused batch run on."""
        return await self._exchange.run(batches.resume_batch(batch_id))

    async def watch(
        self,
        batch_id: str,
        *,
        polling: Polling | None = None,
        missed: Callable[[ClientError], object] | None = None,
    ) -> AsyncIterator[Batch]:
        """Give the batch as it stands, again and again, until it has ended: the last one given has.

        ``missed`` is told of each look that failed and will be tried again.
        """
        pace = polling or Polling()
        operation = batches.get_batch(batch_id)
        for looks in itertools.count():
            reply = await self._exchange.look(operation.call, pace, missed)
            batch = operation.decode(reply)
            yield batch
            if batch.ended:
                return
            await self._exchange.pause(pace.pause_seconds(looks, asked_seconds=retry_after_seconds(reply.headers)))

    async def models(self) -> list[Model]:
        """List the models that requests may name."""
        return (await self._exchange.run(batches.list_models())).data
