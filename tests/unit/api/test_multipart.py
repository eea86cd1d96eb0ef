"""Uploads: what clients send is taken in flat memory, and what is hostile is refused in linear time."""

import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.api.multipart import ReceivedForm, ReceivedUpload, UploadLimits, receive_upload
from slackwater.blobs.protocol import Written
from slackwater.domain.errors import BadRequest, StoreUnavailable, TooLarge

INPUTS = Path(__file__).parents[2] / "cases" / "inputs"
BOUNDARY = "testboundary"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
LIMITS = UploadLimits(max_file_bytes=1 << 20)


class MemoryWriter:
    """A BlobWriter that keeps what it gets, and says how it ended."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.finished = False
        self.left = False
        self.fails = False

    async def write(self, data: bytes | memoryview) -> None:
        if self.fails:
            raise StoreUnavailable("The object store failed: No space left on device.")
        self.data += data

    async def finish(self) -> Written:
        self.finished = True
        return Written(size_bytes=len(self.data), sha256=hashlib.sha256(self.data).hexdigest())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left = True


class Body:
    """A request's body, cut into chunks, that knows how much of it was read."""

    def __init__(self, data: bytes, cuts: list[int] | None = None, *, breaks_at: int | None = None) -> None:
        edges = [0, *sorted(cuts or []), len(data)]
        self._chunks = [data[start:end] for start, end in pairwise(edges)]
        self._breaks_at = breaks_at
        self.read_bytes = 0

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            self.read_bytes += len(chunk)
            if self._breaks_at is not None and self.read_bytes > self._breaks_at:
                raise ConnectionResetError
            yield chunk
        yield b""


def part(name: str, value: bytes, *, filename: str | None = None, more: str = "") -> bytes:
    named = "" if filename is None else f'; filename="{filename}"'
    header = f'Content-Disposition: form-data; name="{name}"{named}\r\n{more}'
    return f"--{BOUNDARY}\r\n{header}\r\n".encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


PURPOSE = part("purpose", b"batch")
FILE = part("file", b'{"a": 1}\r\n\n{"b": 2}\n', filename="in.jsonl", more="Content-Type: application/jsonl\r\n")


async def receive(
    body: Body | bytes,
    *,
    limits: UploadLimits = LIMITS,
    content_type: str = CONTENT_TYPE,
    content_length: int | None = None,
    check: Callable[[ReceivedForm], None] | None = None,
    writer: MemoryWriter | None = None,
) -> tuple[ReceivedUpload, MemoryWriter]:
    writer = writer or MemoryWriter()
    stream = body.stream() if isinstance(body, Body) else Body(body).stream()
    upload = await receive_upload(
        stream,
        content_type,
        limits=limits,
        open_writer=lambda: writer,
        content_length=content_length,
        check=check,
    )
    return upload, writer


async def outcome(body: bytes, cuts: list[int]) -> tuple[str, object, bytes]:
    """Everything a form comes to, refusals included, for comparing."""
    writer = MemoryWriter()
    try:
        upload, _ = await receive(Body(body, cuts), writer=writer)
    except BadRequest as refused:
        return "refused", str(refused), b""
    return "taken", upload, bytes(writer.data)


@pytest.mark.parametrize("parts", [(PURPOSE, FILE), (FILE, PURPOSE)])
async def test_the_file_may_come_before_or_after_the_purpose(parts: tuple[bytes, ...]) -> None:
    upload, writer = await receive(form(*parts))

    assert upload.fields == {"purpose": "batch"}
    assert (upload.filename, upload.has_file) == ("in.jsonl", True)
    assert bytes(writer.data) == b'{"a": 1}\r\n\n{"b": 2}\n'
    assert upload.written == Written(size_bytes=20, sha256=hashlib.sha256(writer.data).hexdigest())


async def test_the_plain_case_is_taken() -> None:
    upload, writer = await receive((INPUTS / "u01_plain.bin").read_bytes())

    assert upload.fields == {"purpose": "batch"}
    assert upload.filename == "in.jsonl"
    assert [json.loads(line)["custom_id"] for line in writer.data.splitlines() if line] == ["a-1", "a-2"]


