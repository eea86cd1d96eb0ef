"""What planning finds about one line."""

import msgspec

from slackwater.domain.input_errors import Problem

HASHED_BYTES = 16_384
"""How much of a prompt is looked at to find out what it shares with others."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The line will be run."""

    custom_id: str
    model: int
    """Place of the served model among the file's, in order of appearance."""
    prefix: bytes
    """The first :data:`HASHED_BYTES` of what the engine reads first: tools, system text, messages, as raw JSON."""
    id_start: int
    """Where in the line the custom_id's JSON string begins, its quote included."""
    id_stop: int
    """Where it ends; both 0 where it does not stand there as it would be written anew."""
    prompts: int
    """How many prompts it holds: more than one only for endpoints that take several."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The line is a request, but one that cannot run: it becomes an error line, and its batch goes on."""

    custom_id: str
    problem: Problem


class Invalid(msgspec.Struct, frozen=True, gc=False):
    """The line is no request: it fails the batch, or becomes an error line where the batch asked for that."""

    custom_id: str | None
    """None where the line has none that could be one."""
    problem: Problem


Verdict = Accepted | Refused | Invalid


def count_prompts(content: object, *, many: bool) -> int:
    """Count the prompts of one line: a list is several where its endpoint says ``many``, but not a list of tokens."""
    if many and isinstance(content, list) and content and not isinstance(content[0], int):
        return len(content)
    return 1
