from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.duplicates import Seen, duplicate_errors


def suspects_of(ids: list[str]) -> tuple[frozenset[int], int]:
    seen = Seen()
    seen.add(custom_id.encode() for custom_id in ids)
    return seen.repeated()


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=2), max_size=60))
def test_every_repetition_is_found_with_its_first_line(ids: list[str]) -> None:
    suspects, total = suspects_of(ids)

    errors = duplicate_errors(enumerate(ids, 1), suspects, limit=1_000)

    again = [line for line, custom_id in enumerate(ids, 1) if custom_id in ids[: line - 1]]
    assert [error.line for error in errors] == again
    assert total == len(again)
    assert all(
        f"already used on line {ids.index(ids[error.line - 1]) + 1}." in error.message for error in errors if error.line
    )


def test_distinct_ids_are_no_suspects() -> None:
    assert suspects_of([f"request-{number}" for number in range(10_000)]) == (frozenset(), 0)


def test_the_message_names_the_id() -> None:
    ids = ["a", "b", "a"]

    (error,) = duplicate_errors(enumerate(ids, 1), suspects_of(ids)[0], limit=100)

    assert (error.code, error.param, error.line) == ("duplicate_custom_id", "custom_id", 3)
    assert "'a'" in error.message


def test_looking_for_them_ends_with_the_last_that_can_be_listed() -> None:
    ids = ["same"] * 1_000
    suspects, total = suspects_of(ids)
    read = iter(enumerate(ids, 1))

    errors = duplicate_errors(read, suspects, limit=10)

    assert len(errors) == 10
    assert total == 999
    assert next(read) == (12, "same")


def test_only_so_many_suspects_are_remembered_and_all_are_counted() -> None:
    ids = [f"{number}" for number in range(5_000)] * 2

    suspects, total = suspects_of(ids)

    assert len(suspects) == 1_000
    assert total == 5_000


def test_ids_whose_hashes_collide_are_not_duplicates() -> None:
    suspects = frozenset(hash(custom_id) for custom_id in (b"a", b"b"))

    assert duplicate_errors([(1, "a"), (2, "b")], suspects, limit=100) == []
