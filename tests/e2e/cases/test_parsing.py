"""Files as people really write them: what is a line, what is JSON, and which physical line is wrong."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cases import inputs
from tests.cases.customer import Ended
from tests.cases.inputs import FORM_HEADERS, MODEL, form, read
from tests.cases.large import bad_lines, nested
from tests.cases.marks import case
from tests.cases.site import Site
from tests.service import line

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = json.dumps(line("good")).encode()


def with_text(text: bytes, custom_id: bytes = b"x") -> bytes:
    """A request line whose only message holds this JSON string, quotes excluded, as it is."""
    return (
        b'{"custom_id":"%b","method":"POST","url":"/v1/chat/completions",'
        b'"body":{"model":"%b","messages":[{"role":"user","content":"%b"}],"max_tokens":8}}\n'
    ) % (custom_id, MODEL.encode(), text)


def assert_all_ran(ended: Ended, custom_ids: list[str]) -> None:
    assert ended.status == "completed", ended.errors
    assert ended.counts == (len(custom_ids), len(custom_ids), 0)
    assert set(ended.answered) == set(custom_ids)
    assert ended.batch["error_file_id"] is None


@pytest.mark.parametrize(
    ("name", "custom_ids"),
    [
        pytest.param("p01_bom_start.jsonl", ["a-1", "a-2", "a-3"], marks=case("P01"), id="P01"),
        pytest.param("p03_crlf.jsonl", ["a-1", "a-2", "a-3"], marks=case("P03"), id="P03"),
        pytest.param("p05_blank_lines.jsonl", ["a-1", "a-2", "a-3"], marks=case("P04"), id="P04-inside"),
        pytest.param("p06_trailing_blank_lines.jsonl", ["a-1", "a-2"], marks=case("P04"), id="P04-at-the-end"),
        pytest.param("p07_no_final_newline.jsonl", ["a-1", "a-2"], marks=case("P05"), id="P05"),
        pytest.param("p08_u2028_u2029_nel.jsonl", ["ls", "ps", "nel"], marks=case("P06"), id="P06"),
        pytest.param("p12_nul_escape.jsonl", ["nul", "literal"], marks=case("P08"), id="P08"),
    ],
)
async def test_a_file_that_other_readers_trip_over_runs_whole(site: Site, name: str, custom_ids: list[str]) -> None:
    data = read(name)

    ended = await site.acme.run(data)

    assert_all_ran(ended, custom_ids)
    bodies = {sent.body for sent in site.engine.sent}
    assert len(site.engine.sent) == len(custom_ids)
    # The engine got each body as it stands in the file, byte for byte.
    assert all(body in data for body in bodies)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a file's errors must be."""

    lines: dict[int, str]
    """Code by physical line."""
    says: str = ""
    """Words of the first message."""


ONE_LINE = "one JSON object on one line"

REFUSED = [
    pytest.param(
        "p10_lone_surrogate.jsonl",
        Refusal(lines={2: "invalid_json_line"}, says="surrogate pair"),
        marks=case("P07"),
        id="P07",
    ),
    pytest.param(
        "p13_nan_infinity.jsonl",
        Refusal(lines=dict.fromkeys((2, 3, 4), "invalid_json_line"), says="NaN and Infinity are not JSON"),
        marks=case("P09"),
        id="P09",
    ),
    pytest.param(
        "p15_int_5000_digits.jsonl",
        Refusal(lines={2: "invalid_json_line"}, says="number"),
        marks=case("P10"),
        id="P10-5000-digits",
    ),
    pytest.param(
        "p16_int_beyond_64bit.jsonl",
        Refusal(lines={2: "invalid_request"}, says="does not fit in 64 bits"),
        marks=case("P10"),
        id="P10-70-bits",
    ),
    pytest.param(
        "p18_deep_nesting_9000.jsonl",
        Refusal(lines={2: "invalid_json_line"}, says="nested deeper"),
        marks=case("P11"),
        id="P11-9000-levels",
    ),
    pytest.param(
        "p23_non_object_lines.jsonl",
        Refusal(lines=dict.fromkeys((2, 3, 4, 5, 6), "invalid_request"), says="not an object"),
        marks=case("P13"),
        id="P13-lines",
    ),
    pytest.param(
        "p24_body_not_object.jsonl",
        Refusal(lines=dict.fromkeys((2, 3, 4, 5), "invalid_request"), says="body must be a JSON object"),
        marks=case("P13"),
        id="P13-bodies",
    ),
    pytest.param(
        "p26_json_array_file.jsonl",
        Refusal(lines={1: "invalid_request"}, says=ONE_LINE),
        marks=case("P14"),
        id="P14-array",
    ),
    pytest.param(
        "p27_two_objects_one_line.jsonl",
        Refusal(lines={1: "invalid_json_line"}, says=ONE_LINE),
        marks=case("P14"),
        id="P14-two-objects",
    ),
    pytest.param(
        "p30_utf16le_bom.jsonl", Refusal(lines={1: "invalid_json_line"}, says="UTF-8"), marks=case("P16"), id="P16-16"
    ),
    pytest.param(
        "p32_latin1_bytes.jsonl", Refusal(lines={2: "invalid_json_line"}, says="UTF-8"), marks=case("P16"), id="P16-1"
    ),
]


