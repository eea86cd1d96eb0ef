"""The fast way through a file whose lines differ only in custom_id and prompt, as most files' do.

A *frame* is a line that passed every check, with two holes: the text of its custom_id and the value of its prompt.
A later line of the same bytes around the holes is the same request but for them, so all that was checked outside the
holes holds for it, and only what stands in them has to be read: an id of plain ASCII, and a prompt of the plainest
kind (a text, or messages with a role and a text) that is not too long. All else goes the long way, which decides.

That the holes are where they seem to be is proven when the frame is made, by reading it with marks in them.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from slackwater.domain.records import pack_record
from slackwater.domain.sortkeys import sort_key
from slackwater.domain.strict_json import BAD_JSON
from slackwater.domain.tally import Tally
from slackwater.domain.verdicts import HASHED_BYTES, Accepted

_ID_MARK: Final = "\u2039custom_id\u203a"
_CONTENT_MARK: Final = "\u2039content\u203a"


class _Marked(msgspec.Struct, gc=False):
    custom_id: str
    body: dict[str, object]


class _PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message that holds no media, no depth and no surprise."""

    role: str
    content: str
    name: str | None = None


_read_marked: Final = msgspec.json.Decoder(_Marked).decode
_PLAIN: Final[dict[str, Callable[[bytes], Any]]] = {
    "messages": msgspec.json.Decoder(list[_PlainMessage]).decode,
    "prompt": msgspec.json.Decoder(str).decode,
    "input": msgspec.json.Decoder(str | list[_PlainMessage]).decode,
}
"""Strict readers of plain prompts, by the key a prompt stands under. What they take is one prompt."""
_SAFE_IN_ID: Final = bytes(char for char in range(ord(" "), ord("~") + 1) if char not in b'"\\')
"""ASCII that stands for itself in a JSON string. Stripping these from an id of nothing else leaves nothing."""


class Frame(NamedTuple):
    """The bytes of a line around its two holes."""

    head: bytes
    """From the line's start to the custom_id's opening quote, inclusive."""
    middle: bytes
    """From the custom_id's closing quote to the prompt's first byte, exclusive."""
    tail: bytes
    """What follows the prompt."""


Lane = Callable[[bytes, Iterator[bytes], Tally], bytes | None]
"""Takes a line and the lines that follow it for as long as they fit its frame; returns the first that does not."""


class LaneRules(NamedTuple):
    """What is known of every line of a frame, and what its holes may hold."""

    content_key: str
    model: int
    lead: bytes
    """What the engine reads before the prompt."""
    longest_line: float
    """In bytes: a longer one needs a closer look."""
    longest_id: int
    """In characters."""


def fast_lane(frame: Frame, rules: LaneRules) -> Lane:
    """Make the lane of a frame.

    One loop over local names: each call or attribute more is a twentieth of what a line costs. A line that does not
    fit was taken from ``lines`` but is not in the tally.
    """
    head, middle, tail = frame.head, frame.middle, frame.tail + b"\n"
    content_key, model, lead, longest_line, longest_id = rules
    read_content = _PLAIN[content_key]
    id_start, middle_length, tail_length = len(head), len(middle), len(tail)
    space = HASHED_BYTES - len(lead)

    def run(first: bytes, lines: Iterator[bytes], tally: Tally) -> bytes | None:
        misfit: bytes | None = None
        keep, keep_id = tally.records.append, tally.custom_ids.append
        number, offset = tally.number, tally.offset
        for line in chain((first,), lines):
            id_stop, length = line.find(b'"', id_start), len(line) - 1
            custom_id = line[id_start:id_stop]
            fits = line.startswith(middle, id_stop) and line.endswith(tail) and line.startswith(head)
            if (
                not fits
                or length > longest_line
                or custom_id.strip(_SAFE_IN_ID)
                or not 0 < len(custom_id) <= longest_id
            ):
                misfit = line
                break
            content = line[id_stop + middle_length : -tail_length]
            try:
                read_content(content)
            except BAD_JSON:
                misfit = line
                break
            number += 1
            key = sort_key(model, lead + content[:space] if lead else content)
            keep(pack_record(*key, length.bit_length(), offset, length, number, id_start - 1, len(custom_id) + 2))
            keep_id(custom_id)
            offset += length + 1
        tally.take(model, number - tally.number, offset - tally.offset)
        return misfit

    return run


def cut_frame(
    line: bytes, accepted: Accepted, body: Mapping[str, object], *, content_key: str, content: bytes
) -> Frame | None:
    """Make a frame of an accepted line; None where it cannot be done.

    ``content`` is the prompt's value as it stands in the line.
    """
    id_start, id_stop = accepted.id_start, accepted.id_stop
    content_start = line.find(content, line.find(f'"{content_key}"'.encode(), id_stop))
    # A mark that stood in the line before proves nothing.
    marked_before = accepted.custom_id == _ID_MARK or body[content_key] == _CONTENT_MARK
    if not id_stop or content_start < id_stop or marked_before:
        return None
    head, middle = line[: id_start + 1], line[id_stop - 1 : content_start]
    tail = line[content_start + len(content) :]
    marked = b"".join((head, _ID_MARK.encode(), middle, f'"{_CONTENT_MARK}"'.encode(), tail))
    try:
        read = _read_marked(marked)
    except BAD_JSON:
        return None
    proven = read.custom_id == _ID_MARK and read.body == {**body, content_key: _CONTENT_MARK}
    return Frame(head, middle, tail) if proven else None
