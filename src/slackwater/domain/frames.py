"""The fast way through a file whose lines differ only in custom_id and prompt, as most files' do.

A *frame* is a line that passed every check, with two holes: the text of its custom_id and the value of its prompt.
A later line of the same bytes around the holes is the same request but for them, so all that was checked outside the
holes holds for it, and only what stands in them has to be read: a JSON string, and a prompt of the plainest kind (a
text, or messages with a role and a text) that is not too long. Whatever else goes the long way, which decides.

That the holes are where they seem to be is proven when the frame is made, by reading it with marks in them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from slackwater.domain.strict_json import BAD_JSON
from slackwater.domain.verdicts import HASHED_BYTES, Accepted, count_prompts

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
_read_string: Final = msgspec.json.Decoder(str).decode
_PLAIN: Final[dict[str, Callable[[bytes], Any]]] = {
    "messages": msgspec.json.Decoder(list[_PlainMessage]).decode,
    "prompt": msgspec.json.Decoder(str).decode,
    "input": msgspec.json.Decoder(str | list[str]).decode,
}
"""Strict readers of plain prompts, by the key a prompt stands under."""


class Frame(NamedTuple):
    """The bytes of a line around its two holes."""

    head: bytes
    """From the line's start to the custom_id's opening quote, inclusive."""
    middle: bytes
    """From the custom_id's closing quote to the prompt's first byte, exclusive."""
    tail: bytes
    """What follows the prompt."""


Matcher = Callable[[bytes], Accepted | None]
"""Accepts a line of one frame; None when it is not one, or when something in its holes needs a closer look."""


def frame_matcher(
    frame: Frame, *, content_key: str, model: int, lead: bytes, many_prompts: bool, longest_id: int, longest_line: float
) -> Matcher:
    """Make the matcher of a frame. It is a closure because every attribute it would look up is a tenth of its time.

    ``lead`` is what the engine reads before the prompt; ``longest_line`` is in bytes, ``longest_id`` in characters.
    """
    head, middle, tail = frame
    id_start, middle_length, tail_length = len(head), len(middle), len(tail)
    read_content = _PLAIN[content_key]
    space = HASHED_BYTES - len(lead)

    def match(line: bytes) -> Accepted | None:
        id_stop = line.find(b'"', id_start)
        if not (line.startswith(middle, id_stop) and line.endswith(tail) and line.startswith(head)):
            return None
        content = line[id_stop + middle_length : len(line) - tail_length]
        try:
            custom_id = _read_string(line[id_start - 1 : id_stop + 1])
            value = read_content(content)
        except BAD_JSON:
            return None
        if not 0 < len(custom_id) <= longest_id or len(line) > longest_line:
            return None
        prefix = lead + content[:space] if lead else content[:HASHED_BYTES]
        prompts = count_prompts(value, many=True) if many_prompts else 1
        return Accepted(custom_id, model, prefix, id_start - 1, id_stop + 1, prompts)

    return match


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
