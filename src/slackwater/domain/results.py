"""The line that a customer reads for each of their requests.

A dialect is chosen once a chunk and turns outcomes into finished lines: bytes with one line feed at their end and no
other line end of any reader. Chunks' lines are joined later without being parsed, so what leaves here is final.
Only the OpenAI dialect exists so far; another one is another class that satisfies :class:`Dialect`.
"""

import re
from typing import Final, Protocol

import msgspec

from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import Done
from slackwater.domain.replies import one_line

_ID_PREFIX: Final = re.compile(r"[0-9a-f]{24}")


class Dialect(Protocol):
    """How one API writes the results of a batch.

    ``number`` tells a line from all others of its batch and is below 2³². ``custom_id`` is the customer's JSON string
    as it stands in the input line, quotes included; :func:`json_string` makes one from text.
    """

    def success(self, number: int, custom_id: bytes, done: Done) -> bytes:
        """Write the line of a request that has its result."""
        ...

    def failure(self, number: int, custom_id: bytes, error: LineError) -> bytes:
        """Write the line of a request that has none: refused, failed, timed out, or never run."""
        ...


class OpenAIDialect:
    """The OpenAI batch API's output and error lines.

    ``id_prefix`` is 24 hex digits of the batch's own (:func:`line_id_prefix`): with the line's number they make its
    ids, so that a line run twice keeps its name. ``model_alias`` is (name the engine serves, name the customer asked
    for): a reply that names the first is written with the second. None, the common case, costs nothing.
    """

    __slots__ = ("_answered", "_names", "_unanswered")

    def __init__(self, *, id_prefix: str, model_alias: tuple[str, str] | None = None) -> None:
        if _ID_PREFIX.fullmatch(id_prefix) is None:
            raise ValueError(f"{id_prefix!r} is not 24 hex digits")
        prefix = id_prefix.encode()
        start = b'{"id":"batch_req_' + prefix + b'%08x","custom_id":%b,"response":'
        answer = b'{"status_code":%d,"request_id":"req_' + prefix + b'%08x","body":%b}'
        self._answered = start + answer + b',"error":null}\n'
        self._unanswered = start + b'null,"error":%b}\n'
        self._names = model_alias

    def success(self, number: int, custom_id: bytes, done: Done) -> bytes:
        """Write an output line. Costs about 1 µs."""
        body = done.body
        if self._names is not None and done.model == self._names[0]:
            body = _with_model(body, self._names[1])
        return self._answered % (number, _escaped(custom_id), done.status, number, body)

    def failure(self, number: int, custom_id: bytes, error: LineError) -> bytes:
        """Write an error line: with the HTTP answer that is to blame, or with the code of why there is none."""
        if error.status is None:
            report = {"code": error.code, "message": error.message}
            return self._unanswered % (number, _escaped(custom_id), one_line(msgspec.json.encode(report)))
        fields = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
        body = one_line(msgspec.json.encode({"error": fields}))
        return self._answered % (number, _escaped(custom_id), error.status, number, body)


def line_id_prefix(batch_id: str) -> str:
    """Return the 24 hex digits that the ids of a batch's lines begin with: its id's own, without its oldest part."""
    return batch_id[-24:]


def json_string(text: str) -> bytes:
    """Write text as a JSON string on one line."""
    return one_line(msgspec.json.encode(text))


def _escaped(custom_id: bytes) -> bytes:
    return custom_id if custom_id.isascii() else one_line(custom_id)


def _with_model(body: bytes, name: str) -> bytes:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(json_string(name))
    return msgspec.json.encode(fields)