@pytest.mark.parametrize(("name", "refusal"), REFUSED)
async def test_a_bad_line_fails_the_batch_with_its_physical_line(site: Site, name: str, refusal: Refusal) -> None:
    ended = await site.acme.run(read(name))

    assert ended.status == "failed"
    assert ended.error_lines == list(refusal.lines.items())
    assert refusal.says in ended.errors[0]["message"]
    assert (ended.batch["output_file_id"], ended.batch["error_file_id"]) == (None, None)
    assert site.engine.sent == []


@pytest.mark.parametrize("name", ["p23_non_object_lines.jsonl", "p24_body_not_object.jsonl", "p13_nan_infinity.jsonl"])
@case("P09", "P13")
async def test_a_bad_line_is_its_own_error_where_the_batch_asks_for_that(site: Site, name: str) -> None:
    lines = inputs.lines(read(name))
    refused = (await site.acme.run(read(name))).error_lines

    ended = await site.acme.run(read(name), invalid_lines="error")

    assert ended.status == "completed"
    assert ended.counts == (len(lines), len(lines) - len(refused), len(refused))
    assert all(sent.body in read(name) for sent in site.engine.sent)
    raw = [json.loads(one) for one in ended.error_file.splitlines()]
    assert [one["response"]["status_code"] for one in raw] == [400] * len(refused)
    assert all(one["response"]["body"]["error"]["message"] for one in raw)


@case("P03")
async def test_a_line_end_cut_in_two_is_still_one_line_end_and_a_lone_cr_is_none(site: Site) -> None:
    body = form(read("p03_crlf.jsonl"))

    async def pieces() -> Any:
        for start in range(0, len(body), 64):
            yield body[start : start + 64]

    uploaded = await site.acme.http.post("/v1/files", content=pieces(), headers=FORM_HEADERS)
    batch = await site.acme.create(uploaded.json()["id"])
    assert_all_ran(await site.acme.ended(batch["id"]), ["a-1", "a-2", "a-3"])

    # Between two tokens of JSON a carriage return is white space.
    lone = GOOD.replace(b", ", b",\r") + b"\n" + read("p07_no_final_newline.jsonl")
    assert b"\r" in lone
    assert_all_ran(await site.acme.run(lone), ["good", "a-1", "a-2"])


@pytest.mark.parametrize("raw", [b"\x00", b"\x0b", b"\x0c", b"\x1c", b"\x1e", b"\r"], ids=ascii)
@case("P06")
async def test_a_raw_control_character_makes_one_bad_line_and_not_two(site: Site, raw: bytes) -> None:
    data = GOOD + b"\n" + with_text(b"left" + raw + b"right") + b"not JSON\n"

    ended = await site.acme.run(data)

    assert ended.error_lines == [(2, "invalid_json_line"), (3, "invalid_json_line")]


