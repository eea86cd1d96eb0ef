import json

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.lines import LineSplitter, custom_id_of, is_utf16


def cut(data: bytes, sizes: list[int], longest: int = 1 << 20) -> tuple[list[bytes], list[int]]:
    """Feed a file in blocks of these sizes, over and over; return its lines and the lengths of the dropped ones."""
    splitter = LineSplitter(longest)
    lines: list[bytes] = []
    dropped: list[int] = []
    start, turn = 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        lines += splitter.feed(data[start : start + size])
        dropped += [splitter.dropped_bytes] if splitter.dropped_bytes else []
        start, turn = start + size, turn + 1
    lines += splitter.finish()
    dropped += [splitter.dropped_bytes] if splitter.dropped_bytes else []
    return lines, dropped


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"", b"a", b"\r", b"\xe2\x80\xa8", b"two words", b"\x85"])), st.lists(st.integers(1, 9))
)
def test_only_line_feeds_end_lines_however_the_file_comes(parts: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(parts)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()

    lines, dropped = cut(data, sizes or [1])

    assert [line.removesuffix(b"\n") for line in lines] == expected
    assert dropped == []


def test_a_byte_order_mark_may_come_in_pieces() -> None:
    assert cut(b"\xef\xbb\xbfone\n", [1]) == ([b"one\n"], [])


def test_an_overlong_line_is_dropped_and_its_length_told() -> None:
    lines, dropped = cut(b"one\n" + b"x" * 1_000 + b"\ntwo\n", [10], longest=50)

    assert lines == [b"one\n", b"two\n"]
    assert dropped == [1_000]


def test_an_overlong_line_without_an_end_is_told_at_the_end_of_the_file() -> None:
    lines, dropped = cut(b"one\n" + b"x" * 1_000, [10], longest=50)

    assert lines == [b"one\n"]
    assert dropped == [1_000]


def test_no_more_of_a_line_is_held_than_the_limit_and_one_block() -> None:
    splitter = LineSplitter(100)

    for _ in range(1_000):
        splitter.feed(b"x" * 64)

    assert len(splitter._rest) <= 164


def test_utf16_and_utf32_are_told_by_their_first_bytes() -> None:
    text = '{"custom_id": "a"}\n'

    assert all(is_utf16(text.encode(name)) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"))
    assert not is_utf16(text.encode())
    assert not is_utf16(b"")


def test_a_custom_id_is_read_from_a_line_that_is_otherwise_wrong() -> None:
    assert custom_id_of(b'{"url": 5, "custom_id": "x"}') == "x"
    assert custom_id_of(json.dumps({"custom_id": 5}).encode()) is None
    assert custom_id_of(b"no json") is None
