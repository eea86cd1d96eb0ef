import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.batches import cancel_batch, create_batch, get_batch, list_batches
from slackwater.client.calls import Call, normal_base_url, segment
from slackwater.client.errors import SourceChanged
from slackwater.client.files import create_file, list_files
from slackwater.client.multipart_body import PIECE_BYTES, MultipartBody, source_of_path, source_of_stream
from slackwater.domain.errors import BadRequest
from tests.unit.people.fake_service import Seen, multipart_parts


class OnlyOnce(io.BytesIO):
    """A stream like a pipe: it cannot go back."""

    def seekable(self) -> bool:
        return False


class Sized(io.BytesIO):
    """Remembers the largest read that was asked of it."""

    largest = 0

    def read(self, length: int | None = -1, /) -> bytes:
        self.largest = max(self.largest, length or 0)
        return super().read(length)


def body_of(content: bytes, *, filename: str = "in.jsonl", seconds: int | None = None) -> MultipartBody:
    source = source_of_stream(io.BytesIO(content), filename=filename)
    body = create_file(source, purpose="batch", key="k1", expires_after_seconds=seconds).call.body
    assert isinstance(body, MultipartBody)
    return body


def json_of(call: Call) -> Any:
    assert isinstance(call.body, bytes)
    return msgspec.json.decode(call.body)


def test_a_create_carries_its_idempotency_key_and_only_what_was_asked_for() -> None:
    call = create_batch(input_file_id="file-1", endpoint="/v1/embeddings", key="abc").call
    assert (call.method, call.path) == ("POST", "/batches")
    assert ("Idempotency-Key", "abc") in call.headers
    assert json_of(call) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
    }


def test_a_create_carries_every_option() -> None:
    call = create_batch(
        input_file_id="file-1",
        endpoint="/v1/embeddings",
        key="abc",
        completion_window="7d",
        metadata={"team": "blue"},
        output_expires_after_seconds=3600,
        invalid_lines="error",
    ).call
    body = json_of(call)
    assert body["metadata"] == {"team": "blue"}
    assert body["output_expires_after"] == {"anchor": "created_at", "seconds": 3600}
    assert (body["completion_window"], body["invalid_lines"]) == ("7d", "error")


def test_lists_ask_for_one_page_after_an_id() -> None:
    assert list_batches(after="batch_1", limit=2).call.query == (("limit", "2"), ("after", "batch_1"))
    assert list_files(purpose="batch", after="file-1", limit=5).call.query == (
        ("limit", "5"),
        ("order", "desc"),
        ("purpose", "batch"),
        ("after", "file-1"),
    )


def test_a_cancel_has_no_body() -> None:
    assert cancel_batch("batch_1").call.body is None


def test_an_id_cannot_leave_its_path_segment() -> None:
    assert get_batch("a/b c?d#e%").call.path == "/batches/a%2Fb%20c%3Fd%23e%25"


@pytest.mark.parametrize("identifier", ["", ".", ".."])
def test_what_can_be_no_path_segment_is_refused(identifier: str) -> None:
    with pytest.raises(BadRequest):
        segment(identifier)


@pytest.mark.parametrize(
    ("given_url", "normal"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("https://h/batch/v1", "https://h/batch/v1"),
    ],
)
def test_a_base_url_needs_no_version_and_no_exact_slash(given_url: str, normal: str) -> None:
    assert normal_base_url(given_url) == normal


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://h/v1", "http://", "http://h/v1?x=1", "http://h/v1#x"])
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        normal_base_url(url)


@given(content=st.binary(max_size=300), seconds=st.none() | st.integers(3600, 2592000))
def test_an_upload_says_its_exact_length_and_gives_the_bytes_back(content: bytes, seconds: int | None) -> None:
    body = body_of(content, seconds=seconds)
    sent = b"".join(body.pieces())
    assert len(sent) == body.length_bytes
    headers = {"content-type": body.content_type}
    parts = multipart_parts(Seen(method="POST", path="/v1/files", query={}, headers=headers, body=sent))
    assert parts["file"] == ("in.jsonl", content)
    assert parts["purpose"][1] == b"batch"
    assert list(parts)[-1] == "file"


def test_an_upload_can_be_sent_twice_with_the_same_bytes() -> None:
    body = body_of(b"one\ntwo\n")
    assert b"".join(body.pieces()) == b"".join(body.pieces())


def test_an_upload_begins_where_the_stream_stands() -> None:
    stream = io.BytesIO(b"skip me")
    stream.seek(5)
    source = source_of_stream(stream, filename="x")
    assert source.length_bytes == 2
    with source.open() as opened:
        assert opened.read(10) == b"me"


def test_a_file_name_cannot_add_headers() -> None:
    assert b'filename="a%22%0D%0Ab \xc3\xa9.jsonl"' in body_of(b"", filename='a"\r\nb é.jsonl').head


def test_a_stream_that_cannot_go_back_is_sent_once_without_a_length() -> None:
    source = source_of_stream(OnlyOnce(b"abc"), filename="x")
    call = create_file(source, purpose="batch", key="k").call
    assert isinstance(call.body, MultipartBody)
    assert call.body.length_bytes is None
    assert not call.repeatable


def test_an_upload_is_read_piece_by_piece() -> None:
    stream = Sized(b"x" * (3 * PIECE_BYTES + 1))
    source = source_of_stream(stream, filename="x")
    progress: list[int] = []
    body = MultipartBody(fields=(), source=source, boundary="b", sent=progress.append)
    assert max(len(piece) for piece in body.pieces()) == PIECE_BYTES
    assert stream.largest == PIECE_BYTES
    assert progress == [PIECE_BYTES, 2 * PIECE_BYTES, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 1]


def test_a_file_that_grows_meanwhile_is_cut_at_the_announced_length(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"12345")
    body = MultipartBody(fields=(), source=source_of_path(path), boundary="b")
    path.write_bytes(b"1234567")
    assert sum(map(len, body.pieces())) == body.length_bytes


def test_a_file_that_shrinks_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"12345")
    body = MultipartBody(fields=(), source=source_of_path(path), boundary="b")
    path.write_bytes(b"12")
    with pytest.raises(SourceChanged, match="5 bytes"):
        list(body.pieces())
