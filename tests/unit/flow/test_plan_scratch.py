import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.errors import Unavailable
from slackwater.domain.scan import Scanned
from slackwater.flow.plan_scratch import SMALL_BYTES, SMALL_LINES, PlanScratch, ScratchFile


def open_below(folder: Path) -> int:
    """How many files this process has open that live in a folder, with or without a name."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link).startswith(str(folder)) for link in links)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, SMALL_BYTES // 3).map(lambda n: bytes([n % 251]) * n), max_size=8),
    st.integers(0, 2 * SMALL_BYTES),
    st.integers(0, 2 * SMALL_BYTES),
)
def test_what_was_appended_is_read_the_same_from_memory_and_from_disk(
    pieces: list[bytes], start: int, length: int
) -> None:
    whole = b"".join(pieces)
    with ScratchFile(Path("/tmp")) as file:
        for piece in pieces:
            file.append(piece)

        assert file.size_bytes == len(whole)
        assert file.read(start, length) == whole[start : start + length]
        assert b"".join(file.pieces(1000)) == whole


def test_a_small_file_needs_no_disk_and_a_large_one_says_when_there_is_none(tmp_path: Path) -> None:
    with ScratchFile(tmp_path / "missing") as file:
        file.append(b"x" * SMALL_BYTES)
        assert file.read(SMALL_BYTES - 1, 2) == b"x"

        with pytest.raises(Unavailable, match="scratch"):
            file.append(b"y")


def test_a_large_file_has_no_name_and_is_given_back(tmp_path: Path) -> None:
    with ScratchFile(tmp_path) as file:
        file.append(b"x" * (SMALL_BYTES + 1))
        assert open_below(tmp_path) == 1
        assert list(tmp_path.iterdir()) == []
    file.close()

    assert open_below(tmp_path) == 0


@pytest.mark.parametrize(
    ("block", "here"),
    [
        (b"x" * SMALL_BYTES, True),
        (b"x" * (SMALL_BYTES + 1), False),
        (b"x\n" * SMALL_LINES, True),
        (b"x\n" * (SMALL_LINES + 1), False),
    ],
)
async def test_only_work_on_little_input_stays_on_the_event_loop(tmp_path: Path, block: bytes, *, here: bool) -> None:
    ours = threading.get_ident()
    with PlanScratch(tmp_path) as scratch:
        assert (await scratch.off_loop_if_long(threading.get_ident, adding=block) == ours) is here
        assert await scratch.off_loop_if_long(threading.get_ident) == ours

        scratch.take(block, Scanned([], [], []))
        assert (await scratch.off_loop_if_long(threading.get_ident) == ours) is here
