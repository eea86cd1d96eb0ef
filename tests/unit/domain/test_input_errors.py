from slackwater.domain.input_errors import ErrorList, InputError, Problem, capped, quoted

BAD = Problem(code="invalid_json_line", message="Bad.")
OPENS = Problem(code="invalid_json_line", message="Begins.", fragment=True, opens=True)
PIECE = Problem(code="invalid_json_line", message="Piece.", fragment=True)


def listed(errors: ErrorList) -> list[int | None]:
    return [error.line for error in errors.entries()]


def test_a_list_at_its_limit_says_how_many_are_missing() -> None:
    errors = ErrorList(100)
    for line in range(1, 50_001):
        errors.add(BAD, line)

    entries = errors.entries()

    assert len(entries) == 100
    assert entries[-1].line == 100
    assert entries[-1].message == "Bad. (49900 more errors are not listed.)"
    assert "more" not in entries[-2].message


def test_one_missing_error_is_said_in_the_singular() -> None:
    entries = capped([InputError(code="c", message="m", line=line) for line in (1, 2)], total=2, limit=1)

    assert entries[0].message == "m (1 more error is not listed.)"


def test_a_list_below_its_limit_is_left_alone() -> None:
    errors = [InputError(code="c", message="m", line=1)]

    assert capped(errors, total=1, limit=100) == errors
    assert capped([], total=0, limit=100) == []


def test_errors_found_elsewhere_are_put_in_order_of_lines() -> None:
    errors = ErrorList(2)
    errors.add(BAD, 2)
    errors.add(BAD, 9)
    others = [InputError(code="duplicate_custom_id", message="Twice.", line=5)]

    entries = errors.entries(others, 7)

    assert [entry.line for entry in entries] == [2, 5]
    assert entries[-1].message == "Twice. (7 more errors are not listed.)"


def test_the_rest_of_a_value_begun_on_a_line_before_is_part_of_its_error() -> None:
    errors = ErrorList(100)
    for line, problem in enumerate((OPENS, PIECE, PIECE, OPENS), 1):
        errors.add(problem, line)

    assert listed(errors) == [1]
    assert len(errors) == 1


def test_what_is_no_piece_or_does_not_follow_at_once_is_an_error_of_its_own() -> None:
    errors = ErrorList(100)
    errors.add(OPENS, 1)
    errors.add(BAD, 2)
    errors.add(PIECE, 3)
    errors.add(OPENS, 5)
    errors.add(PIECE, 7)

    assert listed(errors) == [1, 2, 3, 5, 7]


def test_an_error_of_the_whole_file_has_no_line() -> None:
    errors = ErrorList(100)
    errors.add(Problem(code="empty_file", message="Empty."), None)

    assert listed(errors) == [None]


def test_text_of_the_customer_is_quoted_on_one_line_and_cut() -> None:
    assert quoted("plain é") == "'plain é'"
    assert quoted("a\nb\x00") == "'a\\u000ab\\u0000'"
    assert quoted("x" * 500) == "'" + "x" * 200 + "…'"
