"""The simulated engine's answers: a function of the body alone, in the endpoints' shapes, checked like a real one's."""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from slackwater.inference.simulated_answers import OutputLength, Speaker
from slackwater.inference.simulated_writer import SimulatedModel, Writer

WRITER = Writer(SimulatedModel(names=("test-model", 'odd "name"'), max_model_len=2048, embedding_width=4))
BAD_TYPES = Path(__file__).parents[2] / "cases" / "inputs" / "v12_bad_param_types.jsonl"
CHAT = "/v1/chat/completions"


def answer(path: str, **body: object) -> tuple[int, Any]:
    reply = WRITER.answer(path, json.dumps({"model": "test-model", **body}).encode()).reply
    return reply.status, json.loads(reply.body)


def chat(text: str = "hi", **more: object) -> tuple[int, Any]:
    return answer(CHAT, messages=[{"role": "user", "content": text}], **more)


def test_an_answer_names_the_request_it_belongs_to() -> None:
    body = b'{"model":"test-model","messages":[{"role":"user","content":"hi"}],"max_tokens":5}'

    said = json.loads(WRITER.answer(CHAT, body).reply.body)["choices"][0]["message"]["content"]

    assert said.split()[0] == f"{zlib.crc32(body):08x}"
    assert len(said.split()) == 5


def test_equal_bodies_get_equal_answers_from_any_engine() -> None:
    body = b'{"model":"test-model","messages":[{"role":"user","content":"hi"}]}'
    other = Writer(SimulatedModel(names=("test-model",), max_model_len=2048))

    assert WRITER.answer(CHAT, body) == other.answer(CHAT, body)


def test_a_chat_completion_counts_its_tokens_and_says_why_it_ended() -> None:
    status, cut = chat(max_tokens=2)
    _, whole = chat(max_tokens=1500)

    assert (status, cut["object"], cut["model"]) == (200, "chat.completion", "test-model")
    assert (cut["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]) == ("length", "stop")
    assert cut["usage"]["completion_tokens"] == 2
    words = whole["choices"][0]["message"]["content"].split()
    assert whole["usage"]["completion_tokens"] == len(words) < 1500


def test_max_completion_tokens_rules_over_max_tokens() -> None:
    assert chat(max_tokens=100, max_completion_tokens=1)[1]["usage"]["completion_tokens"] == 1


def test_ignoring_the_end_uses_every_token() -> None:
    assert chat(max_tokens=1000, ignore_eos=True)[1]["usage"]["completion_tokens"] == 1000


def test_several_choices_differ() -> None:
    _, reply = chat(n=3, max_tokens=6)

    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in reply["choices"]}) == 3
    assert reply["usage"]["completion_tokens"] <= 18


@pytest.mark.parametrize("key", ["structured_outputs", "guided_choice"])
def test_a_choice_is_held_to_and_escaped(key: str) -> None:
    allowed = ['"quoted"', "back\\slash", "line\nfeed"]
    wanted = {"choice": allowed} if key == "structured_outputs" else allowed

    said = {chat(f"text {number}", **{key: wanted})[1]["choices"][0]["message"]["content"] for number in range(40)}

    assert said == set(allowed)


def test_completions_answer_each_prompt() -> None:
    status, reply = answer("/v1/completions", prompt=["a", "b"], n=2, max_tokens=3)
    tokens, one = answer("/v1/completions", prompt=[1, 2, 3], max_tokens=3)

    assert (status, reply["object"], len(reply["choices"])) == (200, "text_completion", 4)
    assert (tokens, len(one["choices"])) == (200, 1)


def test_embeddings_have_their_width_and_both_formats_agree() -> None:
    body = {"input": "hi", "dimensions": 3}
    _, floats = answer("/v1/embeddings", **body)
    _, several = answer("/v1/embeddings", input=["a", "b"])
    _, packed = answer("/v1/embeddings", input="hi", encoding_format="base64")

    assert len(floats["data"][0]["embedding"]) == 3
    assert [len(item["embedding"]) for item in several["data"]] == [4, 4]
    assert len(struct.unpack("<4f", base64.b64decode(packed["data"][0]["embedding"]))) == 4
    assert floats["usage"]["completion_tokens"] == 0