@pytest.mark.parametrize("name", ["u01_plain.bin", "u03_trailing_dashes.bin", "u04_preamble.bin"])
@settings(deadline=None)
@given(data=st.data())
async def test_however_a_body_is_cut_the_same_comes_out(name: str, data: st.DataObject) -> None:
    body = (INPUTS / name).read_bytes()
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=40))

    assert await outcome(body, cuts) == await outcome(body, [])


FRAGMENTS = st.sampled_from(
    [
        f"--{BOUNDARY}".encode(),
        f"\r\n--{BOUNDARY}".encode(),
        f"--{BOUNDARY}--".encode(),
        f"--{BOUNDARY[:-3]}".encode(),
        b'Content-Disposition: form-data; name="file"; filename="x"',
        b'Content-Disposition: form-data; name="a"',
        b"Content-Length: 3",
        b"\r\n\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"--",
        b"abc",
        b" ",
        b"\xff",
    ]
)


@settings(deadline=None)
@given(fragments=st.lists(FRAGMENTS, max_size=24), data=st.data())
async def test_however_a_hostile_body_is_cut_the_same_comes_out(fragments: list[bytes], data: st.DataObject) -> None:
    body = b"".join(fragments)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=20))

    cut, in_one = await outcome(body, cuts), await outcome(body, [])

    assert (cut[0], cut[2]) == (in_one[0], in_one[2])


@settings(deadline=None)
@given(fragments=st.lists(FRAGMENTS, max_size=30), cuts=st.lists(st.integers(0, 600), max_size=30))
async def test_the_bytes_of_a_file_are_its_own(fragments: list[bytes], cuts: list[int]) -> None:
    value = b"".join(fragments)
    body = form(PURPOSE, part("file", value, filename="f"))
    if f"\r\n--{BOUNDARY}".encode() in b"\r\n" + value:
        return

    kind, upload, data = await outcome(body, [min(cut, len(body)) for cut in cuts])

    assert (kind, data) == ("taken", value)
    assert isinstance(upload, ReceivedUpload)


async def test_a_byte_at_a_time_is_fine() -> None:
    body = form(PURPOSE, FILE)

    upload, writer = await receive(Body(body, list(range(len(body)))))

    assert upload.written is not None
    assert len(writer.data) == 20


async def test_what_the_python_sdk_sends_is_taken() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        sent.append(request)
        return httpx2.Response(400, json={"error": {"message": "that was all"}})

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as http,
        openai.OpenAI(api_key="x", base_url="http://test/v1", http_client=http, max_retries=0) as client,
        pytest.raises(openai.BadRequestError),
    ):
        client.files.create(
            file=("in put é.jsonl", b'{"a": 1}\n'),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
            extra_body={"tags": ["a", "b"]},
        )

    upload, writer = await receive(sent[0].content, content_type=sent[0].headers["content-type"])

    assert upload.fields == {
        "purpose": "batch",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": "3600",
        "tags[]": "b",
    }
    assert upload.filename == "in put é.jsonl"
    assert writer.data == b'{"a": 1}\n'


async def test_what_the_node_sdk_sends_is_taken() -> None:
    boundary = "openai-7zvxW2bmBOzE1cwk"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="in put é.jsonl"\r\n'
        'Content-Type: application/octet-stream\r\n\r\n{"a": 1}\n\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}--\r\n\r\n'
    ).encode()

    upload, writer = await receive(Body(body, [64, 65]), content_type=f"multipart/form-data; boundary={boundary}")

    assert (upload.fields, upload.filename) == ({"purpose": "batch"}, "in put é.jsonl")
    assert writer.data == b'{"a": 1}\n'


@pytest.mark.parametrize("line", (INPUTS / "f01_file_names.jsonl").read_text().splitlines())
async def test_a_strange_file_name_does_no_harm(line: str) -> None:
    name: str = json.loads(line)["filename"]
    escaped = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")  # as browsers and SDKs do

    body = form(PURPOSE, part("file", b"x", filename=escaped))
    if any(ord(character) < 32 for character in name):
        with pytest.raises(BadRequest, match="control character"):
            await receive(body)
        return
    upload, _ = await receive(body)

    assert upload.filename == name


