"""The soak's judge sees every kind of wrong that there is: a judge that cannot convict proves nothing."""

import json
from collections.abc import Iterable
from typing import Any

from tests.soak.lines import Asked, Kind
from tests.soak.oracle import Verdict, judge, judge_refused

CHAT = "/v1/chat/completions"
ASKED = [
    Asked(custom_id="a", kind=Kind.GOOD, digest=0xA),
    Asked(custom_id="b", kind=Kind.FLAKY, digest=0xB),
    Asked(custom_id="p", kind=Kind.POISON, digest=0xC),
]


def answer(custom_id: str, digest: int) -> dict[str, Any]:
    body = {"choices": [{"message": {"content": f"{digest:08x} words"}}]}
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


def failure(custom_id: str, code: str) -> dict[str, Any]:
    return {"custom_id": custom_id, "response": None, "error": {"code": code}}


def judged(
    output: Iterable[Any], errors: Iterable[Any], *, status: str = "completed", total: int = len(ASKED)
) -> Verdict:
    out, err = list(output), list(errors)
    files = [b"".join(json.dumps(row).encode() + b"\n" for row in rows) for rows in (out, err)]
    return judge(ASKED, CHAT, status, *files, counts=(total, len(out), len(err)))


def test_results_as_they_should_be_are_not_complained_about() -> None:
    verdict = judged([answer("a", 0xA), answer("b", 0xB)], [failure("p", "engine_crashed")])

    assert verdict.wrongs == {}
    assert (verdict.lines, verdict.answered, dict(verdict.errors)) == (3, 2, {"poison: engine_crashed": 1})


def test_a_lost_line_is_seen() -> None:
    assert judged([answer("a", 0xA)], [failure("p", "x")]).wrongs == {"lost": 1}


def test_a_doubled_line_is_seen_also_across_the_two_files() -> None:
    verdict = judged([answer("a", 0xA), answer("b", 0xB)], [failure("a", "x"), failure("p", "x")])

    assert verdict.wrongs == {"doubled": 1, "innocent": 1}


def test_an_answer_to_another_line_is_seen() -> None:
    assert judged([answer("a", 0xB), answer("b", 0xB)], [failure("p", "x")]).wrongs == {"crossed": 1}


def test_an_innocent_line_that_fails_is_seen() -> None:
    assert judged([answer("a", 0xA)], [failure("b", "engine_crashed"), failure("p", "x")]).wrongs == {"innocent": 1}


def test_a_line_may_end_unrun_only_for_the_reason_of_its_batch() -> None:
    unrun = [failure("b", "batch_cancelled"), failure("p", "batch_cancelled")]

    assert judged([answer("a", 0xA)], unrun, status="cancelled").wrongs == {}
    assert judged([answer("a", 0xA)], unrun, status="completed").wrongs == {"innocent": 1}
    assert judged([answer("a", 0xA)], unrun, status="expired").wrongs == {"innocent": 1}


def test_an_answer_that_cannot_be_and_a_stranger_are_seen() -> None:
    assert judged([answer("a", 0xA), answer("b", 0xB), answer("p", 0xC)], []).wrongs == {"undeserved": 1}
    assert judged([answer("a", 0xA), answer("b", 0xB), answer("z", 0xA)], []).wrongs == {"lost": 1, "strange": 1}


def test_counts_that_are_not_those_of_the_files_are_seen() -> None:
    verdict = judged([answer("a", 0xA), answer("b", 0xB)], [failure("p", "engine_crashed")], total=4)

    assert verdict.wrongs == {"miscounted": 1}


def test_a_batch_fails_rightly_only_for_an_invalid_line_and_with_a_reason() -> None:
    invalid = [*ASKED, Asked(custom_id="i", kind=Kind.INVALID, digest=1)]

    assert judge_refused(invalid, 1).wrongs == {}
    assert judge_refused(invalid, 0).wrongs == {"innocent": 4}
    assert judge_refused(ASKED, 1).wrongs == {"innocent": 3}
