from typing import Any

import pytest

from slackwater.domain.bodies import invalid_body, refused_body, safe_prompt_bytes
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.input_errors import Problem
from tests.planning import Model


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


def refused(
    value: dict[str, Any], *, endpoint: str = "/v1/chat/completions", length: int = 100, **facts: Any
) -> Problem | None:
    model = Model(id="m", **{"max_model_len": 1_000, **facts})
    return refused_body(value, length=length, endpoint=ENDPOINTS[endpoint], model=model, media_hosts=frozenset())


@pytest.mark.parametrize("value", [True, 1, "true", [], {}])
def test_streaming_in_any_spelling_is_refused(value: Any) -> None:
    problem = invalid_body(body(stream=value))

    assert problem is not None
    assert (problem.code, problem.param) == ("streaming_unsupported", "body.stream")


@pytest.mark.parametrize("key", ["stream", "background", "api_key", "chat_template"])
@pytest.mark.parametrize("value", [False, None])
def test_a_switch_that_is_off_is_fine(key: str, value: Any) -> None:
    assert invalid_body(body(**{key: value})) is None


@pytest.mark.parametrize(
    "key", ["api_base", "api_key", "base_url", "extra_headers", "extra_body", "kv_transfer_params", "background"]
)
def test_credentials_and_routing_do_not_belong_in_a_body(key: str) -> None:
    problem = invalid_body(body(**{key: "http://127.0.0.1:9/"}))

    assert problem is not None
    assert (problem.code, problem.param) == ("invalid_request", f"body.{key}")
    assert "127.0.0.1" not in problem.message


@pytest.mark.parametrize(("seed", "fits"), [(2**64 - 1, True), (2**64, False), (-(2**63), True), (-(2**63) - 1, False)])
def test_an_integer_beyond_64_bits_is_refused_not_rounded(*, seed: int, fits: bool) -> None:
    assert (invalid_body(body(seed=seed)) is None) is fits


@pytest.mark.parametrize(
    ("fields", "refuses"),
    [
        ({"chat_template": "{{ x }}"}, True),
        ({"chat_template": None}, False),
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, True),
        ({"chat_template_kwargs": {"chat_template": None}}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": "odd"}, False),
    ],
)
def test_a_template_of_ones_own_is_refused_and_its_flags_pass(*, fields: dict[str, Any], refuses: bool) -> None:
    problem = refused(body(**fields))

    assert (problem is not None) is refuses
    assert problem is None or problem.param == "chat_template"


@pytest.mark.parametrize("key", ["messages", "input", "prompt", "system", "instructions"])
def test_media_from_elsewhere_is_refused_wherever_an_engine_looks(key: str) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}

    problem = refused({"model": "m", key: [{"role": "user", "content": [part]}]})

    assert problem is not None
    assert (problem.code, problem.param) == ("invalid_value", key)


def test_a_tool_server_is_refused() -> None:
    problem = refused(body(tools=[{"type": "mcp", "server_url": "http://10.0.0.1/"}]))

    assert problem is not None
    assert problem.param == "tools"


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_cannot_fit_is_refused_naming_the_limit(key: str) -> None:
    problem = refused(body(**{key: 1_000}))

    assert problem is not None
    assert (problem.code, problem.param) == ("context_length_exceeded", key)
    assert "1000 tokens" in problem.message


@pytest.mark.parametrize("fields", [{"max_tokens": 999}, {"max_tokens": "10000"}, {"max_tokens": True}, {}])
def test_an_answer_that_may_fit_is_the_engines_business(fields: dict[str, Any]) -> None:
    assert refused(body(**fields)) is None


def test_nothing_is_too_long_for_a_model_of_unknown_length() -> None:
    assert refused(body(max_tokens=10**9), length=10**9, max_model_len=None) is None


LONG = "word " * 20_000


@pytest.mark.parametrize(
    ("endpoint", "fields", "refuses"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, True),
        ("/v1/chat/completions", {"messages": [{"content": [{"type": "text", "text": LONG}]}]}, True),
        ("/v1/chat/completions", {"messages": [{"content": LONG}], "truncate_prompt_tokens": 10}, False),
        ("/v1/chat/completions", {"messages": [{"content": " " * 10**6}]}, False),
        (
            "/v1/chat/completions",
            {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]},
            False,
        ),
        ("/v1/chat/completions", {"messages": "odd"}, False),
        ("/v1/completions", {"prompt": LONG}, True),
        ("/v1/completions", {"prompt": ["short", LONG]}, True),
        ("/v1/completions", {"prompt": ["word " * 2_000] * 20}, False),
        ("/v1/completions", {"prompt": [1, 2, 3]}, False),
        ("/v1/embeddings", {}, False),
    ],
)
def test_a_prompt_is_refused_only_when_it_cannot_fit(*, endpoint: str, fields: dict[str, Any], refuses: bool) -> None:
    problem = refused({"model": "m", **fields}, endpoint=endpoint, length=10**6)

    assert (problem is not None) is refuses
    assert problem is None or problem.code == "context_length_exceeded"


def test_a_prompt_of_safe_length_is_not_looked_at() -> None:
    model = Model(id="m", max_model_len=1_000)

    assert refused(body(messages=[{"content": LONG}]), length=int(safe_prompt_bytes(model))) is None


def test_a_learnt_mean_makes_the_bound_tighter_or_wider_but_never_tight() -> None:
    learnt = [safe_prompt_bytes(Model(id="m", max_model_len=1_000, bytes_per_token=mean)) for mean in (0.5, 3.0, 6.0)]

    assert learnt == [16_000, 24_000, 48_000]
    assert safe_prompt_bytes(Model(id="m", max_model_len=1_000)) == 32_000
    assert safe_prompt_bytes(Model(id="m")) == float("inf")
