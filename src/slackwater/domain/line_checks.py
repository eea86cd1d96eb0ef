"""All checks of one line, in the order in which their findings help most."""

from collections.abc import Mapping
from typing import Final

import msgspec

from slackwater.domain.bodies import STEERING_KEYS, BodyRules, ModelFacts, invalid_body, refused_body, safe_prompt_bytes
from slackwater.domain.endpoints import Endpoint
from slackwater.domain.envelopes import FIELDS, read_envelope, usable_custom_id
from slackwater.domain.frames import Frame, Lane, LaneRules, cut_frame, fast_lane
from slackwater.domain.input_errors import Problem, quoted
from slackwater.domain.limits import InputLimits
from slackwater.domain.strict_json import (
    BAD_JSON,
    MAX_DEPTH,
    NOT_AN_OBJECT,
    TOO_DEEP,
    decode,
    explain,
    repeated_key,
    too_deep,
)
from slackwater.domain.verdicts import HASHED_BYTES, Accepted, Invalid, Refused, Verdict, count_prompts

_TOP_KEYS: Final = {key: f'"{key}"'.encode() for key in FIELDS}
_BODY_KEYS: Final = {key: f'"{key}"'.encode() for key in STEERING_KEYS}

_MODEL: Final = "body.model"

_MOST_LANES: Final = 4
_FREE_FRAMES: Final = 8
_PATIENCE: Final = 100
"""After so many lines that fitted no lane, one more frame is made, and lanes that hardly any line took are closed."""


class _Parts(msgspec.Struct, gc=False):
    body: dict[str, msgspec.Raw]


_read_parts: Final = msgspec.json.Decoder(_Parts).decode
_encode: Final = msgspec.json.Encoder().encode


