"""The state machines hold together."""

import uuid

from slackwater.domain.ids import batch_id, file_id, is_id, key_id, request_id, tenant_id
from slackwater.domain.states import BATCH_MOVES, CANCELLABLE, CHUNK_MOVES, TERMINAL, BatchState, ChunkState, may_move


def test_every_state_has_its_moves() -> None:
    assert set(BATCH_MOVES) == set(BatchState)
    assert set(CHUNK_MOVES) == set(ChunkState)


def test_terminal_states_are_final() -> None:
    assert {BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.CANCELLED} == TERMINAL
    assert not any(may_move(state, other) for state in TERMINAL for other in BatchState)


def test_every_state_leads_to_an_end() -> None:
    reached = set(TERMINAL)
    for _ in BatchState:
        reached |= {state for state, moves in BATCH_MOVES.items() if moves & reached}
    assert reached == set(BatchState)


def test_a_cancel_is_obeyed_only_before_the_results_are_whole() -> None:
    assert {BatchState.VALIDATING, BatchState.IN_PROGRESS} == CANCELLABLE


def test_ids_are_of_our_grammar_and_other_texts_are_not() -> None:
    value = uuid.UUID(int=7)
    made = [tenant_id(value), key_id(value), file_id(value), batch_id(value), request_id(value)]
    assert all(map(is_id, made))
    assert not any(map(is_id, ["", "batch_", "../etc/passwd", "batch_" + "G" * 32, "batch_" + "0" * 33]))
