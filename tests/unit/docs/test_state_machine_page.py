"""docs/state-machine.md draws exactly the moves of domain/states.py, and names the statements that make them."""

import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pytest

from slackwater.db import batches
from slackwater.db.queue.statements import SQL
from slackwater.domain.states import BATCH_MOVES, CHUNK_MOVES

_PAGE = (Path(__file__).parents[3] / "docs" / "state-machine.md").read_text()
_ARROW = re.compile(r"^    (\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
_ROW = re.compile(r"^\| (\w*) ?\| (\w+) \| ([\w, ]+) \| `(\w+)` \| .+ \|$", re.MULTILINE)

OUTSIDE = "[*]"
"""Where things come from and go to: no state."""
CUSTOMERS_OWN = {"create_batch", "cancel_batch"}
COLUMN = {"batches": "status", "chunks": "state"}


class Move(NamedTuple):
    """One statement that moves from a state to another."""

    before: str
    after: str
    statement: str


def _section(title: str) -> str:
    return _PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def _drawn(title: str) -> set[Move]:
    """Return the arrows of a drawing that a statement makes."""
    arrows: list[tuple[str, str, str]] = _ARROW.findall(_section(title))
    return {Move(before, after, name) for before, after, names in arrows for name in names.split(", ") if name}


def _listed(title: str) -> set[Move]:
    """Return the rows of the table below it."""
    return {Move(before or OUTSIDE, after, name) for before, after, _, name in _ROW.findall(_section(title))}


def _edges(moves: set[Move]) -> set[tuple[str, str]]:
    return {(move.before, move.after) for move in moves if OUTSIDE not in {move.before, move.after}}


def _allowed(moves: dict[StrEnum, frozenset[StrEnum]]) -> set[tuple[str, str]]:
    return {(before.value, after.value) for before, afters in moves.items() for after in afters}


CASES = [("A batch", BATCH_MOVES), ("A chunk", CHUNK_MOVES)]


@pytest.mark.parametrize(("title", "moves"), CASES)
def test_the_drawing_has_the_moves_of_the_code(title: str, moves: dict[StrEnum, frozenset[StrEnum]]) -> None:
    assert _edges(_drawn(title)) == _allowed(moves)


@pytest.mark.parametrize(("title", "moves"), CASES)
def test_the_table_explains_every_arrow_that_begins_a_life_or_moves_it(
    title: str, moves: dict[StrEnum, frozenset[StrEnum]]
) -> None:
    ends = {move for move in _drawn(title) if move.after == OUTSIDE}

    assert _listed(title) == _drawn(title) - ends
    assert {state.value for state in moves} == {
        state for move in _drawn(title) for state in (move.before, move.after)
    } - {OUTSIDE}


def test_only_states_without_a_move_are_drawn_as_final() -> None:
    arrows: list[tuple[str, str, str]] = _ARROW.findall(_section("A batch"))

    assert {before for before, after, _ in arrows if after == OUTSIDE} == {
        state.value for state, moves in BATCH_MOVES.items() if not moves
    }


def test_every_statement_that_is_named_exists() -> None:
    named = {move.statement for title, _ in CASES for move in _drawn(title)}

    assert named - CUSTOMERS_OWN <= SQL.keys()
    assert all(callable(getattr(batches, name)) for name in CUSTOMERS_OWN & named)


@pytest.mark.parametrize(("title", "table"), [("A batch", "batches"), ("A chunk", "chunks")])
def test_every_statement_that_moves_a_state_is_drawn(title: str, table: str) -> None:
    column = COLUMN[table]
    # SET … up to the clause after it; a condition on the column names the state that is left and moves nothing.
    assignment = re.compile(rf"UPDATE {table}\b[^;]*?\bSET\b((?:(?!\bFROM\b|\bWHERE\b)[^;])*)", re.DOTALL)
    moving = {
        name
        for name, statement in SQL.items()
        if any(re.search(rf"\b{column} = ", assigned) for assigned in assignment.findall(statement))
    }

    assert moving
    assert moving <= {move.statement for move in _drawn(title)}