@pytest.mark.parametrize("filename", ['x\r\nX-Evil: 1"; y="', "x\ny", "x\r\n\r\nfake body"])
async def test_a_file_name_cannot_make_a_header_or_a_body(filename: str) -> None:
    with pytest.raises(BadRequest):
        await receive(form(PURPOSE, part("file", b"x", filename=filename)))


async def test_a_body_without_a_file_says_so() -> None:
    upload, writer = await receive(form(PURPOSE))

    assert (upload.has_file, upload.filename, upload.written) == (False, None, None)
    assert not writer.finished


async def test_a_file_part_without_a_name_is_a_file() -> None:
    upload, writer = await receive(form(PURPOSE, part("file", b"x")))

    assert (upload.has_file, upload.filename) == (True, None)
    assert writer.data == b"x"


async def test_an_empty_file_is_a_file() -> None:
    upload, _ = await receive(form(part("file", b"", filename="x"), PURPOSE))

    assert upload.written == Written(size_bytes=0, sha256=hashlib.sha256().hexdigest())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing like a form",
        PURPOSE,
        form(PURPOSE, FILE)[:-6],
        form(FILE, FILE),
        form(PURPOSE, PURPOSE),
        form(part("purpose", b"\xff\xfe")),
        form(part("purpose", b"x" * 70_000)),
        form(part("purpose", b"x", more="X: " + "y" * 5000 + "\r\n")),
        form(part("purpose", b"x", more="X: y\r\n" * 9)),
        form(part("purpose", b"x", more="Content-Disposition: form-data; name=file\r\n")),
        form(part("file", b"aGk=", filename="x", more="Content-Transfer-Encoding: base64\r\n")),
        form(*(part(f"f{number}", b"") for number in range(65))),
        form(b"--testboundary\r\n\r\nno headers\r\n"),
        form(b"--testboundary\r\nContent-Disposition: attachment; name=file\r\n\r\nx\r\n"),
        form(b"--testboundary\r\nContent-Disposition: form-data\r\n\r\nx\r\n"),
        form(b'--testboundary\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n'),
        form(part("file", b"a\r\n--testboundaryX\r\nb", filename="x")),
    ],
)
async def test_a_malformed_form_is_a_bad_request_and_leaves_nothing(body: bytes) -> None:
    writer = MemoryWriter()

    with pytest.raises(BadRequest):
        await receive(body, writer=writer)

    assert not writer.finished


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=testboundary",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="a\tb"',
        "multipart/form-data; boundary=" + "x" * 71,
        "multipart/form-data; boundary=é",
    ],
)
async def test_a_content_type_without_a_boundary_is_a_bad_request(content_type: str) -> None:
    with pytest.raises(BadRequest):
        await receive(form(PURPOSE, FILE), content_type=content_type)


@pytest.mark.parametrize(
    "spelling", ['Multipart/Form-Data; charset=utf-8; Boundary="testboundary"', CONTENT_TYPE + " ; x=y"]
)
async def test_a_content_type_may_be_spelt_in_many_ways(spelling: str) -> None:
    upload, _ = await receive(form(PURPOSE, FILE), content_type=spelling)

    assert upload.has_file


async def test_an_upload_over_the_limit_is_cut_and_its_rest_read() -> None:
    body = Body(form(PURPOSE, part("file", bytes(3 << 20), filename="x")), list(range(0, 3 << 20, 65536)))
    writer = MemoryWriter()

    with pytest.raises(TooLarge) as caught:
        await receive(body, writer=writer)

    assert caught.value.code == "file_too_large"
    assert "limit of 1048576 bytes" in str(caught.value)
    assert len(writer.data) <= 1 << 20
    assert (writer.left, writer.finished) == (True, False)
    assert body.read_bytes > 3 << 20


async def test_reading_on_has_an_end() -> None:
    limits = UploadLimits(max_file_bytes=1000, drain_bytes=500_000)
    body = Body(form(part("file", bytes(3 << 20), filename="x")), list(range(0, 3 << 20, 65536)))

    with pytest.raises(TooLarge):
        await receive(body, limits=limits)

    assert 500_000 < body.read_bytes < 700_000


