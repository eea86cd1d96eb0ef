"""Requests that are JSON but not right: refused early with their line, or answered as the engine would alone."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from slackwater.domain.bodies import BodyRules
from slackwater.embedded.postgres import EmbeddedPostgres
from tests.cases import inputs
from tests.cases.databases import fresh_database
from tests.cases.engine_cases import check_bad_types, check_long_prompt, check_too_many_tokens
from tests.cases.inputs import EMBEDDINGS, MODEL, OTHER_MODEL, SMALL_MODEL, read
from tests.cases.marks import case
from tests.cases.site import Site, running_site
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a file's errors must be."""

    errors: Mapping[int, tuple[str, str]]
    """Code and param by physical line."""
    says: tuple[str, ...]
    """Words that stand in every message."""


REFUSED = [
    pytest.param(
        "v01_dup_custom_id.jsonl",
        Refusal(errors={3: ("duplicate_custom_id", "custom_id")}, says=("'a-1'", "line 1")),
        marks=case("V01"),
        id="V01",
    ),
    pytest.param(
        "v02_custom_id_missing_types.jsonl",
        Refusal(
            errors={2: ("missing_required_parameter", "custom_id")}
            | dict.fromkeys((3, 4, 5, 6, 7), ("invalid_custom_id", "custom_id")),
            says=("custom_id",),
        ),
        marks=case("V02"),
        id="V02",
    ),
    pytest.param(
        "v03_custom_id_long.jsonl",
        Refusal(errors={2: ("invalid_custom_id", "custom_id")}, says=("600 characters", "at most 512")),
        marks=case("V03"),
        id="V03",
    ),
    pytest.param(
        "v04_stream_true.jsonl",
        Refusal(errors={2: ("streaming_unsupported", "body.stream")}, says=("Streaming is not supported",)),
        marks=case("V04"),
        id="V04",
    ),
    pytest.param(
        "v05_method_bad_missing.jsonl",
        Refusal(
            errors={
                2: ("invalid_method", "method"),
                4: ("missing_required_parameter", "method"),
                5: ("missing_required_parameter", "url"),
                6: ("missing_required_parameter", "body"),
            },
            says=(),
        ),
        marks=case("V05"),
        id="V05",
    ),
    pytest.param(
        "v24_old_params_form.jsonl",
        Refusal(
            errors=dict.fromkeys((1, 2), ("missing_required_parameter", "method")), says=("'method', 'url', 'body'",)
        ),
        marks=case("S05"),
        id="S05",
    ),
    pytest.param(
        "v06_url_other_endpoint.jsonl",
        Refusal(errors={2: ("invalid_url", "url")}, says=("'/v1/embeddings'", "'/v1/chat/completions'")),
        marks=case("V06"),
        id="V06-endpoint",
    ),
    pytest.param(
        "v07_url_spellings.jsonl",
        Refusal(
            errors=dict.fromkeys(range(1, 8), ("invalid_url", "url")), says=("endpoint is '/v1/chat/completions'",)
        ),
        marks=case("V06"),
        id="V06-spellings",
    ),
    pytest.param(
        "v09_unknown_model.jsonl",
        Refusal(errors={2: ("model_not_found", "body.model")}, says=("'no-such-model'",)),
        marks=case("V08"),
        id="V08-unknown",
    ),
    pytest.param(
        "v10_missing_model.jsonl",
        Refusal(errors=dict.fromkeys((2, 3, 4), ("missing_required_parameter", "body.model")), says=("'model'",)),
        marks=case("V08"),
        id="V08-missing",
    ),
    pytest.param(
        "v11_mixed_models.jsonl",
        Refusal(errors={2: ("mismatched_model", "body.model")}, says=(f"'{OTHER_MODEL}'", f"'{MODEL}'")),
        marks=case("V09"),
        id="V09",
    ),
]


@pytest.mark.parametrize(("name", "refusal"), REFUSED)
async def test_a_wrong_request_fails_the_batch_with_its_line_before_anything_runs(
    site: Site, name: str, refusal: Refusal
) -> None:
    ended = await site.acme.run(read(name))

    assert ended.status == "failed"
    assert {error["line"]: (error["code"], error["param"]) for error in ended.errors} == refusal.errors
    for error in ended.errors:
        assert all(words in error["message"] for words in refusal.says), error
    assert site.engine.sent == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("v02_custom_id_missing_types.jsonl", marks=case("V02")),
        pytest.param("v03_custom_id_long.jsonl", marks=case("V03")),
        pytest.param("v04_stream_true.jsonl", marks=case("V04")),
        pytest.param("v05_method_bad_missing.jsonl", marks=case("V05")),
        pytest.param("v06_url_other_endpoint.jsonl", marks=case("V06")),
        pytest.param("v09_unknown_model.jsonl", marks=case("V08")),
        pytest.param("v10_missing_model.jsonl", marks=case("V08")),
        pytest.param("v11_mixed_models.jsonl", marks=case("V09")),
    ],
)
async def test_the_same_request_is_only_its_own_error_where_the_batch_asks_for_that(site: Site, name: str) -> None:
    data = read(name)
    errors = (await site.acme.run(data)).errors

    ended = await site.acme.run(data, invalid_lines="error")

    total = len(inputs.lines(data))
    assert ended.status == "completed"
    assert ended.counts == (total, total - len(errors), len(errors))
    refused = [json.loads(one)["response"] for one in ended.error_file.splitlines()]
    shown = [(one["body"]["error"]["message"], one["body"]["error"]["code"]) for one in refused]
    assert sorted(shown) == sorted((error["message"], error["code"]) for error in errors)
    assert {one["status_code"] for one in refused} <= {400, 404}
    assert len(site.engine.sent) == total - len(errors)


