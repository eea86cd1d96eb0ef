"""The rules for a request's body that planning can decide; all others are the engine's, which answers 400.

Two kinds of finding. What the customer must change in the file before anything runs (no model, streaming, credentials
or routing in a body) makes the line invalid. What only this one request cannot have (more tokens than the model holds,
media from elsewhere, a chat template of its own) makes the line an error of its own and never fails the batch.

Left to the engine on purpose: types and ranges of sampling parameters, roles, schemas, token ids, and
``prompt_logprobs``, whose memory depends on the engine's own settings.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from slackwater.domain.endpoints import Endpoint
from slackwater.domain.input_errors import Problem, quoted
from slackwater.domain.media import is_plain_text, remote_media, remote_tools
from slackwater.domain.rewriting import OPERATOR_KEYS
from slackwater.domain.strict_json import LARGEST_INTEGER, LEAST_INTEGER

_ROUTING_KEYS: Final = frozenset(
    {
        # Where and as whom clients and gateways would call.
        *("api_base", "api_key", "api_type", "api_version", "base_url", "custom_llm_provider"),
        *("extra_body", "extra_headers", "extra_query", "headers"),
        # Where engines would fetch attention state from, or code to run.
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "kv_transfer_params"),
        *("custom_logit_processor", "logits_processors", "lora_path", "mcp_servers"),
    }
)
_TEMPLATE_KEYS: Final = frozenset({"chat_template", "chat_template_kwargs"})
_SWITCHES: Final = frozenset({"stream", "background"})
_UNUSUAL_KEYS: Final = _ROUTING_KEYS | _TEMPLATE_KEYS | _SWITCHES

PROMPT_KEYS: Final = ("messages", "input", "prompt", "system", "instructions")
"""Where any engine looks for text and media."""
STEERING_KEYS: Final = _UNUSUAL_KEYS | {
    "model",
    "tools",
    *("max_tokens", "max_completion_tokens", "max_output_tokens"),
    *PROMPT_KEYS,
    *OPERATOR_KEYS,
}
"""Keys that may stand in a body once only: readers disagree on which of two counts."""

_TOO_LONG: Final = "context_length_exceeded"

_WORDIEST_TOKEN_BYTES: Final = 32.0
"""More text than this per token no tokenizer reaches over a whole prompt, runs of white space apart."""
_WORDIEST_TOKENS: Final = 8.0
"""The same, as a multiple of the model's own mean where that is known."""


