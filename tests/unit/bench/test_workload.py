"""The inputs of the benchmarks."""

import json
from pathlib import Path

import pytest

from bench.bare_client import bodies_of
from bench.engine_offline import OUTPUT_TOKENS
from bench.steady import LINES_PER_SECOND, seconds_per_token
from bench.workload import (
    LARGE_LINE_BYTES,
    SMALL_LINE_BYTES,
    engine_line,
    request_line,
    write_engine_requests,
    write_requests,
)


@pytest.mark.parametrize("line_bytes", [SMALL_LINE_BYTES, LARGE_LINE_BYTES])
@pytest.mark.parametrize("number", [0, 7, 213, 99_999, 999_999])
def test_a_line_has_exactly_the_length_that_is_asked_for(number: int, line_bytes: int) -> None:
    line = request_line(number, line_bytes=line_bytes)

    assert len(line) == line_bytes
    assert line.endswith(b"\n")
    assert json.loads(line)["custom_id"] == f"request-{number:08d}"


def test_a_file_has_every_line_once(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "in.jsonl", 20_001, line_bytes=SMALL_LINE_BYTES)

    lines = path.read_bytes().splitlines()
    assert path.stat().st_size == 20_001 * SMALL_LINE_BYTES
    assert len(set(lines)) == len(lines) == 20_001


def test_requests_for_a_real_engine_ask_for_answers_of_one_length() -> None:
    body = json.loads(engine_line(3, model="tiny"))["body"]

    assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (OUTPUT_TOKENS, True, 0)


def test_the_bare_client_sends_the_bodies_of_the_same_file(tmp_path: Path) -> None:
    path = write_engine_requests(tmp_path / "in.jsonl", 3, model="tiny", first=5)

    assert [json.loads(body) for body in bodies_of(path)] == [
        json.loads(engine_line(number, model="tiny"))["body"] for number in (5, 6, 7)
    ]


def test_the_steady_engine_takes_a_fraction_of_a_millisecond_a_token() -> None:
    answers_a_second_of_a_slot = LINES_PER_SECOND / 256

    tokens_an_answer = 1 / (answers_a_second_of_a_slot * seconds_per_token())
    assert 8 < tokens_an_answer < 64