@case("V01")
async def test_a_repeated_custom_id_fails_the_batch_whatever_it_asks_for(site: Site) -> None:
    ended = await site.acme.run(read("v01_dup_custom_id.jsonl"), invalid_lines="error")

    assert ended.error_lines == [(3, "duplicate_custom_id")]


@case("V03")
async def test_a_custom_id_of_the_longest_allowed_length_comes_back_whole(site: Site) -> None:
    longest = ["L" * 512, "é" * 512, "😀" * 512]

    ended = await site.acme.run(jsonl(line(custom_id) for custom_id in longest))

    assert set(ended.answered) == set(longest)


@case("V04")
async def test_stream_false_and_null_pass(site: Site) -> None:
    fine = [one for one in inputs.lines(read("v04_stream_true.jsonl")) if b'"stream": true' not in one]

    ended = await site.acme.run(b"\n".join(fine))

    assert ended.counts == (3, 3, 0)


@case("V06")
async def test_a_url_is_compared_with_the_endpoint_the_batch_was_created_with(site: Site) -> None:
    ended = await site.acme.run(read("v06_url_other_endpoint.jsonl"), endpoint=EMBEDDINGS)

    assert ended.error_lines == [(1, "invalid_url")]
    assert "'/v1/chat/completions'" in ended.errors[0]["message"]


@case("V06")
async def test_the_message_repeats_the_url_that_was_found(site: Site) -> None:
    data = read("v07_url_spellings.jsonl")

    ended = await site.acme.run(data)

    for error, raw in zip(ended.errors, inputs.lines(data), strict=True):
        assert f"'{json.loads(raw)['url']}'" in error["message"]


@pytest_asyncio.fixture(loop_scope="module")
async def mixing_site(postgres_server: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose operator allows several models in one batch."""
    with fresh_database(postgres_server) as url:
        async with running_site(url, tmp_path, rules=BodyRules(allow_mixed_models=True)) as site:
            yield site


@case("V09")
async def test_each_line_runs_on_its_own_model_where_the_operator_allows_several(mixing_site: Site) -> None:
    ended = await mixing_site.acme.run(read("v11_mixed_models.jsonl"))

    assert ended.counts == (3, 3, 0)
    models = {custom_id: one["response"]["body"]["model"] for custom_id, one in ended.answered.items()}
    assert models == {"a-1": MODEL, "mb": OTHER_MODEL, "a-3": MODEL}


@case("V10")
async def test_an_odd_parameter_ends_as_the_engine_answers_it_alone(site: Site) -> None:
    await check_bad_types(site, site.engine, MODEL)


@case("V11")
async def test_a_bound_on_the_answer_that_cannot_fit_is_that_lines_error(site: Site) -> None:
    await check_too_many_tokens(site, MODEL)


@case("V11")
async def test_a_prompt_that_cannot_fit_is_that_lines_error(site: Site) -> None:
    await check_long_prompt(site, SMALL_MODEL)


@case("V19")
async def test_a_bad_file_makes_a_batch_that_turns_failed_and_a_strict_sdk_can_read_why(site: Site) -> None:
    sdk = site.acme.sdk
    site.held.add("plan")
    file = await sdk.files.create(file=("in.jsonl", read("v01_dup_custom_id.jsonl")), purpose="batch")
    created = await sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    waiting = await sdk.batches.retrieve(created.id)
    site.held.remove("plan")
    await site.acme.until(created.id)

    failed = await sdk.batches.retrieve(created.id)

    assert (created.status, waiting.status, failed.status) == ("validating", "validating", "failed")
    assert created.errors is None
    assert failed.failed_at is not None
    assert (failed.output_file_id, failed.error_file_id) == (None, None)
    assert failed.errors is not None
    assert failed.errors.data is not None
    (error,) = failed.errors.data
    assert (error.code, error.line, error.param) == ("duplicate_custom_id", 3, "custom_id")
    assert error.message
