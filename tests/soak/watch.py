"""Measures how long a site takes to get over each fault, by looking into its database several times a second."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg

_LOOK_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 120.0

_HELD: Final = """
    SELECT c.batch_id, c.seq, c.token FROM chunks c JOIN batches b ON b.id = c.batch_id
    WHERE c.state = 'leased' AND c.worker_id = %s AND b.status = 'in_progress' AND b.paused_at IS NULL"""
_RUN_AGAIN: Final = """
    SELECT CASE WHEN bool_and(b.ending IN ('cancelled', 'expired') OR b.paused_at IS NOT NULL) THEN NULL
                ELSE NOT bool_or((c.state = 'pending' OR c.token IS NOT DISTINCT FROM held.token)
                                 AND b.status = 'in_progress' AND b.paused_at IS NULL) END
    FROM unnest(%s::text[], %s::int[], %s::uuid[]) AS held (batch_id, seq, token)
    JOIN chunks c ON c.batch_id = held.batch_id AND c.seq = held.seq
    JOIN batches b ON b.id = c.batch_id"""
_TERM: Final = "SELECT coalesce(max(term), 0) FROM leader"
_NEW_TERM: Final = "SELECT coalesce(max(term), 0) > %s FROM leader"
_BUSY: Final = """
    SELECT now() FROM chunks c JOIN batches b ON b.id = c.batch_id
    WHERE c.state <> 'done' AND b.status = 'in_progress' AND b.paused_at IS NULL LIMIT 1"""
_COMMITTED: Final = "SELECT EXISTS (SELECT 1 FROM usage_ledger WHERE committed_at > %s)"
_COMMITTED_BY: Final = """
    SELECT EXISTS (SELECT 1 FROM chunks WHERE worker_id = %s AND state = 'done' AND committed_at > %s)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Awaited:
    """A question whose answer becomes true when a fault is got over, and null where it means nothing any more."""

    kind: str
    since: float
    question: str
    values: Sequence[Any]


class Watch:
    """Looks from a thread of its own while its block runs; what it is told to await comes from any thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._awaited: list[_Awaited] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        """How long each fault took to be got over, by kind."""
        self.unseen: Counter[str] = Counter()
        """Faults of which that was not seen in two minutes: nothing was left to do, or it was not got over."""

    @contextmanager
    def looking(self) -> Iterator["Watch"]:
        """Look while the block runs."""
        thread = threading.Thread(target=self._run, name="watch")
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def leases_of(self, worker: str, kind: str) -> int:
        """Await that all chunks a worker holds now are run by somebody under another lease; returns how many it holds.

        Chunks of batches that stop meanwhile are not waited for.
        """
        held = self._ask(_HELD, worker)
        if held:
            self._await(kind, _RUN_AGAIN, [list(column) for column in zip(*held, strict=True)])
        return len(held)

    def new_leader(self, kind: str) -> None:
        """Await a new term."""
        for (term,) in self._ask(_TERM):
            self._await(kind, _NEW_TERM, (term,))

    def next_commit(self, kind: str) -> None:
        """Await a commit, by anybody; nothing where nothing is left to run."""
        for (now,) in self._ask(_BUSY):
            self._await(kind, _COMMITTED, (now,))

    def commit_of(self, worker: str, kind: str) -> None:
        """Await a commit by one worker; nothing where it holds nothing."""
        if self._ask(_HELD, worker):
            for (now,) in self._ask("SELECT now()"):
                self._await(kind, _COMMITTED_BY, (worker, now))

    @property
    def idle(self) -> bool:
        """Whether nothing is awaited any more."""
        with self._lock:
            return not self._awaited

    def _await(self, kind: str, question: str, values: Sequence[Any]) -> None:
        with self._lock:
            self._awaited.append(_Awaited(kind=kind, since=time.monotonic(), question=question, values=values))

    def _ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask once; a database that is away answers nothing."""
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, connect_timeout=3) as connection:
            return connection.execute(question.encode(), values).fetchall()
        return []

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
                while not self._stop.wait(_LOOK_SECONDS):
                    self._look(connection)
            self._stop.wait(_LOOK_SECONDS)

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        with self._lock:
            awaited = list(self._awaited)
        for one in awaited:
            row = connection.execute(one.question.encode(), one.values).fetchone()
            took = time.monotonic() - one.since
            if row == (True,):
                self.seconds[one.kind].append(took)
            elif row == (None,):
                pass
            elif took > _PATIENCE_SECONDS:
                self.unseen[one.kind] += 1
            else:
                continue
            with self._lock:
                self._awaited.remove(one)
