"""What tests of planning share: models, scans, records read back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, NamedTuple

from slackwater.domain.bodies import BodyRules
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.limits import InputLimits
from slackwater.domain.records import read_record
from slackwater.domain.results import OpenAIDialect
from slackwater.domain.scan import InputScan, Scanned

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as planning knows it."""

    id: str
    max_model_len: int | None = None
    endpoints: frozenset[str] | None = None
    bytes_per_token: float | None = None


MODELS: dict[str, Model] = {
    "test-model": Model(id="test-model", max_model_len=32_768),
    "test-model-b": Model(id="test-model-b"),
    "alias": Model(id="test-model", max_model_len=32_768),
    "small": Model(id="small", max_model_len=2_048),
    "embedder": Model(id="embedder", endpoints=frozenset({"/v1/embeddings"})),
}


class LineOfErrors(NamedTuple):
    """An error line, and the physical line it answers."""

    line: int
    custom_id: str | None
    status: int
    code: str
    param: str | None
    message: str


def scan_of(
    *,
    endpoint: str = CHAT,
    tolerant: bool = False,
    limits: InputLimits | None = None,
    models: Mapping[str, Model] = MODELS,
    allow_mixed_models: bool = False,
    media_hosts: frozenset[str] = frozenset(),
) -> InputScan:
    """Begin a scan."""
    return InputScan(
        endpoint=ENDPOINTS[endpoint],
        models=models,
        rules=replace(BodyRules(), allow_mixed_models=allow_mixed_models, media_hosts=media_hosts),
        limits=limits or InputLimits(),
        dialect=OpenAIDialect(id_prefix="0" * 24),
        tolerant=tolerant,
    )


def fed(scan: InputScan, data: bytes, *sizes: int) -> Scanned:
    """Feed a file as the planner does, in blocks of these sizes over and over, and put together what comes out."""
    whole = Scanned([], [], [])
    start = 0
    for size in cycle(sizes or (1 << 20,)):
        if scan.stopped:
            break
        part = scan.feed(data[start : start + size]) if start < len(data) else scan.finish()
        whole.records += part.records
        whole.refused_records += part.refused_records
        whole.error_lines += part.error_lines
        if start >= len(data):
            break
        start += size
    return whole


def scanned(data: bytes, *sizes: int, **settings: Any) -> tuple[InputScan, Scanned]:
    """Scan a whole file in blocks of these sizes; the settings are those of :func:`scan_of`."""
    scan = scan_of(**settings)
    return scan, fed(scan, data, *sizes)


def lines_of(found: Scanned) -> list[LineOfErrors]:
    """Read the error lines back."""
    answers = []
    for packed, raw in zip(found.refused_records, found.error_lines, strict=True):
        answer = json.loads(raw)
        error = answer["response"]["body"]["error"]
        answers.append(
            LineOfErrors(
                line=read_record(packed).number,
                custom_id=answer["custom_id"],
                status=answer["response"]["status_code"],
                code=error["code"],
                param=error["param"],
                message=error["message"],
            )
        )
    return answers


def request(custom_id: str = "a", content: object = "hi", *, url: str = CHAT, **body: object) -> dict[str, object]:
    """One request as an object."""
    wanted = {"model": "test-model", "messages": [{"role": "user", "content": content}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": wanted}


def jsonl(*requests: Mapping[str, object]) -> bytes:
    """Lines as a file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in requests)
