"""Reads an engine's own gauges out of its Prometheus page.

Every server names them in its own way; a page without them gives None. Counts are summed over label sets (vLLM with
data parallelism has one per engine core), shares are the fullest one's.
"""

import re
from collections.abc import Iterable
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from slackwater.inference.protocol import EngineLoad

_RUNNING: Final = frozenset({"vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"})
_WAITING: Final = frozenset({"vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"})
# vLLM before 0.10 said `gpu_cache`.
_KV_CACHE: Final = frozenset({"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"})
_PREEMPTIONS: Final = frozenset({"vllm:num_preemptions_total"})
_TOKENS: Final = frozenset(
    {
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "sglang:prompt_tokens_total",
        "sglang:generation_tokens_total",
        "llamacpp:prompt_tokens_total",
        "llamacpp:tokens_predicted_total",
    }
)
_OF_INTEREST: Final = re.compile(
    "^(?:" + "|".join(sorted(_RUNNING | _WAITING | _KV_CACHE | _PREEMPTIONS | _TOKENS)) + r")[{ ][^\n]*$", re.MULTILINE
)


def read_load(page: str) -> EngineLoad:
    """Return the load a metrics page tells of. The page is searched first: parsing all of vLLM's costs milliseconds."""
    lines = "\n".join(match[0] for match in _OF_INTEREST.finditer(page)) + "\n"
    samples = [
        (sample.name, sample.value) for family in text_string_to_metric_families(lines) for sample in family.samples
    ]
    return EngineLoad(
        running=_total(value for name, value in samples if name in _RUNNING),
        waiting=_total(value for name, value in samples if name in _WAITING),
        kv_cache_usage=max((value for name, value in samples if name in _KV_CACHE), default=None),
        preemptions_total=_total(value for name, value in samples if name in _PREEMPTIONS),
        tokens_total=_total(value for name, value in samples if name in _TOKENS),
    )


def _total(values: Iterable[float]) -> int | None:
    counts = list(values)
    return int(sum(counts)) if counts else None
