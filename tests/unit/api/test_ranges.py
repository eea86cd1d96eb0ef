"""Single ranges of bytes, and everything that is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.api.downloads import content_disposition
from slackwater.api.ranges import Part, Unsatisfiable, Whole, requested_part

SIZE = 100


def asked(header: str | None, *, if_range: str | None = None, size_bytes: int = SIZE) -> Whole | Part | Unsatisfiable:
    return requested_part(range_header=header, if_range=if_range, etag='"tag"', size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("header", "start", "length"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=99-", 99, 1),
        ("bytes=50-5000", 50, 50),
        ("bytes=-1", 99, 1),
        ("bytes=-5000", 0, 100),
        ("Bytes = 1-2".replace(" = ", "="), 1, 2),
        ("bytes= 1 - 2 ", 1, 2),
    ],
)
def test_one_range_is_honoured(header: str, start: int, length: int) -> None:
    assert asked(header) == Part(start=start, length=length)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,2-3",
        "lines=0-1",
        "bytes=\u0661-\u0662",
    ],
)
def test_what_is_no_single_range_is_ignored(header: str | None) -> None:
    assert asked(header) == Whole()


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_behind_the_end_cannot_be_satisfied(header: str) -> None:
    assert asked(header) == Unsatisfiable()


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=0-0", "bytes=-5"])
def test_nothing_of_an_empty_file_can_be_satisfied(header: str) -> None:
    assert asked(header, size_bytes=0) == Unsatisfiable()


def test_a_range_counts_only_for_the_content_the_client_knows() -> None:
    assert asked("bytes=0-1", if_range='"tag"') == Part(start=0, length=2)
    assert asked("bytes=0-1", if_range='"other"') == Whole()
    assert asked("bytes=0-1", if_range='W/"tag"') == Whole()
    assert asked("bytes=0-1", if_range="Sun, 29 Nov 2026 15:00:00 GMT") == Whole()


@given(st.text(alphabet="bytes=-,0123456789 ", max_size=40), st.integers(0, 1000))
def test_a_part_always_lies_inside_the_file(header: str, size_bytes: int) -> None:
    match asked(header, size_bytes=size_bytes):
        case Part(start=start, length=length):
            assert 0 <= start < start + length <= size_bytes


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_file_name_makes_one_plain_header(filename: str) -> None:
    header = content_disposition(filename)

    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
