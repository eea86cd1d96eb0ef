"""Results, whatever the engine answers: each request has one, every reader can read it, and the counts are the files'.

The engine is the simulated one behind HTTP, since half of what goes wrong needs a wire.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from slackwater.domain.outcomes import RetryPolicy
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_faults import FaultPlan
from slackwater.inference.simulated_server import serve
from slackwater.inference.simulated_writer import SimulatedModel
from tests.cases.customer import Ended
from tests.cases.inputs import EMBEDDINGS, INPUTS, MODEL, OTHER_MODEL, read
from tests.cases.marks import case
from tests.cases.recording import RecordingEngine, Sent
from tests.cases.site import Site, own_site, running_site
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTEMPTS: Final = 2
WORKER: Final[dict[str, Any]] = {
    "slots": 16,
    "request_timeout_seconds": 0.5,
    "retries": RetryPolicy(
        max_attempts=ATTEMPTS, max_uncounted_attempts=3, first_pause_seconds=0.01, longest_pause_seconds=0.05
    ),
}
REPLIES: Final = {
    reply["name"]: reply for reply in map(json.loads, (INPUTS / "w01_worker_replies.jsonl").read_bytes().splitlines())
}
ONCE: Final = frozenset({"429_retry_after_2", "429_retry_after_date"})
"""Replies after which the engine is in order."""
LINE_ENDS: Final = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What some reader or other takes for the end of a line, beside LF."""


