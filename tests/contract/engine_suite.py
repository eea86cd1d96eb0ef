"""What every engine owes the service: one suite, run against each implementation.

A class of tests per implementation inherits :class:`EngineSuite` and gives it a ``subject`` fixture.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from slackwater.domain.errors import EngineTimeout, EngineUnreachable
from slackwater.domain.outcomes import Dead, Done, RetryPolicy, failure, success
from slackwater.domain.replies import Reply, read_object
from slackwater.inference.protocol import Engine, EngineLoad

PATIENCE_SECONDS = 60.0
POLICY = RetryPolicy()


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One engine under test."""

    engine: Engine
    model: str
    max_model_len: int
    endless: bytes
    """A chat body that runs for many seconds, if nobody stops it."""

    def chat(self, text: str, **extra: object) -> bytes:
        """A small chat body with an exact answer."""
        return json.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 8,
                "temperature": 0,
                **extra,
            }
        ).encode()

    async def post(self, path: str, body: bytes, *, timeout_seconds: float = PATIENCE_SECONDS) -> Reply:
        """Post with patience."""
        return await self.engine.post(path, body, timeout_seconds=timeout_seconds)


async def load_where(engine: Engine, wanted: Callable[[EngineLoad], bool]) -> EngineLoad:
    """Look at the engine's load until it is as wanted."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not wanted(load := await engine.load()):
            await asyncio.sleep(0)
    return load


def content(reply: Reply) -> object:
    """The text of a chat completion."""
    return json.loads(reply.body)["choices"][0]["message"]["content"]


class EngineSuite:
    """The contract."""

    async def test_it_is_ready_and_names_its_model(self, subject: Subject) -> None:
        models = await subject.engine.models()

        assert await subject.engine.ready()
        assert [model.max_model_len for model in models if model.name == subject.model] == [subject.max_model_len]

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}),
            ("/v1/completions", {"prompt": "The tide", "max_tokens": 4}),
            ("/v1/responses", {"input": "Say hi.", "max_output_tokens": 16}),
            ("/v1/messages", {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}),
        ],
    )
    async def test_each_endpoint_gives_a_strict_reply_with_usage(
        self, subject: Subject, path: str, body: dict[str, object]
    ) -> None:
        reply = await subject.post(path, json.dumps({"model": subject.model, **body}).encode())

        reading = read_object(reply.body)
        assert reply.status == 200
        assert reading is not None
        assert (reading.is_error, reading.mended, reading.model) == (False, False, subject.model)
        assert reading.usage.input_tokens > 0
        assert reading.usage.output_tokens > 0

    async def test_answers_come_back_to_their_own_requests(self, subject: Subject) -> None:
        bodies = [subject.chat(f"What is {number} plus one?") for number in range(40)]
        alone = [content(await subject.post("/v1/chat/completions", body)) for body in bodies[:3]]

        together = await asyncio.gather(*(subject.post("/v1/chat/completions", body) for body in bodies))

        assert [content(reply) for reply in together[:3]] == alone
        assert {reply.status for reply in together} == {200}

    @pytest.mark.parametrize(
        "spoil",
        [
            {"model": "no-such-model"},
            {"messages": None},
            {"temperature": "hot"},
            {"max_tokens": 0},
            {"max_tokens": 10_000_000},
        ],
    )
    async def test_a_bad_request_is_refused_for_good(self, subject: Subject, spoil: dict[str, object]) -> None:
        reply = await subject.post("/v1/chat/completions", subject.chat("hi", **spoil))

        outcome = failure(reply, policy=POLICY, jitter=0.0)
        assert reply.status in {400, 404, 422}
        assert isinstance(outcome, Dead)
        assert outcome.error.message

    async def test_a_prompt_beyond_the_context_is_a_400(self, subject: Subject) -> None:
        reply = await subject.post("/v1/chat/completions", subject.chat("tide " * subject.max_model_len))

        assert reply.status == 400

    async def test_what_is_no_json_is_refused_for_good(self, subject: Subject) -> None:
        reply = await subject.post("/v1/chat/completions", b'{"model": "x", ')

        assert isinstance(failure(reply, policy=POLICY, jitter=0.0), Dead)

    async def test_a_path_that_does_not_exist_is_a_404(self, subject: Subject) -> None:
        reply = await subject.post("/v1/no/such/path", subject.chat("hi"))

        assert reply.status == 404

    async def test_a_choice_is_held_to(self, subject: Subject) -> None:
        body = subject.chat("Is it high tide?", structured_outputs={"choice": ["yes", "no"]})

        assert content(await subject.post("/v1/chat/completions", body)) in {"yes", "no"}

    async def test_a_request_that_takes_too_long_is_a_timeout_and_frees_its_slot(self, subject: Subject) -> None:
        with pytest.raises(EngineTimeout):
            await subject.post("/v1/chat/completions", subject.endless, timeout_seconds=0.3)

        await load_where(subject.engine, lambda load: load.running == 0)

    async def test_cancelling_a_request_frees_its_slot(self, subject: Subject) -> None:
        call = asyncio.create_task(subject.post("/v1/chat/completions", subject.endless))
        await load_where(subject.engine, lambda load: load.running == 1)

        call.cancel()

        load = await load_where(subject.engine, lambda load: load.running == 0)
        assert (load.waiting, call.cancelled()) == (0, True)

    async def test_others_are_answered_while_one_runs_and_after_it_was_dropped(self, subject: Subject) -> None:
        call = asyncio.create_task(subject.post("/v1/chat/completions", subject.endless))
        await load_where(subject.engine, lambda load: load.running == 1)

        beside = await subject.post("/v1/chat/completions", subject.chat("hi"))
        call.cancel()
        after = await subject.post("/v1/chat/completions", subject.chat("hi"))

        assert isinstance(success(beside), Done)
        assert content(beside) == content(after)

    async def test_a_token_counter_stands_still_only_while_the_engine_does(self, subject: Subject) -> None:
        before = (await subject.engine.load()).tokens_total
        await subject.post("/v1/chat/completions", subject.chat("hi"))
        after = (await subject.engine.load()).tokens_total

        if before is None:
            assert after is None
        else:
            # vLLM's gauges are as old as its last step.
            assert after is not None
            await load_where(subject.engine, lambda load: (load.tokens_total or 0) > before)
        assert (await subject.engine.load()).tokens_total == (await subject.engine.load()).tokens_total

    async def test_a_closed_engine_is_unreachable_and_closing_again_is_fine(self, subject: Subject) -> None:
        await subject.post("/v1/chat/completions", subject.chat("hi"))

        await subject.engine.close()
        await subject.engine.close()

        with pytest.raises(EngineUnreachable):
            await subject.post("/v1/chat/completions", subject.chat("hi"))
        with pytest.raises(EngineUnreachable):
            await subject.engine.models()
        with pytest.raises(EngineUnreachable):
            await subject.engine.load()
        assert not await subject.engine.ready()
