"""The states of a batch and of a chunk, and the only moves between them.

The tables below, the CHECK constraints of the schema and the drawing in ``docs/state-machine.md`` say the same thing;
a test compares the three. Every UPDATE that moves a state names the state it leaves.
"""

from enum import StrEnum
from typing import Final


class BatchState(StrEnum):
    """The states of a batch, spelled as the OpenAI API spells them."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class ChunkState(StrEnum):
    """The states of a chunk: waiting, held by one worker's lease, or committed."""

    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"


BATCH_MOVES: Final[dict[BatchState, frozenset[BatchState]]] = {
    BatchState.VALIDATING: frozenset(
        {BatchState.IN_PROGRESS, BatchState.FINALIZING, BatchState.FAILED, BatchState.CANCELLED}
    ),
    BatchState.IN_PROGRESS: frozenset({BatchState.FINALIZING, BatchState.CANCELLING}),
    BatchState.CANCELLING: frozenset({BatchState.CANCELLED, BatchState.FAILED}),
    BatchState.FINALIZING: frozenset(
        {BatchState.COMPLETED, BatchState.EXPIRED, BatchState.FAILED, BatchState.IN_PROGRESS}
    ),
    BatchState.COMPLETED: frozenset(),
    BatchState.FAILED: frozenset(),
    BatchState.EXPIRED: frozenset(),
    BatchState.CANCELLED: frozenset(),
}
"""Where a batch may go from each state. A state without moves is terminal."""

CHUNK_MOVES: Final[dict[ChunkState, frozenset[ChunkState]]] = {
    ChunkState.PENDING: frozenset({ChunkState.LEASED}),
    ChunkState.LEASED: frozenset({ChunkState.PENDING, ChunkState.DONE}),
    ChunkState.DONE: frozenset({ChunkState.PENDING}),
}
"""Where a chunk may go from each state; a lost, revoked or returned lease goes back to pending,
and so does a committed chunk whose results were lost."""

TERMINAL: Final[frozenset[BatchState]] = frozenset(state for state, moves in BATCH_MOVES.items() if not moves)
"""The states that no batch ever leaves."""

CANCELLABLE: Final[frozenset[BatchState]] = frozenset({BatchState.VALIDATING, BatchState.IN_PROGRESS})
"""The states in which a cancel is obeyed. In ``finalizing`` the results are already whole: the cancel is refused."""

PAUSABLE: Final[frozenset[BatchState]] = CANCELLABLE
"""The states in which a batch may be paused and resumed: whatever comes after them runs nothing any more."""


def may_move(before: BatchState, after: BatchState) -> bool:
    """Tell whether a batch may go from one state to another."""
    return after in BATCH_MOVES[before]
