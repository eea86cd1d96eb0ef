"""The endpoints a batch may name, and where in a request's body each keeps what planning looks at."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One kind of request."""

    path: str
    content_key: str
    """The key of the prompt."""
    lead_keys: tuple[str, ...] = ()
    """Keys whose values the engine puts before the prompt, in that order."""
    output_limit_keys: tuple[str, ...] = ()
    """Keys that bound the answer, in tokens."""
    many_prompts: bool = False
    """Whether a list is several prompts, each with the context to itself."""


ENDPOINTS: Final[dict[str, Endpoint]] = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint(
            path="/v1/chat/completions",
            content_key="messages",
            lead_keys=("tools",),
            output_limit_keys=("max_tokens", "max_completion_tokens"),
        ),
        Endpoint(
            path="/v1/completions",
            content_key="prompt",
            output_limit_keys=("max_tokens",),
            many_prompts=True,
        ),
        Endpoint(path="/v1/embeddings", content_key="input", many_prompts=True),
        Endpoint(
            path="/v1/responses",
            content_key="input",
            lead_keys=("tools", "instructions"),
            output_limit_keys=("max_output_tokens",),
        ),
        Endpoint(
            path="/v1/messages",
            content_key="messages",
            lead_keys=("tools", "system"),
            output_limit_keys=("max_tokens",),
        ),
    )
}
"""By path."""