async def test_a_body_that_announces_too_much_is_refused_before_a_byte_is_stored() -> None:
    writer = MemoryWriter()

    with pytest.raises(TooLarge, match="announces 900000000 bytes"):
        await receive(form(PURPOSE, FILE), content_length=900_000_000, writer=writer)

    assert not writer.left


async def test_too_much_beside_the_file_is_refused() -> None:
    limits = UploadLimits(max_file_bytes=1000, max_other_bytes=10_000)
    body = Body(form(PURPOSE, FILE) + b"-" * 100_000, list(range(0, 100_000, 1000)))

    with pytest.raises(BadRequest, match="10000 bytes beside its file"):
        await receive(body, limits=limits)


async def test_a_client_that_leaves_leaves_nothing() -> None:
    writer = MemoryWriter()
    body = form(PURPOSE, part("file", bytes(100_000), filename="x"))

    with pytest.raises(ConnectionResetError):
        await receive(Body(body, list(range(0, 100_000, 5000)), breaks_at=50_000), writer=writer)

    assert len(writer.data) > 0
    assert (writer.left, writer.finished) == (True, False)


async def test_a_store_that_fails_is_reported_after_the_body_was_read() -> None:
    body = Body(form(FILE, PURPOSE), [150])
    writer = MemoryWriter()
    writer.fails = True

    with pytest.raises(StoreUnavailable, match="No space left"):
        await receive(body, writer=writer)

    assert body.read_bytes == len(form(FILE, PURPOSE))
    assert writer.left


async def test_a_refused_form_is_never_visible() -> None:
    def only_batches(form: ReceivedForm) -> None:
        if form.fields.get("purpose") != "batch" or form.filename != "in.jsonl" or not form.has_file:
            raise BadRequest("no", param="purpose")

    writer = MemoryWriter()
    with pytest.raises(BadRequest):
        await receive(form(FILE, part("purpose", b"vision")), check=only_batches, writer=writer)
    taken, _ = await receive(form(FILE, PURPOSE), check=only_batches)

    assert (writer.left, writer.finished) == (True, False)
    assert taken.written is not None


def hostile_bodies() -> dict[str, bytes]:
    start = f"--{BOUNDARY}\r\n".encode()
    quotes = b'Content-Disposition: form-data; name="a' + b'; a="\\' * 600
    return {
        "dashes after the end": form(PURPOSE, FILE)[:-2] + b"-" * (5 << 20),
        "a long preamble": b"x" * (5 << 20) + b"\r\n" + form(PURPOSE, FILE),
        "a preamble of near misses": f"\r\n--{BOUNDARY[:-1]}".encode() * 300_000,
        "a file of near misses": form(part("file", f"\r\n--{BOUNDARY[:-1]}".encode() * 300_000, filename="x")),
        "a file of line breaks": form(part("file", b"\r\n" * (2 << 20), filename="x")),
        "an endless header": start + b"X: " + b"y" * (5 << 20),
        "endless headers": start + b"X-Y: z\r\n" * 600_000,
        "thousands of parts": b"".join(part(f"f{number}", b"") for number in range(60_000)),
        "quotes in headers": b"".join(
            start + quotes + b'"\r\n' + quotes.replace(b"C", b"X", 1) + b"\r\n\r\n\r\n" for _ in range(60)
        ),
        "headers without end": start + b"a" * (5 << 20),
    }


@pytest.mark.parametrize("name", hostile_bodies())
async def test_a_hostile_body_costs_time_in_proportion(name: str) -> None:
    body = hostile_bodies()[name]
    chunk = 65536
    limits = UploadLimits(max_file_bytes=64 << 20)
    started = time.process_time()

    with suppress(BadRequest):
        await receive(Body(body, list(range(0, len(body), chunk))), limits=limits)

    assert time.process_time() - started < 0.1 * max(1, len(body) / 1e6)


async def test_random_bytes_never_fail_but_as_a_bad_request() -> None:
    chance = random.Random(7)
    for _ in range(300):
        body = bytearray(form(PURPOSE, FILE))
        for _ in range(chance.randint(1, 12)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            await receive(Body(bytes(body), [chance.randrange(len(body))]))
        except BadRequest:
            continue
