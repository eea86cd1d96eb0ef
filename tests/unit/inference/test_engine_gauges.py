"""An engine's gauges are found on its page, under the names its make gives them."""

import pytest

from slackwater.inference.engine_gauges import read_load
from slackwater.inference.protocol import EngineLoad

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 4.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting{engine="1"} 2.0
vllm:num_requests_waiting_by_reason{engine="1"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0"} 5.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 17
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (VLLM, EngineLoad(running=7, waiting=2, kv_cache_usage=0.75, preemptions_total=5)),
        (
            'sglang:num_running_reqs{x="y"} 1\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n',
            EngineLoad(running=1, waiting=2, kv_cache_usage=0.5, preemptions_total=None),
        ),
        (
            "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n",
            EngineLoad(running=1, waiting=0, kv_cache_usage=None, preemptions_total=None),
        ),
        ("", EngineLoad(running=None, waiting=None, kv_cache_usage=None, preemptions_total=None)),
    ],
)
def test_gauges_are_summed_over_engine_cores(page: str, load: EngineLoad) -> None:
    assert read_load(page) == load


def test_a_gauge_that_is_no_number_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="many"):
        read_load("vllm:num_requests_running many\n")
