"""The reply objects of the five endpoints, and refusals, as the simulated engine writes them.

Shapes follow vLLM's: the same keys where customers look, an integer ``code`` in errors. Rendered from templates, since
a reply is most of what a request costs here.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from slackwater.domain.replies import Reply
from slackwater.inference.simulated_answers import Saying

_CREATED: Final = 1_700_000_000
"""Every reply's time: an answer is a function of its request alone."""

_CHAT_HEAD: Final = b'{"id":"chatcmpl-%08x","object":"chat.completion","created":%d,"model":%b,"choices":['
_CHAT_CHOICE: Final = (
    b'{"index":%d,"message":{"role":"assistant","content":"%b","refusal":null},"logprobs":null,"finish_reason":"%b"}'
)
_CHAT_TAIL: Final = (
    b'],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null}}'
)
_CHAT: Final = _CHAT_HEAD + b"%b" + _CHAT_TAIL
_CHAT_OF_ONE: Final = _CHAT_HEAD + _CHAT_CHOICE + _CHAT_TAIL
_COMPLETION: Final = (
    b'{"id":"cmpl-%08x","object":"text_completion","created":%d,"model":%b,"choices":[%b],"usage":'
    b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null}}'
)
_COMPLETION_CHOICE: Final = b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":"%b"}'
_EMBEDDING: Final = (
    b'{"id":"embd-%08x","object":"list","created":%d,"model":%b,"data":[%b],"usage":{"prompt_tokens":%d,'
    b'"total_tokens":%d,"completion_tokens":0,"prompt_tokens_details":null}}'
)
_MESSAGE: Final = (
    b'{"id":"msg_%08x","type":"message","role":"assistant","model":%b,"content":[{"type":"text","text":"%b"}],'
    b'"stop_reason":"%b","stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}'
)
_RESPONSE: Final = (
    b'{"id":"resp_%08x","object":"response","created_at":%d,"status":"%b","error":null,"incomplete_details":%b,'
    b'"model":%b,"output":[{"id":"msg_%08x","type":"message","role":"assistant","content":[{"type":"output_text",'
    b'"text":"%b","annotations":[]}],"status":"%b"}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],'
    b'"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,'
    b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}'
)


Rendered = tuple[bytes, int]
"""A reply's body and the output tokens in it."""


def chat(digest: int, model: bytes, sayings: Sequence[Saying], prompt_tokens: int) -> Rendered:
    """Render a ``chat.completion``; ``model`` is JSON text."""
    choices, output = _choices(_CHAT_CHOICE, sayings)
    return _CHAT % (digest, _CREATED, model, choices, prompt_tokens, prompt_tokens + output, output), output


def chat_of_one(digest: int, model: bytes, saying: Saying, prompt_tokens: int) -> Rendered:
    """Render a ``chat.completion`` with one choice, as most are: in one go."""
    text, output, cut = saying
    why = b"length" if cut else b"stop"
    total = prompt_tokens + output
    return _CHAT_OF_ONE % (digest, _CREATED, model, 0, text, why, prompt_tokens, total, output), output


def completion(digest: int, model: bytes, sayings: Sequence[Saying], prompt_tokens: int) -> Rendered:
    """Render a ``text_completion``."""
    choices, output = _choices(_COMPLETION_CHOICE, sayings)
    return _COMPLETION % (digest, _CREATED, model, choices, prompt_tokens, prompt_tokens + output, output), output


def embedding(digest: int, model: bytes, vectors: Sequence[bytes], prompt_tokens: int) -> Rendered:
    """Render a list of embeddings; each vector is JSON text."""
    data = [b'{"index":%d,"object":"embedding","embedding":%b}' % numbered for numbered in enumerate(vectors)]
    return _EMBEDDING % (digest, _CREATED, model, b",".join(data), prompt_tokens, prompt_tokens), 0


def message(digest: int, model: bytes, saying: Saying, prompt_tokens: int) -> Rendered:
    """Render a ``message`` of the Anthropic API."""
    text, tokens, cut = saying
    return _MESSAGE % (digest, model, text, b"max_tokens" if cut else b"end_turn", prompt_tokens, tokens), tokens


def response(digest: int, model: bytes, saying: Saying, prompt_tokens: int) -> Rendered:
    """Render a ``response``."""
    text, tokens, cut = saying
    state = b"incomplete" if cut else b"completed"
    why = b'{"reason":"max_output_tokens"}' if cut else b"null"
    usage = (prompt_tokens, tokens, prompt_tokens + tokens)
    return _RESPONSE % (digest, _CREATED, state, why, model, digest, text, state, *usage), tokens


def refusal(status: int, text: str, *, kind: str, param: str | None = None) -> Reply:
    """Render an error as vLLM does."""
    return Reply(
        status, msgspec.json.encode({"error": {"message": text, "type": kind, "param": param, "code": status}})
    )


def _choices(template: bytes, sayings: Sequence[Saying]) -> Rendered:
    choices = [template % (at, text, b"length" if cut else b"stop") for at, (text, _, cut) in enumerate(sayings)]
    return b",".join(choices), sum(tokens for _, tokens, _ in sayings)
