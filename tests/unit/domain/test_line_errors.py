"""An engine's error of any shape reads as the OpenAI API's."""

import msgspec
import pytest

from slackwater.domain.line_errors import (
    BATCH_CANCELLED,
    BATCH_EXPIRED,
    REPLY_TOO_LARGE,
    REQUEST_TIMEOUT,
    LineError,
    error_from_reply,
    refused,
    status_in,
    unusable_reply,
)


def error(
    message: str,
    *,
    status: int = 400,
    type: str = "invalid_request_error",  # noqa: A002
    param: str | None = None,
    code: str | None = None,
) -> LineError:
    return LineError(status=status, message=message, type=type, param=param, code=code)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (
            b'{"error":{"message":"bad","type":"BadRequestError","param":"model","code":"x"}}',
            error("bad", type="BadRequestError", param="model", code="x"),
        ),
        (
            b'{"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}}',
            error("bad", type="BadRequestError", code="400"),
        ),
        (b'{"error":{"message":"bad","type":"None","param":"None","code":"null"}}', error("bad")),
        (b'{"error":{"message":"bad","param":["a"],"code":true}}', error("bad")),
        (
            b'{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}',
            error("too long", type="BadRequestError", code="400"),
        ),
        (b'{"error":"Unauthorized"}', error("Unauthorized")),
        (b'{"error":"Input too long","type":"validation"}', error("Input too long", type="validation")),
        (
            b'{"type":"error","error":{"type":"not_found_error","message":"gone"}}',
            error("gone", type="not_found_error"),
        ),
        (b'{"detail":"Not Found"}', error("Not Found")),
        (
            b'{"detail":[{"loc":["body","messages",0],"msg":"required","type":"missing"},{"loc":["n"],"msg":"no"},7]}',
            error("body.messages.0: required; n: no"),
        ),
        (b'{"detail":{"a":1}}', error("The engine answered with status 400 and no message.")),
        (b"Failed to parse: missing field `messages`\n", error("Failed to parse: missing field `messages`")),
        (b"<html>no</html>", error("The engine answered with status 400 and no message.")),
        (b"[1]", error("The engine answered with status 400 and no message.")),
        (b'{"broken":', error("The engine answered with status 400 and no message.")),
        (b"{}", error("The engine answered with status 400 and no message.")),
        (b"", error("The engine answered with status 400 and no message.")),
        (b'{"error":{"message":7}}', error("The engine answered with status 400 and no message.")),
        (b'{"error":{"message":"half \\ud83d"}}', error("half ?")),
    ],
)
def test_every_shape_of_error_body_is_understood(body: bytes, read: LineError) -> None:
    assert error_from_reply(400, body) == read


@pytest.mark.parametrize(
    ("status", "type_"), [(404, "invalid_request_error"), (429, "rate_limit_error"), (502, "server_error")]
)
def test_an_error_without_a_type_gets_its_statuss(status: int, type_: str) -> None:
    assert error_from_reply(status, b"").type == type_


def test_a_prompt_echoed_in_a_message_is_cut() -> None:
    body = msgspec.json.encode({"error": {"message": "x" * 100_000}})

    assert len(error_from_reply(400, body).message) == 4_000
    assert len(error_from_reply(400, b"y" * 100_000).message) == 4_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"error":{"code":422}}', 422),
        (b'{"error":{"code":"422"}}', None),
        (b'{"object":"error","code":503}', 503),
        (b'{"error":{"code":200}}', None),
        (b"<html>", None),
    ],
)
def test_the_status_an_error_body_names_is_found(body: bytes, status: int | None) -> None:
    assert status_in(body) == status


def test_a_refusal_of_our_own_reads_like_an_engines() -> None:
    assert refused("too long", param="max_tokens", code="context_length_exceeded") == error(
        "too long", param="max_tokens", code="context_length_exceeded"
    )


def test_a_line_without_an_http_answer_always_has_a_code() -> None:
    for without_status in (BATCH_EXPIRED, BATCH_CANCELLED, REQUEST_TIMEOUT, REPLY_TOO_LARGE, unusable_reply("x")):
        assert without_status.status is None
        assert without_status.code
