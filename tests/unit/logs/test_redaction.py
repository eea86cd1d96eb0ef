import io
import json
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from slackwater.logs.redaction import _FORMS as MASKED_FORMS
from slackwater.logs.redaction import _MAY_HOLD_ONE, MASK, Redactor

Lines = Callable[[], list[dict[str, Any]]]

_LOG = structlog.get_logger("slackwater.tests")
_KEY = "sk-slw-MARKERmarker0123456789abcdefghijklmnopqrs"
_FORMS = [
    _KEY,
    f"Authorization: Bearer {_KEY}",
    "Authorization: Bearer MARKERmarker",
    "authorization='Basic TUFSS0VSbWFya2Vy'",
    "Proxy-Authorization: Basic TUFSS0VSbWFya2VyMTIzNA==",
    "{'Authorization': 'Bearer MARKERmarker'}",
    '{"authorization":"MARKERmarker"}',
    '{\\"x-api-key\\": \\"MARKERmarker\\"}',
    "[(b'authorization', b'Bearer MARKERmarker')]",
    "x-api-key: MARKERmarker",
    "api_key=MARKERmarker",
    "SLACKWATER_ENGINE_API_KEY=MARKERmarker",
    "SLACKWATER_STORE_SECRET_ACCESS_KEY=MARKERmarker",
    "aws_secret_access_key = MARKERmarker",
    "postgresql://slackwater:MARKERmarker@db:5432/slackwater",
    "postgresql+psycopg://slackwater:p@ss/MARKERmarker@db:5432/slackwater?sslmode=require",
    "redis://:MARKERmarker@cache",
    "https://user:MARKERmarker@example.org/a?b=c",
    "connection to host=db user=slackwater password=MARKERmarker failed",
    "connection failed: host=db password='MARKERmarker with blanks MARKERmarker' dbname=x",
    "GET http://s3/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=MARKERmarker%2Feu&X-Amz-Signature=MARKERmarker",
    "GET http://s3/b/k?X-Amz-Security-Token=MARKERmarker&x=1",
    "GET http://s3/b/k?AWSAccessKeyId=MARKERmarker&Signature=MARKERmarker&Expires=1",
    "Authorization: AWS4-HMAC-SHA256 Credential=MARKERmarker/20300101/eu/s3/aws4_request, Signature=MARKERmarker",
    "Cookie: session=MARKERmarker",
    "the store said s3-MARKERmarker-known-by-value was wrong",
]


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(["s3-MARKERmarker-known-by-value", "abc"])


@pytest.mark.parametrize("text", _FORMS)
def test_a_secret_in_running_text_is_masked(text: str, redactor: Redactor) -> None:
    shown = redactor.text(text)

    assert "MARKERmarker" not in shown
    assert "TUFSS0VS" not in shown
    assert MASK in shown


@pytest.mark.parametrize("text", _FORMS)
def test_a_secret_is_masked_in_every_place_an_event_can_hold_it(text: str, stream: io.StringIO) -> None:
    if "known-by-value" in text:
        text = text.replace("s3-MARKERmarker-known-by-value", "s3-marker-secret")
    error = RuntimeError(text)
    error.__cause__ = OSError(text)

    _LOG.info(text)
    _LOG.info("field", value=text, raw=text.encode(), nested={"a": [{"b": (text,)}], text: 1})
    _LOG.error("error", exc_info=error)
    _LOG.info("object", value=RuntimeError(text))
    logging.getLogger("some.library").warning("said %s", text)
    logging.getLogger("some.library").error(text, exc_info=error)

    assert len(stream.getvalue().splitlines()) == 6
    for marker in ("MARKERmarker", "TUFSS0VS", "s3-marker-secret"):
        assert marker not in stream.getvalue()


@pytest.mark.parametrize(
    "name", ["authorization", "Authorization", "x-api-key", "api_key", "password", "engine_api_key", "secret", "cookie"]
)
def test_a_field_named_like_a_secret_is_masked_whatever_it_holds(name: str, lines: Lines) -> None:
    _LOG.info("field", **{name: "no form at all"}, headers={name: ["no form at all"]})

    (line,) = lines()
    assert line[name] == MASK
    assert line["headers"][name] == MASK


@pytest.mark.parametrize(
    "text",
    [
        "password authentication failed for user slackwater",
        "listening on http://127.0.0.1:8000/v1",
        "postgresql://slackwater@db:5432/slackwater",
        "ask-me-anything-about-it",
        "max_tokens=4096 top_p=0.9",
        "lease_token=0198f5a2c1d7",
        "parts/batch_0198/3-0198.out",
        "basic authentication is off",
        "abc is too short to be masked by value",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str, redactor: Redactor) -> None:
    assert redactor.text(text) == text


def test_our_keys_keep_their_kind_so_that_a_reader_knows_what_was_there(redactor: Redactor) -> None:
    assert redactor.text(f"key {_KEY} refused") == f"key sk-slw-{MASK} refused"


def test_long_text_is_cut_and_says_how_long_it_was(redactor: Redactor) -> None:
    shown = redactor.text("a prompt " * 1_000_000)

    assert len(shown) < 4200
    assert shown.endswith("… (9000000 characters)")


@pytest.mark.parametrize("before", range(8180, 8200))
def test_cutting_never_leaves_half_a_secret(before: int, redactor: Redactor) -> None:
    """The cut falls into the password, so the @ that would show it for one is gone."""
    redacts_most = "x-api-key=" + "k" * 5000 + " "

    shown = redactor.text(redacts_most + "w " * ((before - len(redacts_most)) // 2) + "db://u:MARKERmarker@h")

    assert "MARKER" not in shown


@pytest.mark.parametrize("text", ["://a:" * 20_000, "a_" * 50_000, "sk-" * 50_000, "password=" * 20_000, "a" * 200_000])
def test_text_made_to_be_slow_is_not(text: str, redactor: Redactor) -> None:
    started = time.process_time()

    redactor.text(text)

    assert time.process_time() - started < 1.0


def test_odd_values_become_json(redactor: Redactor) -> None:
    cyclic: dict[str, object] = {}
    cyclic["self"] = cyclic
    uuid = UUID(int=7)

    odd = {"cyclic": cyclic, "nan": float("nan"), "huge": 10**9999, "uuid": uuid, "many": range(1000), "none": None}
    line = json.loads(json.dumps(redactor(None, "info", odd), allow_nan=False))

    assert line["nan"] == "nan"
    assert line["huge"] == "an integer of 33216 bits"
    assert line["uuid"] == str(uuid)
    assert line["many"][-1] == "… 950 more"
    assert line["none"] is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=_VALUES)
def test_whatever_is_logged_is_valid_json_on_one_line(value: object) -> None:
    clean = Redactor()(None, "info", {"event": "x", "value": value})

    text = json.dumps(clean, allow_nan=False)
    assert len(text.splitlines()) == 1


@given(before=st.text(), after=st.text())
def test_a_known_secret_never_gets_through_whatever_surrounds_it(before: str, after: str) -> None:
    secret = "hunter2-hunter2"

    assert secret not in Redactor([secret]).text(before + secret + after)


@given(data=st.data())
def test_the_quick_look_passes_over_no_text_that_a_form_would_change(data: st.DataObject) -> None:
    form, _ = data.draw(st.sampled_from(MASKED_FORMS))

    assert _MAY_HOLD_ONE.search(data.draw(st.from_regex(form))) is not None
