import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.downloading import Download
from slackwater.client.errors import BrokenDownload, ServiceUnreachable, UnexpectedReply
from slackwater.client.retrying import Retries

BROKE = ServiceUnreachable("the connection broke")


def new() -> Download:
    return Download("file-1", retries=Retries(max_retries=2, jitter=lambda: 0.0))


def opened(*, total: int = 10, etag: str | None = '"a"') -> Download:
    download = new()
    headers = {"content-length": str(total)}
    download.opened(200, headers if etag is None else {**headers, "etag": etag})
    return download


def asked(download: Download) -> dict[str, str]:
    return dict(download.call().headers)


@given(content=st.binary(max_size=60), cuts=st.lists(st.integers(0, 20), max_size=12), knows_ranges=st.booleans())
def test_content_is_whole_wherever_the_connection_breaks(
    *, content: bytes, cuts: list[int], knows_ranges: bool
) -> None:
    download, got = new(), b""
    for cut in [*cuts, None]:
        wanted = asked(download).get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and knows_ranges else 0
        rest = content[start:]
        headers = {"content-length": str(len(rest)), "etag": '"a"'}
        if wanted and knows_ranges:
            headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        download.opened(206 if wanted and knows_ranges else 200, headers)
        for byte in rest[:cut]:
            got += download.take(bytes([byte]))
        if download.closed() is None:
            break
    assert got == content
    assert download.closed() is None


def test_the_first_request_asks_for_everything_as_stored() -> None:
    assert asked(new()) == {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}


def test_what_is_missing_is_asked_for_only_if_it_is_still_the_same_content() -> None:
    download = opened()
    download.take(b"1234")
    assert (asked(download)["Range"], asked(download)["If-Range"]) == ("bytes=4-", '"a"')


def test_a_weak_etag_is_not_used_as_a_condition() -> None:
    download = opened(etag='W/"a"')
    download.take(b"1234")
    assert "If-Range" not in asked(download)


def test_an_answer_that_ends_early_is_not_whole() -> None:
    download = opened()
    download.take(b"1234")
    assert isinstance(download.closed(), ServiceUnreachable)


def test_more_than_was_announced_is_refused() -> None:
    with pytest.raises(BrokenDownload, match="more came"):
        opened(total=3).take(b"1234")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {"content-range": "bytes 5-9/10"}),
        (206, {"content-range": "bytes 4-9/11"}),
        (206, {"content-range": "nonsense"}),
        (206, {}),
        (206, {"content-range": "bytes 4-9/10", "etag": '"b"'}),
        (200, {"content-length": "10", "etag": '"b"'}),
        (200, {"content-length": "11", "etag": '"a"'}),
    ],
)
def test_other_content_is_never_joined_to_what_came_before(status: int, headers: dict[str, str]) -> None:
    download = opened()
    download.take(b"1234")
    with pytest.raises(BrokenDownload):
        download.opened(status, headers)


@pytest.mark.parametrize(
    ("status", "headers"), [(204, {}), (206, {}), (200, {"content-encoding": "gzip", "content-length": "5"})]
)
def test_an_answer_that_is_no_content_is_refused(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(UnexpectedReply):
        new().opened(status, headers)


def test_content_without_a_length_is_whole_when_it_ends_well() -> None:
    download = new()
    download.opened(200, {})
    download.take(b"12")
    assert download.closed() is None


def test_retries_are_counted_anew_after_each_byte_that_came() -> None:
    download = opened()
    assert [download.pause_seconds(BROKE) for _ in range(3)] == [0.5, 1.0, None]
    download = opened()
    download.pause_seconds(BROKE)
    download.take(b"1")
    assert [download.pause_seconds(BROKE) for _ in range(3)] == [0.5, 1.0, None]
