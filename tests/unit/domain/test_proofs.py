"""What the answer to a tiny request of ours proves of an engine."""

import json

import pytest

from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.errors import EngineBroke, EngineError, EngineReplyTooLarge, EngineTimeout
from slackwater.domain.proofs import Full, Health, Ill, Refused, Silent, Well, judge, judge_refusals, proof_requests
from slackwater.domain.replies import Reply

NAMES = ["m", "alias"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_endpoint_in_doubt_is_asked_first_and_none_twice(endpoint: str) -> None:
    requests = proof_requests("m", endpoint)

    assert requests[0][0] == endpoint
    assert len({path for path, _ in requests}) == len(requests)
    assert {json.loads(body)["model"] for _, body in requests} == {"m"}


def test_without_a_doubt_every_kind_of_model_is_asked_for_something_it_may_answer() -> None:
    paths = [path for path, _ in proof_requests("m", None)]

    assert paths == ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"]


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (Reply(200, b'{"model":"m"}'), Well()),
        (Reply(200, b'{"model":"alias"}'), Well()),
        (Reply(200, b'{"id":"x"}'), Well()),
        (Reply(200, b'{"model":"other"}'), Ill("it answers as 'other'")),
        (Reply(429, b""), Full(0.0)),
        (Reply(503, b"", 7.0), Full(7.0)),
        (Reply(400, b""), Refused(400)),
        (Reply(404, b""), Refused(404)),
        (Reply(401, b""), Refused(401)),
        (Reply(501, b""), Refused(501)),
        (Reply(200, b'{"error":{"message":"gone","code":404}}'), Refused(404)),
        (Reply(500, b""), Ill("its answer has status 500")),
        (Reply(307, b""), Ill("its answer has status 307")),
        (Reply(200, b"<html>"), Ill("its answer is no JSON object")),
        (EngineTimeout("late"), Silent()),
        (EngineBroke("broke"), Ill("broke")),
        (EngineReplyTooLarge("large"), Ill("large")),
    ],
)
def test_only_a_result_of_the_right_model_is_a_proof(answer: Reply | EngineError, health: Health | Refused) -> None:
    assert judge(answer, names=NAMES) == health


@pytest.mark.parametrize(
    ("statuses", "health"),
    [
        ([404, 404, 404], Ill("it refuses every request, with status 404, 404, 404")),
        ([401], Ill("it refuses every request, with status 401")),
        ([403, 404], Ill("it refuses every request, with status 403, 404")),
        ([404, 400], Well()),
        ([422], Well()),
    ],
)
def test_a_refusal_of_everything_is_no_proof_unless_one_was_understood(statuses: list[int], health: Health) -> None:
    assert judge_refusals([Refused(status) for status in statuses]) == health
