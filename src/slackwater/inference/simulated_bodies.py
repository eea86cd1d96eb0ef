"""What the simulated engine asks of a request body: the types and ranges a real one checks, no more.

Unknown keys pass, as they do in vLLM; so do keys that only a real model could honour.
"""

from typing import Annotated, Literal

import msgspec

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Choices = Annotated[int, msgspec.Meta(ge=1, le=128)]
_Answers = Annotated[list[str], msgspec.Meta(min_length=1)]
_Prompt = (
    str | Annotated[list[str | int | Annotated[list[int], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
)


class _Message(msgspec.Struct, gc=False):
    role: Literal["assistant", "developer", "function", "system", "tool", "user"]
    content: str | list[msgspec.Raw] | None = None


_Messages = Annotated[list[_Message], msgspec.Meta(min_length=1)]


class _StructuredOutputs(msgspec.Struct, gc=False):
    choice: _Answers | None = None


class _Body(msgspec.Struct, gc=False, kw_only=True):
    model: str
    temperature: _Temperature | None = None
    top_p: _Share | None = None
    stream: bool | None = None
    ignore_eos: bool | None = None


class ChatBody(_Body, gc=False, kw_only=True):
    """A body of ``/v1/chat/completions``."""

    messages: _Messages
    max_completion_tokens: _Positive | None = None
    max_tokens: _Positive | None = None
    n: _Choices | None = None
    stop: str | list[str] | None = None
    structured_outputs: _StructuredOutputs | None = None
    guided_choice: _Answers | None = None


class CompletionBody(_Body, gc=False, kw_only=True):
    """A body of ``/v1/completions``."""

    prompt: _Prompt
    max_tokens: _Positive | None = None
    n: _Choices | None = None
    stop: str | list[str] | None = None
    structured_outputs: _StructuredOutputs | None = None
    guided_choice: _Answers | None = None


class EmbeddingBody(_Body, gc=False, kw_only=True):
    """A body of ``/v1/embeddings``."""

    input: _Prompt
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: _Positive | None = None


class ResponsesBody(_Body, gc=False, kw_only=True):
    """A body of ``/v1/responses``."""

    input: str | Annotated[list[dict[str, msgspec.Raw]], msgspec.Meta(min_length=1)]
    max_output_tokens: _Positive | None = None


class MessagesBody(_Body, gc=False, kw_only=True):
    """A body of ``/v1/messages``."""

    messages: _Messages
    max_tokens: _Positive


Body = ChatBody | CompletionBody | EmbeddingBody | ResponsesBody | MessagesBody


def prompts_in(prompt: str | list[str | int | list[int]]) -> int:
    """Count prompts: a string or a list of token ids is one, a list of either as many as it holds."""
    return 1 if isinstance(prompt, str) or isinstance(prompt[0], int) else len(prompt)


def allowed_answers(asked: ChatBody | CompletionBody) -> list[str] | None:
    """Return the answers that a structured-output ``choice`` allows; None where anything may be said."""
    return asked.guided_choice if asked.structured_outputs is None else asked.structured_outputs.choice