def test_responses_and_messages_have_their_own_shapes() -> None:
    _, response = answer("/v1/responses", input="hi", max_output_tokens=2)
    _, message = answer("/v1/messages", messages=[{"role": "user", "content": "hi"}], max_tokens=2)

    assert (response["object"], response["status"]) == ("response", "incomplete")
    assert response["usage"]["output_tokens"] == len(response["output"][0]["content"][0]["text"].split()) == 2
    assert (message["type"], message["stop_reason"]) == ("message", "max_tokens")
    assert message["usage"]["output_tokens"] == 2


def test_odd_model_names_come_back_as_they_were_asked() -> None:
    body = json.dumps({"model": 'odd "name"', "prompt": "x"}).encode()

    assert json.loads(WRITER.answer("/v1/completions", body).reply.body)["model"] == 'odd "name"'


def test_every_bad_type_of_v12_is_refused_and_the_good_lines_run() -> None:
    lines = [json.loads(line) for line in BAD_TYPES.read_bytes().splitlines()]

    statuses = [WRITER.answer(CHAT, json.dumps(line["body"]).encode()).reply.status for line in lines]

    assert statuses == [200, *[400] * (len(lines) - 2), 200]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (CHAT, b'{"model":"m","messages":[{"role":"user","content":"x"}]}', 404, "`m` does not exist"),
        (CHAT, b'{"model":"test-model"}', 400, "messages"),
        (CHAT, b'{"model":"test-model","messages":[{"role":"user","content":"caf\xe9"}]}', 400, "UTF-8"),
        (CHAT, b'{"model":"test-model","messages":[{"role":"user","content":"x"}],"stream":true}', 400, "stream"),
        (CHAT, b'{"model":"test-model","messages":[{"role":"user","content":"x"}],"max_tokens":2048}', 400, "2048"),
        (CHAT, b'{"model":"test-model","messages":[{"role":"user","content":"' + b"x" * 8200 + b'"}]}', 400, "2048"),
        (CHAT, b'{"model":"test-model","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "recursion"),
        ("/v1/embeddings", b'{"model":"test-model","input":[]}', 400, "input"),
        ("/v1/embeddings", b'{"model":"test-model","input":"x","encoding_format":"hex"}', 400, "hex"),
        ("/v1/messages", b'{"model":"test-model","messages":[{"role":"user","content":"x"}]}', 400, "max_tokens"),
    ],
)
def test_what_a_real_engine_refuses_is_refused(path: str, body: bytes, status: int, message: str) -> None:
    reply = WRITER.answer(path, body).reply

    assert reply.status == status
    assert message in json.loads(reply.body)["error"]["message"]


def test_an_unknown_path_is_a_404() -> None:
    assert WRITER.answer("/v1/videos", b"{}").reply.status == 404


def test_answers_are_as_long_as_their_distribution_says() -> None:
    speaker = Speaker(OutputLength(median_tokens=50.0, sigma=0.5))

    lengths = sorted(speaker.say(zlib.crc32(b"%d" % number), 10_000)[1] for number in range(2000))

    assert lengths[1000] == pytest.approx(50, rel=0.1)
    assert lengths[1682] == pytest.approx(50 * 2.71828**0.5, rel=0.15)


def test_a_distribution_without_spread_gives_one_length() -> None:
    speaker = Speaker(OutputLength(median_tokens=12.0, sigma=0.0))

    assert {speaker.say(zlib.crc32(b"%d" % number), 10_000)[1] for number in range(500)} == {12}


@pytest.mark.parametrize("tokens", [1, 2, 512, 513, 514, 1025, 10_000])
def test_an_answer_of_any_length_has_exactly_its_tokens(tokens: int) -> None:
    text, counted, cut = Speaker(OutputLength()).say(0xFFFFFFFF, tokens, to_the_bound=True)

    assert (len(text.split(b" ")), counted, cut) == (tokens, tokens, True)