@case("P06", "P07", "P08")
async def test_escapes_and_separators_reach_the_engine_as_they_were_written(site: Site) -> None:
    texts = {
        "pair": rb"\ud83d\ude00",
        "nul": rb"a\u0000b",
        "literal": rb"a\\u0000b",
        "separators": rb"\u2028\u2029\u0085",
        "raw": "\u2028\u2029\u0085\U0001f600".encode(),
    }
    data = b"".join(with_text(text, custom_id.encode()) for custom_id, text in texts.items())

    assert_all_ran(await site.acme.run(data), list(texts))

    assert {text for text in texts.values() if any(text in sent.body for sent in site.engine.sent)} == {*texts.values()}


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "-Infinity"])
@case("P09")
async def test_a_number_that_no_float_holds_is_refused_and_never_sent_on(site: Site, number: str) -> None:
    bad = GOOD.replace(b'"max_tokens": 8', b'"temperature": ' + number.encode())

    ended = await site.acme.run(GOOD + b"\n" + bad)

    assert ended.error_lines == [(2, "invalid_json_line")]
    assert site.engine.sent == []


@case("P10")
async def test_a_large_integer_reaches_the_engine_with_every_digit(site: Site) -> None:
    data = b"".join(
        json.dumps(line(str(seed), seed=seed)).encode() + b"\n" for seed in (2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)
    )

    ended = await site.acme.run(data)

    assert ended.counts == (4, 4, 0)
    sent = {sent.fields["seed"] for sent in site.engine.sent}
    assert sent == {2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1}


@case("P11")
async def test_a_million_levels_are_one_bad_line_and_the_service_goes_on(site: Site) -> None:
    ended = await site.acme.run(nested(1_000_000))

    assert ended.error_lines == [(2, "invalid_json_line")]
    assert (await site.acme.run(GOOD)).counts == (1, 1, 0)


@case("P14")
async def test_pretty_printed_json_is_told_what_a_line_is_once_and_not_for_every_line(site: Site) -> None:
    ended = await site.acme.run(read("p25_pretty_printed.jsonl"))

    assert ended.status == "failed"
    assert ended.error_lines == [(1, "invalid_json_line")]
    assert ONE_LINE in ended.errors[0]["message"]
    assert site.engine.sent == []


@case("P14")
async def test_fifty_thousand_bad_lines_give_a_hundred_errors_and_the_number_of_the_rest(site: Site) -> None:
    ended = await site.acme.run(bad_lines(50_000))

    assert [line for line, _ in ended.error_lines] == list(range(1, 101))
    assert "49900 more errors are not listed" in ended.errors[-1]["message"]


@case("P16")
async def test_bytes_that_are_not_utf8_fail_the_batch_even_where_bad_lines_are_only_their_own(site: Site) -> None:
    for name in ("p30_utf16le_bom.jsonl", "p32_latin1_bytes.jsonl"):
        ended = await site.acme.run(read(name), invalid_lines="error")
        assert ended.status == "failed"
        assert "UTF-8" in ended.errors[0]["message"]


@pytest.mark.parametrize("name", ["p35_empty.jsonl", "p36_only_newlines.jsonl"])
@case("P18")
async def test_a_file_without_a_request_fails_the_batch_with_empty_file(site: Site, name: str) -> None:
    for invalid_lines in ("fail", "error"):
        ended = await site.acme.run(read(name), invalid_lines=invalid_lines)
        assert (ended.status, ended.counts) == ("failed", (0, 0, 0))
        assert ended.error_lines == [(None, "empty_file")]


@case("P20")
async def test_an_odd_custom_id_comes_back_exactly(site: Site) -> None:
    data = read("p41_custom_id_odd.jsonl")

    ended = await site.acme.run(data)

    assert_all_ran(ended, [json.loads(one)["custom_id"] for one in inputs.lines(data)])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("v22_identical_bodies.jsonl", 5, marks=case("R10"), id="R10"),
        pytest.param("v23_single_request.jsonl", 1, marks=case("L20"), id="L20"),
    ],
)
async def test_every_request_is_one_however_few_or_alike_they_are(site: Site, name: str, count: int) -> None:
    ended = await site.acme.run(read(name))

    assert ended.counts == (count, count, 0)
    assert len(site.engine.sent) == count
