"""A stream is exact or it raises, keeps one piece ahead, and leaves nothing running behind it."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.blobs.backend import Fetched
from slackwater.blobs.streams import parts_in_order, pieces_of
from slackwater.domain.errors import ObjectMissing, StoreUnavailable


class FakeObjects:
    """A backend's ``fetch`` over a dict, which counts what is open at once."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.fetches: list[tuple[str, int, int]] = []
        self.running = 0
        self.most_running = 0
        self.lies = False

    async def fetch(self, key: str, start: int, length: int) -> Fetched:
        self.fetches.append((key, start, length))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            if key not in self.objects:
                raise ObjectMissing(key)
            data = self.objects[key]
            return Fetched(data[start : start + length], len(data) + (1 if self.lies else 0))
        finally:
            self.running -= 1


async def collected(objects: FakeObjects, key: str, start: int, length: int | None) -> list[bytes]:
    return [piece async for piece in pieces_of(objects.fetch, key, piece_bytes=4, start=start, length=length)]


@settings(deadline=None)
@given(data=st.binary(max_size=40), start=st.integers(0, 50), length=st.none() | st.integers(0, 50))
async def test_any_stretch_of_an_object_is_read_exactly(data: bytes, start: int, length: int | None) -> None:
    objects = FakeObjects(a=data)

    pieces = await collected(objects, "a", start, length)

    assert b"".join(pieces) == (data[start:] if length is None else data[start : start + length])
    assert all(0 < len(piece) <= 4 for piece in pieces)


@settings(deadline=None)
@given(parts=st.lists(st.binary(max_size=20), max_size=12), ahead=st.integers(1, 5))
async def test_many_objects_are_read_in_order(parts: list[bytes], ahead: int) -> None:
    objects = FakeObjects(**{str(number): part for number, part in enumerate(parts)})

    pieces = parts_in_order(objects.fetch, list(objects.objects), piece_bytes=4, ahead=ahead)

    assert b"".join([piece async for piece in pieces]) == b"".join(parts)
    assert objects.most_running <= ahead + 1


async def test_an_object_that_is_shorter_than_promised_raises() -> None:
    objects = FakeObjects(a=b"0123456789")
    objects.lies = True

    with pytest.raises(StoreUnavailable, match="shorter"):
        await collected(objects, "a", 0, None)


async def test_the_next_piece_is_fetched_while_one_is_used() -> None:
    objects = FakeObjects(a=b"0123456789")

    async with aclosing(pieces_of(objects.fetch, "a", piece_bytes=4)) as pieces:
        assert await anext(pieces) == b"0123"
        await asyncio.sleep(0)
        assert objects.fetches == [("a", 0, 4), ("a", 4, 4)]


async def test_a_stream_that_is_left_leaves_nothing_running() -> None:
    objects = FakeObjects(a=bytes(100), b=bytes(100), c=bytes(100))

    async with aclosing(parts_in_order(objects.fetch, ["a", "b", "c", "gone"], piece_bytes=4, ahead=4)) as pieces:
        await anext(pieces)

    assert objects.running == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_missing_part_ends_the_reading() -> None:
    objects = FakeObjects(a=b"xy")
    read: list[bytes] = []

    with pytest.raises(ObjectMissing):
        read.extend([piece async for piece in parts_in_order(objects.fetch, ["a", "gone"], piece_bytes=4, ahead=2)])

    assert asyncio.all_tasks() == {asyncio.current_task()}