@asynccontextmanager
async def wired(**settings: Any) -> AsyncIterator[RecordingEngine]:
    """Yield a simulated engine that is reached over HTTP; the collected replies name the last of its models."""
    model = SimulatedModel(names=(MODEL, OTHER_MODEL, "test-model"))
    server = await serve(SimulatedEngine(SimulatedSettings(**{"model": model, "max_num_seqs": 16, **settings})))
    engine = OpenAIServer(server.url)
    yield RecordingEngine(engine)
    await engine.close()
    await server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wired_site(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The module's site, with little patience for its engine."""
    async with (
        wired() as engine,
        running_site(module_database_url, tmp_path_factory.mktemp("wired"), engines=[engine], worker=WORKER) as site,
    ):
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(wired_site: Site) -> AsyncIterator[Site]:
    """The same, its record begun anew; nothing that an engine answers is an error of the service's own."""
    wired_site.engine.forget()
    yield wired_site
    assert (wired_site.server_errors(), wired_site.stage_errors()) == ({}, {})


class Answers:
    """What became of one line for each collected reply."""

    def __init__(self, ended: Ended, sent: list[Sent]) -> None:
        self.ended = ended
        self._sent = sent

    def __getitem__(self, name: str) -> dict[str, Any]:
        return (self.ended.answered | self.ended.refused)[name]

    def body(self, name: str) -> dict[str, Any]:
        """The body of a line that was answered."""
        body: dict[str, Any] = self.ended.answered[name]["response"]["body"]
        return body

    def text(self, name: str) -> str | None:
        """What the model said."""
        said: str | None = self.body(name)["choices"][0]["message"]["content"]
        return said

    def tries(self, name: str) -> list[float]:
        """When a line was sent to the engine."""
        return [sent.at for sent in self._sent if f"~fault:{name}".encode() in sent.body]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answers(wired_site: Site) -> Answers:
    """A batch with one line for each collected reply of an engine, and a good one."""
    wired_site.engine.forget()
    marked = {name: f"~fault:{name}{'*1' if name in ONCE else ''}~" for name in REPLIES}
    ended = await wired_site.acme.run(jsonl([line("plain"), *(line(name, mark) for name, mark in marked.items())]))
    return Answers(ended, list(wired_site.engine.sent))


def sound_error(result: dict[str, Any]) -> tuple[int | None, str | None]:
    """Insist that an error line says what happened, in one of the two shapes; return its status and code."""
    response, error = result["response"], result["error"]
    if response is None:
        assert error["code"]
        assert error["message"]
        return None, error["code"]
    assert error is None
    assert 400 <= response["status_code"] < 600
    assert response["request_id"]
    assert set(response["body"]["error"]) == {"message", "type", "param", "code"}
    assert response["body"]["error"]["message"]
    return response["status_code"], response["body"]["error"]["code"]


@case("R01", "R19")
async def test_every_collected_reply_gives_one_result_and_the_counts_are_the_files(answers: Answers) -> None:
    ended = answers.ended

    assert ended.status == "completed"
    assert set(ended.answered) | set(ended.refused) == {"plain", *REPLIES}
    assert ended.counts == (len(REPLIES) + 1, len(ended.answered), len(ended.refused))
    assert set(ended.answered) & set(ended.refused) == set()


@case("R12", "E06")
async def test_an_error_line_has_one_of_two_shapes_and_always_says_what_happened(answers: Answers) -> None:
    said = {name: sound_error(result) for name, result in answers.ended.refused.items()}

    assert said == {
        "object_error_400": (400, "400"),
        "error_body_with_200": (500, "500"),
        "html_502": (502, None),
        "empty_500": (500, None),
        "truncated_json": (None, "invalid_engine_reply"),
        "redirect": (None, "invalid_engine_reply"),
        "wrong_model_echo": (None, "invalid_engine_reply"),
        "close_mid_body": (None, "engine_unreachable"),
        "never_answers": (None, "request_timeout"),
    }
    assert answers["object_error_400"]["response"]["body"]["error"]["message"] == "too long"


@case("R15", "R13")
async def test_a_reply_that_is_fit_to_be_written_is_written_as_it_came(answers: Answers) -> None:
    for name in ("good", "empty_choices", "null_content", "no_usage", "newline_in_text"):
        assert answers.body(name) == json.loads(REPLIES[name]["raw_body"]), name
    assert answers.text("plain") != "hi"
    assert answers.body("plain")["object"] == "chat.completion"
    assert answers.body("plain")["usage"]["completion_tokens"] > 0


@case("R13")
async def test_what_is_no_number_becomes_null_and_the_file_is_json(answers: Answers) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    for raw in answers.ended.output.split(b"\n")[:-1]:
        json.loads(raw, parse_constant=refuse)
    for name in ("nan_logprob", "minus_inf_logprob"):
        assert answers.body(name)["choices"][0]["logprobs"]["content"][0]["logprob"] is None
        assert answers.text(name) == "hi"


@case("R14", "D13")
async def test_odd_text_comes_back_on_one_line_for_every_reader(answers: Answers) -> None:
    assert answers.text("lone_surrogate") == "bad \ufffd half"
    assert answers.text("nul_in_text") == "a\0b"
    assert answers.text("u2028_in_text") == "a\u2028b\u0085c"
    assert answers.text("newline_in_text") == "a\nb\r\nc"
    assert "\ufffd" in (answers.text("latin1_bytes") or "")
    for data in (answers.ended.output, answers.ended.error_file):
        text = data.decode()
        assert LINE_ENDS.search(text) is None
        assert len(text.splitlines()) == data.count(b"\n")


@case("D13")
async def test_text_that_the_database_cannot_hold_fails_nothing_but_its_own_line(site: Site) -> None:
    taken = await site.acme.run(read("p12_nul_escape.jsonl"))
    refused = await site.acme.run(read("p10_lone_surrogate.jsonl"))
    metadata = {"input_file_id": taken.batch["input_file_id"], "endpoint": "/v1/chat/completions"}
    answer = await site.acme.http.post(
        "/v1/batches", json={**metadata, "completion_window": "24h", "metadata": {"note": "a\0b"}}
    )

    assert (taken.status, taken.counts) == ("completed", (2, 2, 0))
    assert (refused.status, [at for at, _ in refused.error_lines]) == ("failed", [2])
    assert answer.status_code == 400


@case("T01", "T02")
async def test_what_may_pass_is_tried_again_and_what_cannot_is_not(answers: Answers) -> None:
    tries = {name: len(answers.tries(name)) for name in REPLIES}

    assert {name for name, count in tries.items() if count == ATTEMPTS} == {
        *("error_body_with_200", "html_502", "empty_500", "truncated_json", "redirect", "close_mid_body"),
        *("wrong_model_echo", "never_answers", "429_retry_after_2", "429_retry_after_date", "503_then_ok"),
    }
    assert set(tries.values()) == {1, ATTEMPTS}
    assert tries["object_error_400"] == 1
    # The line that was turned away twice has its answer, and no error beside it.
    assert {"503_then_ok", *ONCE} <= set(answers.ended.answered)
    first, second = answers.tries("429_retry_after_2")
    assert second - first >= 2


@case("T01", "T03", "O04")
async def test_an_engine_that_stays_full_is_given_up_on_after_a_known_number_of_tries_that_can_be_seen(
    site: Site,
) -> None:
    def retries() -> dict[str, float]:
        return {
            sample.labels["reason"]: sample.value
            for family in site.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "slackwater_line_retries_total"
        }

    before = retries()
    ended = await site.acme.run(jsonl([line("full", "~fault:503~"), line("limited", "~fault:429~"), line("good")]))

    sent = Counter(json.loads(one.body)["messages"][0]["content"] for one in site.engine.sent)
    # Before they end, the engine has to take a small request of the worker's own.
    assert sent.pop("a") >= 1
    assert (ended.status, ended.counts) == ("completed", (3, 1, 2))
    assert sound_error(ended.refused["full"])[0] == 503
    assert sound_error(ended.refused["limited"])[0] == 429
    assert sent == {"~fault:503~": 3, "~fault:429~": 3, "hi": 1}
    # Both say that the engine is full, and neither was the line's fault.
    assert retries()["rate_limited"] - before.get("rate_limited", 0) == 4


@case("R20")
async def test_usage_is_the_sum_over_the_output_file_however_often_lines_were_tried(answers: Answers) -> None:
    bodies = [result["response"]["body"] for result in answers.ended.answered.values()]
    reported = [body["usage"] for body in bodies if "usage" in body]

    usage = answers.ended.batch["usage"]
    assert len(reported) == len(bodies) - 1
    assert usage["input_tokens"] == sum(one["prompt_tokens"] for one in reported)
    assert usage["output_tokens"] == sum(one["completion_tokens"] for one in reported)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@case("R04", "R05", "R06", "E04")
async def test_a_batch_of_which_nothing_succeeded_has_an_error_file_and_no_other(site: Site) -> None:
    failed = failures(site)
    ended = await site.acme.run(jsonl(line(f"r{n}", "~fault:object_error_400~") for n in range(7)))

    shown = await site.acme.sdk.batches.retrieve(ended.batch["id"])
    assert (shown.status, shown.output_file_id) == ("completed", None)
    assert shown.request_counts is not None
    assert (shown.request_counts.total, shown.request_counts.completed, shown.request_counts.failed) == (7, 0, 7)
    assert shown.error_file_id is not None
    content = await site.acme.sdk.files.content(shown.error_file_id)
    assert len(content.text.splitlines()) == 7
    assert failures(site) - failed == 7


def failures(site: Site) -> float:
    """Count the lines that ended in an error, as an operator sees them."""
    return sum(
        sample.value
        for family in site.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "slackwater_lines_total" and sample.labels["outcome"] == "errored"
    )


@case("R05", "R06")
async def test_a_file_that_would_be_empty_is_null_and_every_other_can_be_had_at_once(site: Site) -> None:
    good = await site.acme.run(jsonl([line("a")]))
    one_bad = await site.acme.run(jsonl([line("a"), line("bad", temperature="hot")]))

    assert good.batch["error_file_id"] is None
    assert good.batch["output_file_id"].startswith("file-")
    for ended in (good, one_bad):
        for name in ("output_file_id", "error_file_id"):
            file_id = ended.batch[name]
            if file_id is not None:
                file = await site.acme.sdk.files.retrieve(file_id)
                assert file.bytes == len(await site.acme.content(file_id)) > 0
    assert set(one_bad.refused) == {"bad"}


@case("R16")
async def test_an_embedding_comes_in_the_format_that_was_asked_for(site: Site) -> None:
    ended = await site.acme.run(read("v25_embedding_formats.jsonl"), endpoint=EMBEDDINGS)

    vectors = {
        name: [item["embedding"] for item in result["response"]["body"]["data"]]
        for name, result in ended.answered.items()
    }
    width = len(vectors["em0"][0])
    assert width == len(vectors["em1"][0]) > 1
    assert all(isinstance(number, float) for number in vectors["em0"][0])
    assert len(base64.b64decode(vectors["em2"][0])) == 4 * width
    assert [len(one) for one in vectors["em3"]] == [width, width]
    assert {"em4", "em7"} <= set(ended.refused)
    assert {sound_error(result)[0] for result in ended.refused.values()} == {400}


@case("R01", "R19", "R09")
@pytest.mark.parametrize("ending", ["completed", "cancelled", "expired"])
async def test_an_engine_that_fails_in_every_way_leaves_one_result_a_request_in_every_final_state(
    ending: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    plan = FaultPlan(
        seed=11, shares={"empty_500": 0.05, "never_answers": 0.03, "hang_up": 0.05, "close_mid_body": 0.02}
    )
    async with (
        wired(plan=plan, latency=Latency(decode_seconds_per_token=0.002)) as engine,
        own_site(postgres_server, tmp_path, engines=[engine], worker=WORKER) as site,
    ):
        lines = [line(f"r{n}", f"question {n}") for n in range(500)]
        batch = await site.acme.create(await site.acme.upload(jsonl(lines)))
        if ending != "completed":
            await site.acme.progress(batch["id"], 40)
            if ending == "cancelled":
                assert (await site.acme.cancel(batch["id"])).status_code == 200
            else:
                await site.rows("UPDATE batches SET deadline = now()")
        ended = await site.acme.ended(batch["id"])

        assert ended.status == ending
        assert set(ended.answered) | set(ended.refused) == {f"r{n}" for n in range(500)}
        assert ended.counts == (500, len(ended.answered), len(ended.refused))
        codes = {sound_error(result) for result in ended.refused.values()}
        assert codes <= {
            (500, None),
            *((None, code) for code in ("request_timeout", "engine_unreachable", f"batch_{ending}")),
        }
        assert codes
        assert site.stage_errors() == {}
