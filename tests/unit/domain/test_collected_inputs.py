"""Every collected input file about parsing and validation, against the pure pass over it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from slackwater.domain.scan import InputScan
from tests.cases.inputs import CHAT, EMBEDDINGS, INPUTS, read
from tests.planning import MODELS, lines_of, scan_of, scanned


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What becomes of a file: nothing more than what is listed may be wrong with it."""

    fails: Mapping[int | None, str] = field(default_factory=dict)
    """Code by physical line of what fails the batch."""
    own_errors: Mapping[int, str] = field(default_factory=dict)
    """Code by physical line of what fails the line alone."""
    runs: int = 0
    endpoint: str = CHAT


def lines(code: str, *numbers: int) -> dict[int | None, str]:
    return dict.fromkeys(numbers, code)


def own(code: str, *numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, code)


BAD_JSON, MISSING, BAD_REQUEST = "invalid_json_line", "missing_required_parameter", "invalid_request"

FILES = {
    "p01_bom_start.jsonl": Expected(runs=3),
    "p03_crlf.jsonl": Expected(runs=3),
    "p05_blank_lines.jsonl": Expected(runs=3),
    "p06_trailing_blank_lines.jsonl": Expected(runs=2),
    "p07_no_final_newline.jsonl": Expected(runs=2),
    "p08_u2028_u2029_nel.jsonl": Expected(runs=3),
    "p10_lone_surrogate.jsonl": Expected(runs=2, fails=lines(BAD_JSON, 2)),
    "p12_nul_escape.jsonl": Expected(runs=2),
    "p13_nan_infinity.jsonl": Expected(runs=1, fails=lines(BAD_JSON, 2, 3, 4)),
    "p15_int_5000_digits.jsonl": Expected(runs=2, fails=lines(BAD_JSON, 2)),
    "p16_int_beyond_64bit.jsonl": Expected(runs=2, fails=lines(BAD_REQUEST, 2)),
    "p18_deep_nesting_9000.jsonl": Expected(runs=2, fails=lines(BAD_JSON, 2)),
    "p23_non_object_lines.jsonl": Expected(runs=2, fails=lines(BAD_REQUEST, 2, 3, 4, 5, 6)),
    "p24_body_not_object.jsonl": Expected(runs=1, fails=lines(BAD_REQUEST, 2, 3, 4, 5)),
    "p25_pretty_printed.jsonl": Expected(fails=lines(BAD_JSON, 1)),
    "p26_json_array_file.jsonl": Expected(fails=lines(BAD_REQUEST, 1)),
    "p27_two_objects_one_line.jsonl": Expected(runs=1, fails=lines(BAD_JSON, 1)),
    "p30_utf16le_bom.jsonl": Expected(fails=lines(BAD_JSON, 1)),
    "p32_latin1_bytes.jsonl": Expected(runs=2, fails=lines(BAD_JSON, 2)),
    "p35_empty.jsonl": Expected(fails={None: "empty_file"}),
    "p36_only_newlines.jsonl": Expected(fails={None: "empty_file"}),
    "p41_custom_id_odd.jsonl": Expected(runs=11),
    # Repeated ids are found after the pass: test_duplicates and the integration tests.
    "v01_dup_custom_id.jsonl": Expected(runs=3),
    "v02_custom_id_missing_types.jsonl": Expected(
        runs=1, fails=lines(MISSING, 2) | lines("invalid_custom_id", 3, 4, 5, 6, 7)
    ),
    "v03_custom_id_long.jsonl": Expected(runs=1, fails=lines("invalid_custom_id", 2)),
    "v04_stream_true.jsonl": Expected(runs=3, fails=lines("streaming_unsupported", 2)),
    "v05_method_bad_missing.jsonl": Expected(runs=2, fails=lines("invalid_method", 2) | lines(MISSING, 4, 5, 6)),
    "v06_url_other_endpoint.jsonl": Expected(runs=1, fails=lines("invalid_url", 2)),
    "v07_url_spellings.jsonl": Expected(fails=lines("invalid_url", 1, 2, 3, 4, 5, 6, 7)),
    "v09_unknown_model.jsonl": Expected(runs=2, fails=lines("model_not_found", 2)),
    "v10_missing_model.jsonl": Expected(runs=1, fails=lines(MISSING, 2, 3, 4)),
    "v11_mixed_models.jsonl": Expected(runs=2, fails=lines("mismatched_model", 2)),
    "v12_bad_param_types.jsonl": Expected(runs=12),
    "v13_max_tokens_huge.jsonl": Expected(runs=2, own_errors=own("context_length_exceeded", 2)),
    "v14_body_credentials.jsonl": Expected(runs=1, fails=lines(BAD_REQUEST, 2, 3, 4)),
    "v15_chat_template_in_body.jsonl": Expected(runs=2, own_errors=own("invalid_value", 2, 3)),
    "v18_media_urls.jsonl": Expected(own_errors=own("invalid_value", *range(1, 13))),
    "v19_structured_output_hostile.jsonl": Expected(runs=9),
    "v20_oov_token_ids.jsonl": Expected(runs=7),
    "v21_role_orders.jsonl": Expected(runs=7),
    "v22_identical_bodies.jsonl": Expected(runs=5),
    "v23_single_request.jsonl": Expected(runs=1),
    "v24_old_params_form.jsonl": Expected(fails=lines(MISSING, 1, 2)),
    "v25_embedding_formats.jsonl": Expected(runs=8, endpoint=EMBEDDINGS),
    "v26_truncated_image.jsonl": Expected(runs=3),
    "v28_prompt_logprobs.jsonl": Expected(runs=3),
    "v29_too_long_prompt.jsonl": Expected(runs=3),
}


