"""One suite for the sync and the async client, against real HTTP with faults."""

import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slackwater.client import AsyncClient, Client
from slackwater.client.errors import (
    BrokenDownload,
    ClientError,
    Conflict,
    NotAuthorized,
    NotFound,
    RateLimited,
    ServiceFailed,
    ServiceUnreachable,
)
from slackwater.client.multipart_body import Source, source_of_path, source_of_stream
from slackwater.client.polling import Polling
from tests.unit.people.fake_service import Answer, CutContent, FakeService, LoseReply


class Caller:
    """Calls a client's methods by name, whichever kind it is, and notes the pauses it would have made."""

    def __init__(self, kind: str, base_url: str, *, api_key: str | None = "k") -> None:
        self.pauses: list[float] = []
        keys = itertools.count(1)

        async def no_pause(seconds: float) -> None:
            self.pauses.append(seconds)

        options: dict[str, Any] = {
            "base_url": base_url,
            "api_key": api_key,
            "new_key": lambda: f"key{next(keys)}",
            "jitter": lambda: 0.0,
        }
        self.client: Client | AsyncClient = (
            Client(**options, sleep=self.pauses.append) if kind == "sync" else AsyncClient(**options, sleep=no_pause)
        )

    async def __call__(self, method: str, *args: object, **options: object) -> Any:
        result = getattr(self.client, method)(*args, **options)
        if isinstance(result, AsyncIterator):
            return [item async for item in result]
        if isinstance(result, Awaitable):
            return await result
        return list(result) if isinstance(result, Iterator) else result


@pytest.fixture(params=["sync", "async"])
async def call(request: pytest.FixtureRequest, base_url: str) -> AsyncIterator[Caller]:
    caller = Caller(request.param, base_url)
    yield caller
    await caller("close")


def source(content: bytes = b'{"custom_id":"1"}\n') -> Source:
    return source_of_stream(io.BytesIO(content), filename="in put é.jsonl")


async def create(call: Caller) -> Any:
    return await call("create_batch", input_file_id="file-1", endpoint="/v1/chat/completions")


