"""Inputs that are too large to be kept as files, made as they are needed, in pieces."""

import itertools
from collections.abc import Iterator

from tests.cases.inputs import MODEL
from tests.service import jsonl, line

_GROUP = 1000
"""Lines to a piece."""


def many_lines(count: int, *, content: str = "hi", model: str = MODEL) -> Iterator[bytes]:
    """Make ``count`` good requests, all alike but for their ids."""
    for start in range(0, count, _GROUP):
        yield jsonl(line(f"n{n}", content, model=model) for n in range(start, min(start + _GROUP, count)))


def megabytes(count: int) -> Iterator[bytes]:
    """Make ``count`` MiB that look like requests of 8 kB; the same ones over and over: for uploads, not for batches."""
    piece = (jsonl(line(f"m{n}", "y" * 8000) for n in range(130)))[: 1 << 20]
    return itertools.repeat(piece, count)


def bad_lines(count: int) -> bytes:
    """Make lines none of which is JSON."""
    return b"".join(b"bad line %d\n" % n for n in range(count))


def nested(levels: int) -> bytes:
    """Make a line of so many levels between two good ones."""
    deep = b'{"custom_id":"d","x":%b%b}\n' % (b"[" * levels, b"]" * levels)
    return jsonl([line("a")]) + deep + jsonl([line("c")])


def long_line(size_bytes: int) -> bytes:
    """Make a line whose message has so many bytes between two good ones."""
    return jsonl([line("a"), line("long", "x" * size_bytes), line("c")])