class ModelFacts(Protocol):
    """What is known about a model; None where nothing is."""

    @property
    def id(self) -> str:
        """The name that the engine serves it under."""
        ...

    @property
    def max_model_len(self) -> int | None:
        """Longest prompt plus answer in tokens."""
        ...

    @property
    def endpoints(self) -> frozenset[str] | None:
        """The endpoints it serves."""
        ...

    @property
    def bytes_per_token(self) -> float | None:
        """The learnt mean."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyRules:
    """What the operator allows."""

    media_hosts: frozenset[str] = frozenset()
    """Hosts that media may be fetched from: lower-case names, compared whole."""
    allow_mixed_models: bool = False
    """Whether the lines of one batch may name different models."""


def invalid_body(body: Mapping[str, object]) -> Problem | None:
    """Return what the customer has to change in the file; None when nothing is."""
    if not _UNUSUAL_KEYS.isdisjoint(body):
        for key in sorted(_UNUSUAL_KEYS & body.keys()):
            if problem := _unusual(key, body[key]):
                return problem
    for key, value in body.items():
        if type(value) is int and not LEAST_INTEGER <= value <= LARGEST_INTEGER:
            message = f"The value of {quoted(key)} does not fit in 64 bits."
            return Problem(code="invalid_request", message=message, param=_path(key))
    return None


def refused_body(
    body: Mapping[str, object], *, length: int, endpoint: Endpoint, model: ModelFacts, media_hosts: Collection[str]
) -> Problem | None:
    """Return why this one request cannot run; None when nothing speaks against it. ``param`` is the body's own key.

    ``length`` is the body's in bytes, or more.
    """
    if not _TEMPLATE_KEYS.isdisjoint(body) and _brings_template(body):
        message = "A request may not bring a chat_template of its own. Other template flags are fine."
        return Problem(code="invalid_value", message=message, param="chat_template")
    for key in PROMPT_KEYS:
        value = body.get(key)
        if value is not None and not is_plain_text(value) and remote_media(value, media_hosts):
            message = "Media is not fetched for batch requests. Send it inside the request, as a data: URL or base64."
            return Problem(code="invalid_value", message=message, param=key)
    if "tools" in body and remote_tools(body["tools"], media_hosts):
        message = "Tools that are servers elsewhere cannot be used in a batch."
        return Problem(code="invalid_value", message=message, param="tools")
    return _endless_answer(body, endpoint, model) or _endless_prompt(body, length, endpoint, model)


def safe_prompt_bytes(model: ModelFacts) -> float:
    """Return how long a prompt can be, as JSON, so that it need not be looked at to know that it may fit."""
    if model.max_model_len is None:
        return float("inf")
    return model.max_model_len * _most_bytes_per_token(model)


def _unusual(key: str, value: object) -> Problem | None:
    if value is None or value is False:
        return None
    if key == "stream":
        message = "Streaming is not supported in a batch: set 'stream' to false or leave it out."
        return Problem(code="streaming_unsupported", message=message, param=_path(key))
    if key == "background":
        message = "A batch runs in the background as a whole: set 'background' to false or leave it out."
        return Problem(code="invalid_request", message=message, param=_path(key))
    if key in _ROUTING_KEYS:
        message = f"'{key}' does not belong in the body of a request: where and how it runs is the operator's choice."
        return Problem(code="invalid_request", message=message, param=_path(key))
    return None


def _brings_template(body: Mapping[str, object]) -> bool:
    flags = body.get("chat_template_kwargs")
    nested = flags.get("chat_template") if isinstance(flags, dict) else None
    return body.get("chat_template") is not None or nested is not None


def _endless_answer(body: Mapping[str, object], endpoint: Endpoint, model: ModelFacts) -> Problem | None:
    longest = model.max_model_len
    for key in endpoint.output_limit_keys:
        asked = body.get(key)
        if longest is not None and type(asked) is int and asked >= longest:
            message = f"{key} is {asked}, but prompt and answer together must fit in {_context(longest)}."
            return Problem(code=_TOO_LONG, message=message, param=key)
    return None


def _endless_prompt(body: Mapping[str, object], length: int, endpoint: Endpoint, model: ModelFacts) -> Problem | None:
    longest = model.max_model_len
    if longest is None or length <= safe_prompt_bytes(model) or body.get("truncate_prompt_tokens") is not None:
        return None
    content = body.get(endpoint.content_key)
    prompts = content if endpoint.many_prompts and isinstance(content, list) else [content]
    if any(_least_tokens(prompt, model) > longest for prompt in prompts):
        message = f"The prompt is longer than {_context(longest)}."
        return Problem(code=_TOO_LONG, message=message, param=endpoint.content_key)
    return None


def _context(tokens: int) -> str:
    return f"this model's context length of {tokens} tokens"


def _least_tokens(prompt: object, model: ModelFacts) -> float:
    """Return a lower bound: what the prompt's text comes to with tokens as long as no real text has them."""
    return _text_bytes(prompt) / _most_bytes_per_token(model)


def _most_bytes_per_token(model: ModelFacts) -> float:
    if model.bytes_per_token is None:
        return _WORDIEST_TOKEN_BYTES
    return max(_WORDIEST_TOKEN_BYTES / 2, model.bytes_per_token * _WORDIEST_TOKENS)


def _text_bytes(prompt: object) -> int:
    """Count the bytes of text in a prompt, each run of white space as one: a single token may stand for many spaces."""
    if isinstance(prompt, str):
        return len(" ".join(prompt.split()).encode())
    if isinstance(prompt, list):
        return sum(_text_bytes(part) for part in prompt if isinstance(part, str | dict))
    if isinstance(prompt, dict):
        return _text_bytes(prompt.get("content")) + _text_bytes(prompt.get("text"))
    return 0


def _path(key: str) -> str:
    return f"body.{key}"
