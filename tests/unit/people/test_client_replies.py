import json

import pytest

from slackwater.client.batches import get_batch
from slackwater.client.calls import Reply
from slackwater.client.errors import (
    Conflict,
    NotAuthorized,
    NotFound,
    RateLimited,
    ServiceFailed,
    ServiceRefused,
    UnexpectedReply,
    refusal,
)
from slackwater.client.replies import Batch, CachedTokens
from tests.unit.people.fake_service import whole_batch


def reply(body: object, *, status: int = 200) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(status=status, headers={"x-request-id": "req_7"}, body=raw)


def decoded(body: object) -> Batch:
    return get_batch("batch_1").decode(reply(body))


def test_a_batch_is_read_whole() -> None:
    batch = decoded(
        whole_batch(
            "batch_1",
            status="completed",
            request_counts={"total": 5, "completed": 4, "failed": 1},
            usage={
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 3},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 11,
            },
            metadata={"a": "b"},
        )
    )
    assert batch.ended
    assert batch.counts.done == 5
    assert batch.usage is not None
    assert batch.usage.input_tokens_details == CachedTokens(cached_tokens=3)
    assert batch.metadata == {"a": "b"}


def test_a_batch_with_only_the_required_keys_and_unknown_ones_is_read() -> None:
    batch = decoded(
        {
            "id": "batch_1",
            "object": "batch",
            "endpoint": "/v1/embeddings",
            "input_file_id": "file-1",
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": 1,
            "paused_at": 5,
        }
    )
    assert not batch.ended
    assert batch.counts.total == 0


def test_validation_errors_keep_their_lines() -> None:
    error = {"code": "invalid_url", "message": "m", "param": None, "line": 3}
    batch = decoded(whole_batch("batch_1", status="failed", errors={"object": "list", "data": [error]}))
    assert batch.errors is not None
    assert [(found.code, found.line) for found in batch.errors.data] == [("invalid_url", 3)]


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"", b'{"id": 5}', b"\xff", {"id": "batch_1"}])
def test_an_answer_that_is_not_this_apis_is_told_and_not_half_read(body: object) -> None:
    with pytest.raises(UnexpectedReply, match="base URL"):
        decoded(body)


@pytest.mark.parametrize("status", [301, 307, 100])
def test_a_redirect_is_not_followed_and_not_an_answer(status: int) -> None:
    with pytest.raises(UnexpectedReply, match=str(status)):
        reply(b"", status=status).checked()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ServiceRefused),
        (401, NotAuthorized),
        (403, NotAuthorized),
        (404, NotFound),
        (409, Conflict),
        (413, ServiceRefused),
        (429, RateLimited),
        (500, ServiceFailed),
        (503, ServiceFailed),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[ServiceRefused]) -> None:
    with pytest.raises(kind) as caught:
        reply({"error": {"message": "m"}}, status=status).checked()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.request_id) == (status, "req_7")


def test_a_refusal_keeps_every_field_of_the_error_object() -> None:
    body = b'{"error":{"message":"Missing","type":"invalid_request_error","param":"input_file_id","code":"missing"}}'
    error = refusal(400, body, request_id=None)
    assert (str(error), error.type, error.param, error.code) == (
        "Missing (HTTP 400)",
        "invalid_request_error",
        "input_file_id",
        "missing",
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"Unauthorized"}', "Unauthorized (HTTP 502)"),
        (b'{"detail":"Not Found"}', "Not Found (HTTP 502)"),
        (b'{"message":"top"}', "top (HTTP 502)"),
        (b'{"error":{"message":5,"code":7}}', '{"error":{"message":5,"code":7}} (HTTP 502)'),
        (b"<h1>Bad\n Gateway</h1>", "<h1>Bad Gateway</h1> (HTTP 502)"),
        (b"[1]", "[1] (HTTP 502)"),
        (b"", "the service answered HTTP 502 without a message"),
        (b"\xff\xfe" * 2000, "�" * 300 + " (HTTP 502)"),
    ],
)
def test_any_error_body_gives_a_message(body: bytes, message: str) -> None:
    error = refusal(502, body, request_id=None)
    assert str(error) == message
    assert error.code is None