async def test_a_file_is_uploaded_listed_read_and_deleted(call: Caller, service: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "in put é.jsonl"
    path.write_bytes(b"0123456789" * 200_000)
    sent: list[int] = []

    made = await call("create_file", source_of_path(path), expires_after_seconds=3600, sent=sent.append)

    assert (made.bytes, made.filename, made.expires_at) == (2_000_000, path.name, made.created_at + 3600)
    assert sent[-1] == 2_000_000
    assert [found.id for found in await call("files", purpose="batch")] == [made.id]
    assert (await call("get_file", made.id)) == made
    into = io.BytesIO()
    assert await call("download", made.id, into) == 2_000_000
    assert into.getvalue() == path.read_bytes()
    assert (await call("delete_file", made.id)).deleted
    with pytest.raises(NotFound, match="No such File object"):
        await call("get_file", made.id)


async def test_the_key_is_sent_and_a_wrong_one_is_told(call: Caller, service: FakeService) -> None:
    service.key = "other"
    with pytest.raises(NotAuthorized) as caught:
        await call("models")
    assert caught.value.code == "invalid_api_key"
    service.key = "k"
    assert [model.id for model in await call("models")] == ["tiny"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_without_a_key_no_authorization_is_sent(kind: str, base_url: str, service: FakeService) -> None:
    caller = Caller(kind, base_url, api_key=None)
    await caller("models")
    await caller("close")
    assert "authorization" not in service.seen[0].headers


async def test_a_create_whose_reply_is_lost_makes_one_batch(call: Caller, service: FakeService) -> None:
    service.faults["POST /v1/batches"].append(LoseReply())
    batch = await create(call)
    assert list(service.batches) == [batch.id]
    assert len(service.requests("POST", "/v1/batches")) == 2
    assert call.pauses == [0.5]


async def test_two_creates_are_two_batches(call: Caller, service: FakeService) -> None:
    await create(call)
    await create(call)
    assert len(service.batches) == 2


async def test_an_upload_whose_reply_is_lost_makes_one_file(call: Caller, service: FakeService) -> None:
    service.faults["POST /v1/files"].append(LoseReply())
    made = await call("create_file", source())
    assert list(service.files) == [made.id]
    first, second = service.requests("POST", "/v1/files")
    assert first.body == second.body


async def test_a_stream_that_can_be_read_once_arrives_whole_and_is_not_sent_again(
    call: Caller, service: FakeService
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    made = await call("create_file", source_of_stream(Pipe(b"abc" * 300_000), filename="in.jsonl"))
    assert service.contents[made.id] == b"abc" * 300_000
    assert service.seen[-1].headers["transfer-encoding"] == "chunked"

    service.faults["POST /v1/files"].append(Answer(status=500))
    with pytest.raises(ServiceFailed):
        await call("create_file", source_of_stream(Pipe(b"abc"), filename="in.jsonl"))
    assert call.pauses == []


async def test_the_services_pause_is_kept(call: Caller, service: FakeService) -> None:
    service.faults["GET /v1/models"].append(Answer(status=429, headers={"Retry-After": "3"}))
    await call("models")
    assert call.pauses == [3.0]


async def test_a_limit_that_stays_is_told_after_the_retries(call: Caller, service: FakeService) -> None:
    service.faults["GET /v1/models"].extend([Answer(status=429)] * 3)
    with pytest.raises(RateLimited):
        await call("models")
    assert call.pauses == [0.5, 1.0]


async def test_a_cancel_of_an_ended_batch_is_a_conflict(call: Caller, service: FakeService) -> None:
    service.add_batch("batch_1", status="completed")
    with pytest.raises(Conflict, match="Cannot cancel a batch with status 'completed'"):
        await call("cancel_batch", "batch_1")


async def test_a_running_batch_is_cancelled(call: Caller, service: FakeService) -> None:
    service.add_batch("batch_1")
    assert (await call("cancel_batch", "batch_1")).status == "cancelling"


async def test_a_running_batch_is_paused_and_resumed(call: Caller, service: FakeService) -> None:
    service.add_batch("batch_1")
    assert (await call("pause_batch", "batch_1")).paused_at is not None
    assert (await call("resume_batch", "batch_1")).paused_at is None


async def test_lists_are_read_page_by_page_to_their_end(call: Caller, service: FakeService) -> None:
    for number in range(7):
        service.add_batch(f"batch_{number}")
        service.add_file(f"file-{number}", b"")
    newest_first = [f"batch_{number}" for number in reversed(range(7))]
    assert [batch.id for batch in await call("batches", page_size=3)] == newest_first
    assert [file.id for file in await call("files", page_size=3, order="asc")] == [f"file-{n}" for n in range(7)]
    assert [seen.query.get("after") for seen in service.requests("GET", "/v1/batches")] == [None, "batch_4", "batch_1"]


async def test_an_empty_list_ends(call: Caller) -> None:
    assert await call("batches") == []


@pytest.mark.parametrize("knows_ranges", [True, False])
async def test_a_download_that_breaks_goes_on_where_it_broke(
    call: Caller, service: FakeService, *, knows_ranges: bool
) -> None:
    content = bytes(range(256)) * 2000
    service.knows_ranges = knows_ranges
    service.add_file("file-1", content)
    service.faults["GET /v1/files/file-1/content"].extend([CutContent(after_bytes=n) for n in (0, 1000, 200_000)])
    into = io.BytesIO()

    await call("download", "file-1", into)

    assert into.getvalue() == content
    assert len(call.pauses) == 3


async def test_a_download_that_gets_nowhere_ends(call: Caller, service: FakeService) -> None:
    service.add_file("file-1", b"abc")
    service.faults["GET /v1/files/file-1/content"].extend([CutContent(after_bytes=0)] * 3)
    with pytest.raises(ServiceUnreachable):
        await call("download", "file-1", io.BytesIO())
    assert call.pauses == [0.5, 1.0]


async def test_content_that_changes_under_a_broken_download_is_told(call: Caller, service: FakeService) -> None:
    class Swaps(io.BytesIO):
        def write(self, piece: Any, /) -> int:
            service.contents["file-1"] = b"B" * 4000
            return super().write(piece)

    service.add_file("file-1", b"A" * 4000)
    service.faults["GET /v1/files/file-1/content"].append(CutContent(after_bytes=1000))
    with pytest.raises(BrokenDownload, match="changed"):
        await call("download", "file-1", Swaps())


async def test_content_that_is_not_there_is_told_by_the_services_words(call: Caller, service: FakeService) -> None:
    with pytest.raises(NotFound, match="No such File object"):
        await call("stream_file", "file-9")


async def test_a_watch_gives_each_look_and_ends_with_the_batch(call: Caller, service: FakeService) -> None:
    service.life = [{"status": "in_progress"}, {"status": "finalizing"}, {"status": "completed"}]
    batch = await create(call)
    looks = await call("watch", batch.id, polling=Polling(interval_seconds=0.25))
    assert [look.status for look in looks] == ["in_progress", "finalizing", "completed"]
    assert call.pauses == [0.2, 0.25]


async def test_a_watch_comes_back_no_sooner_than_the_service_asks(call: Caller, service: FakeService) -> None:
    service.life = [{"status": "in_progress"}, {"status": "completed"}]
    service.reply_headers = {"Retry-After": "9"}
    batch = await create(call)
    await call("watch", batch.id)
    assert call.pauses == [9.0]


async def test_a_watch_outlives_an_outage(call: Caller, service: FakeService) -> None:
    batch = await create(call)
    down = Answer(status=503, headers={"x-should-retry": "false"})
    service.faults[f"GET /v1/batches/{batch.id}"].extend([down, down])
    missed: list[ClientError] = []
    looks = await call("watch", batch.id, polling=Polling(interval_seconds=1.0), missed=missed.append)
    assert [look.status for look in looks] == ["completed"]
    assert [type(error) for error in missed] == [ServiceFailed, ServiceFailed]
    assert call.pauses == [1.0, 2.0]


async def test_a_watch_gives_up_where_its_patience_ends(call: Caller, service: FakeService) -> None:
    service.add_batch("batch_1")
    down = Answer(status=503, headers={"x-should-retry": "false"})
    service.faults["GET /v1/batches/batch_1"].extend([down] * 3)
    with pytest.raises(ServiceFailed):
        await call("watch", "batch_1", polling=Polling(patience=2))


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_where_nothing_listens_it_is_told_with_the_address(kind: str, free_port: int) -> None:
    caller = Caller(kind, f"http://127.0.0.1:{free_port}")
    with pytest.raises(ServiceUnreachable, match=f"no connection at http://127.0.0.1:{free_port}/v1"):
        await caller("models")
    await caller("close")
    assert len(caller.pauses) == 2


def test_a_client_closes_itself(base_url: str) -> None:
    with Client(base_url=base_url, api_key=None, new_key=lambda: "k", jitter=lambda: 0.0) as client:
        assert client.models()


async def test_an_async_client_closes_itself(base_url: str) -> None:
    async with AsyncClient(base_url=base_url, api_key=None, new_key=lambda: "k", jitter=lambda: 0.0) as client:
        assert await client.models()


def test_the_package_has_no_other_names() -> None:
    import slackwater.client  # noqa: PLC0415 -- asked for by a name that is not there

    with pytest.raises(AttributeError, match="nothing_else"):
        _ = slackwater.client.nothing_else