def file(name: str) -> bytes:
    return read(name, model="test-model", other_model="test-model-b")


def failures(scan: InputScan) -> dict[int | None, str]:
    return {error.line: error.code for error in scan.errors.entries()}


def test_every_collected_file_has_its_expectation() -> None:
    collected = {path.name for path in INPUTS.iterdir() if path.name[0] in "pv"}

    assert collected == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_just_what_is_expected(name: str) -> None:
    expected = FILES[name]

    scan, found = scanned(file(name), endpoint=expected.endpoint)

    assert failures(scan) == dict(expected.fails)
    assert {error.line: error.code for error in lines_of(found)} == dict(expected.own_errors)
    assert scan.tally.n_accepted.total() == expected.runs


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("block_bytes", [7, 64, 333])
def test_blocks_of_any_size_give_the_same(name: str, block_bytes: int) -> None:
    data, endpoint = file(name), FILES[name].endpoint
    whole_scan, whole = scanned(data, endpoint=endpoint)

    scan, found = scanned(data, block_bytes, endpoint=endpoint)

    assert found == whole
    assert scan.errors.entries() == whole_scan.errors.entries()


@pytest.mark.parametrize("name", [name for name, expected in FILES.items() if expected.fails])
def test_where_bad_lines_are_their_own_errors_every_request_is_answered_or_run(name: str) -> None:
    expected = FILES[name]

    scan, found = scanned(file(name), endpoint=expected.endpoint, tolerant=True)

    undecodable = name in {"p30_utf16le_bom.jsonl", "p32_latin1_bytes.jsonl"}
    assert bool(len(scan.errors)) == (undecodable or None in expected.fails)
    assert scan.tally.n_accepted.total() == expected.runs
    if not undecodable:
        pretty_printed = name == "p25_pretty_printed.jsonl"
        answered = {error.line for error in lines_of(found)}
        assert answered >= set(expected.fails) - {None}
        assert answered == set(expected.fails) - {None} or pretty_printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p10_lone_surrogate.jsonl", "surrogate pair"),
        ("p13_nan_infinity.jsonl", "NaN and Infinity are not JSON"),
        ("p15_int_5000_digits.jsonl", "too large"),
        ("p16_int_beyond_64bit.jsonl", "'seed' does not fit in 64 bits"),
        ("p18_deep_nesting_9000.jsonl", "deeper than 100 levels"),
        ("p25_pretty_printed.jsonl", "one JSON object on one line"),
        ("p26_json_array_file.jsonl", "one JSON object on one line"),
        ("p27_two_objects_one_line.jsonl", "more than one JSON value"),
        ("p30_utf16le_bom.jsonl", "must be UTF-8"),
        ("p32_latin1_bytes.jsonl", "must be UTF-8"),
        ("v03_custom_id_long.jsonl", "600 characters; at most 512"),
        ("v04_stream_true.jsonl", "Streaming is not supported"),
        ("v06_url_other_endpoint.jsonl", "is '/v1/embeddings', but the batch's endpoint is '/v1/chat/completions'"),
        ("v07_url_spellings.jsonl", "'v1/chat/completions'"),
        ("v09_unknown_model.jsonl", "'no-such-model' does not exist"),
        ("v11_mixed_models.jsonl", "'test-model-b', but the lines before it are for 'test-model'"),
        ("v24_old_params_form.jsonl", "'method', 'url', 'body'"),
    ],
)
def test_the_message_says_what_was_found_and_what_is_wanted(name: str, words: str) -> None:
    scan, _ = scanned(file(name))

    assert words in scan.errors.entries()[0].message


def test_refused_media_is_not_repeated_in_the_message() -> None:
    _, found = scanned(file("v18_media_urls.jsonl"))

    answers = b"".join(found.error_lines)
    assert len(found.error_lines) == 12
    assert not any(part in answers for part in (b"169.254", b"passwd", b"user:pw", b"postgres", b"://"))


def test_a_pretty_printed_file_is_one_error_and_counted_as_one() -> None:
    scan, _ = scanned(file("p25_pretty_printed.jsonl"))

    assert dict(scan.errors.counts) == {BAD_JSON: 1}


def test_each_line_keeps_its_model_where_several_are_allowed() -> None:
    scan, found = scanned(file("v11_mixed_models.jsonl"), allow_mixed_models=True)

    assert scan.models == ["test-model", "test-model-b"]
    assert [record[:2] for record in found.records] == [b"\0\0", b"\0\1", b"\0\0"]
    assert scan.asked_model is None


def test_all_models_of_the_tests_are_known_by_name() -> None:
    assert {"test-model", "test-model-b"} <= MODELS.keys()
    assert scan_of().models == []