class LineChecker:
    """Checks the lines of one file, one after another: the first that is accepted says which model the batch is for."""

    def __init__(
        self, *, endpoint: Endpoint, models: Mapping[str, ModelFacts], rules: BodyRules, limits: InputLimits
    ) -> None:
        """``models`` are known by every name that a line may use."""
        self._endpoint = endpoint
        self._models = models
        self._rules = rules
        self._limits = limits
        self._frames_left = _FREE_FRAMES
        self._checked = 0
        self._fast_before = 0
        self.lanes: list[Lane] = []
        """Faster than :meth:`check`, for lines like those it has accepted; the latest first."""
        self.fast_lines = 0
        """How many lines the lanes have taken, as far as the caller says."""
        self.models: list[str] = []
        """The served ids of the models that lines named and could have, in order of appearance."""
        self.names: dict[str, None] = {}
        """The names that lines used, in order of appearance."""

    def check(self, line: bytes) -> Verdict:
        """Return the verdict on a line that has no white space around it. Costs some 15 µs."""
        self._checked += 1
        if self._checked % _PATIENCE == 0:
            self._reconsider_lanes()
        try:
            request = decode(line)
        except BAD_JSON as error:
            return Invalid(None, explain(line, error))
        if not isinstance(request, dict):
            return Invalid(None, NOT_AN_OBJECT)
        limit = self._limits.max_custom_id_chars
        envelope = read_envelope(request, url=self._endpoint.path, max_custom_id_chars=limit)
        if isinstance(envelope, Problem):
            return Invalid(usable_custom_id(request, limit), envelope)
        custom_id, body = envelope
        problem = _nested(line, body) or _repeated(line, body) or invalid_body(body)
        if problem is not None:
            return Invalid(custom_id, problem)
        model = self._model_of(body)
        if isinstance(model, Problem):
            return Invalid(custom_id, model)
        refusal = refused_body(
            body, length=len(line), endpoint=self._endpoint, model=model, media_hosts=self._rules.media_hosts
        )
        if refusal is not None:
            return Refused(custom_id, refusal)
        return self._accept(line, custom_id, body, model)

    def _model_of(self, body: Mapping[str, object]) -> ModelFacts | Problem:
        name = body.get("model")
        if name is None or name == "":
            message = "Missing required parameter: 'model'. Each body names the model it is for."
            return Problem(code="missing_required_parameter", message=message, param=_MODEL)
        if not isinstance(name, str):
            return Problem(code="invalid_request", message="The model must be a string.", param=_MODEL)
        model = self._models.get(name)
        if model is None:
            message = f"The model {quoted(name)} does not exist. GET /v1/models lists those that do."
            return Problem(code="model_not_found", message=message, param=_MODEL, status=404)
        if model.endpoints is not None and self._endpoint.path not in model.endpoints:
            message = f"The model {quoted(name)} does not serve {self._endpoint.path}."
            return Problem(code="model_not_found", message=message, param=_MODEL, status=404)
        if self.models and model.id not in self.models and not self._rules.allow_mixed_models:
            first = next(iter(self.names))
            message = f"This line is for the model {quoted(name)}, but the lines before it are for {quoted(first)}."
            message += " A batch is for one model: send one file for each."
            return Problem(code="mismatched_model", message=message, param=_MODEL)
        if model.id not in self.models:
            self.models.append(model.id)
        self.names[name] = None
        return model

    def _accept(self, line: bytes, custom_id: str, body: dict[str, object], model: ModelFacts) -> Accepted:
        key, many = self._endpoint.content_key, self._endpoint.many_prompts
        parts = _read_parts(line).body
        lead = b"".join(bytes(parts[lead_key]) for lead_key in self._endpoint.lead_keys if lead_key in parts)
        content = bytes(parts.get(key, b""))
        prefix = (lead[:HASHED_BYTES] + content[:HASHED_BYTES])[:HASHED_BYTES]
        token = _encode(custom_id)
        # Wherever these bytes stand, they are the same JSON string.
        id_start = line.find(token)
        id_stop = id_start + len(token) if id_start >= 0 else 0
        number, prompts = self.models.index(model.id), count_prompts(body.get(key), many=many)
        accepted = Accepted(custom_id, number, prefix, max(id_start, 0), id_stop, prompts)
        if content and self._frames_left > 0:
            self._frames_left -= 1
            frame = cut_frame(line, accepted, body, content_key=key, content=content)
            if frame is not None:
                self._keep(frame, lead=lead[:HASHED_BYTES], model=model)
        return accepted

    def _reconsider_lanes(self) -> None:
        self._frames_left += 1
        if self.fast_lines - self._fast_before < _PATIENCE // 2:
            self.lanes = []
        self._fast_before = self.fast_lines

    def _keep(self, frame: Frame, *, lead: bytes, model: ModelFacts) -> None:
        rules = LaneRules(
            content_key=self._endpoint.content_key,
            model=self.models.index(model.id),
            lead=lead,
            longest_line=min(safe_prompt_bytes(model), self._limits.max_line_bytes),
            longest_id=self._limits.max_custom_id_chars,
        )
        self.lanes = [fast_lane(frame, rules), *self.lanes[: _MOST_LANES - 1]]


def _nested(line: bytes, body: Mapping[str, object]) -> Problem | None:
    # What is never opened is never nested; brackets inside strings only make this count too many.
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return None
    return TOO_DEEP if too_deep(body, MAX_DEPTH - 1) else None


def _repeated(line: bytes, body: Mapping[str, object]) -> Problem | None:
    """Find a key that stands twice where readers would disagree on which counts, or that hides behind escapes."""
    tokens = [*_TOP_KEYS.values(), *(_BODY_KEYS[key] for key in body if key in _BODY_KEYS)]
    if all(line.count(token) == 1 for token in tokens):
        return None
    key = repeated_key(line, top=_TOP_KEYS, body=_BODY_KEYS)
    if key is not None:
        message = f"The key {quoted(key)} appears more than once."
        return Problem(code="invalid_request", message=message, param=key)
    if not all(token in line for token in tokens):
        message = "This line writes the name of a key with escapes. Write keys such as 'model' plainly."
        return Problem(code="invalid_request", message=message)
    return None
