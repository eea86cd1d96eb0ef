"""What must hold after every step: the pure states, the customers' view, and the rows and objects below it."""

from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from hypothesis.stateful import invariant

from slackwater.blobs import keys
from slackwater.db.batches import BatchRecord, get_batch, list_batches
from slackwater.db.files import list_files
from slackwater.db.pages import PageRequest
from slackwater.domain.ids import FileId, LeaseToken
from slackwater.domain.states import CHUNK_MOVES, TERMINAL, BatchState, ChunkState, may_move
from slackwater.flow.audit import audit
from tests.model.asked import Batch
from tests.model.workers import Workers
from tests.model.world import EXPIRY_SECONDS, KEEP_SECONDS

_PAGE: Final = PageRequest(limit=1000)
_BLUR: Final = timedelta(minutes=2)
"""How far the world's clock and the database's may be apart: an example takes no longer."""
_COUNTS: Final = ("succeeded", "errored", "cancelled", "expired", "input_tokens", "output_tokens", "total")


class Oracle(Workers):
    """Looks at everything after every step."""

    def __init__(self) -> None:
        self.done_chunks: dict[tuple[str, int], Any] = {}
        self.chunk_states: dict[tuple[str, int], str] = {}
        self.tokens: dict[tuple[str, int], LeaseToken] = {}
        """Of the leases that workers held at the last look."""
        self.sound = True
        """Whether everything held at the last look."""
        super().__init__()

    @invariant()
    def promises_are_kept(self) -> None:
        """Check everything."""
        self.sound = False
        self.run(self._look())
        self.sound = True

    async def _look(self) -> None:
        page = await list_batches(self.db, tenant_id=self.tenant, dialect="openai", page=_PAGE)
        shown = {record.id: record for record in page.items}
        assert list(shown) == [batch.id for batch in reversed(self.batches)], "the list is not what was made"
        leases = await self._check_chunks()
        for batch in self.batches:
            await self._check(batch, shown[batch.id])
            self._check_pause(batch, leases[batch.id])
        await self._check_ledger(shown)
        await self._check_files()
        await self._check_objects()

    async def _check(self, batch: Batch, record: BatchRecord) -> None:
        """Compare one batch with what it was, and with what was asked for."""
        seen = batch.seen
        if seen is not None and record != seen:
            self._check_move(seen, record)
        batch.seen = record
        if record.status in TERMINAL and batch.ended is None:
            batch.ended = self.elapsed
            self.grounds.tally[record.status] += 1
            _check_end(batch, record, self.elapsed)
            await self.audit(batch)
        if record.in_progress_at is not None and record.status != "failed":
            assert record.total == batch.expected.total

    def _check_move(self, seen: BatchRecord, record: BatchRecord) -> None:
        before, after = BatchState(seen.status), BatchState(record.status)
        assert seen.status == record.status or may_move(before, after), f"{before} became {after}"
        if before in TERMINAL:
            assert _facts(seen) == _facts(record), "a batch that had ended changed"
        for name in _COUNTS:
            assert getattr(seen, name) <= getattr(record, name), f"{name} went down"
        ended = record.succeeded + record.errored + record.cancelled + record.expired
        assert ended <= record.total, "more results than lines"

    def _check_pause(self, batch: Batch, leases: set[Any]) -> None:
        """What is paused may end its leases, and gets no others."""
        assert batch.seen is not None
        paused = batch.seen.status == "in_progress" and batch.seen.paused_at is not None
        if paused and batch.leases_when_paused is not None:
            assert leases <= batch.leases_when_paused, "a chunk of a paused batch was leased"
        batch.leases_when_paused = leases if paused else None

    async def audit(self, batch: Batch) -> None:
        """Read its files as a stranger would."""
        report = await audit(self.db, self.store, batch.id)
        assert report.sound, report.faults

    async def _check_chunks(self) -> defaultdict[str, set[Any]]:
        """A chunk moves as the pure states say, and one that is done stays as it is. Returns the leases by batch."""
        leases: defaultdict[str, set[Any]] = defaultdict(set)
        rows = await self.rows("SELECT * FROM chunks")
        for row in rows:
            at, now = (row.batch_id, row.seq), ChunkState(row.state)
            before = ChunkState(self.chunk_states.get(at, now))
            # Between two looks a lease may end and another begin.
            assert now == before or now in CHUNK_MOVES[before] or before == "pending", f"chunk {at}: {before}, {now}"
            self.chunk_states[at] = now
            held = self.tokens.pop(at, None)
            if now == "leased":
                leases[row.batch_id].add(row.token)
                if row.worker_id is not None:
                    self.tokens[at] = row.token
            if now == "done":
                assert held is None or self._is_by(row, held), f"chunk {at} was committed under a lost lease"
                result = (row.commit_no, row.out_key, row.out_sha256, row.err_key, row.err_sha256, row.succeeded)
                assert self.done_chunks.setdefault(at, result) == result, f"committed chunk {at} changed"
        return leases

    def _is_by(self, row: Any, token: LeaseToken) -> bool:
        """Whether a chunk was committed by whoever held its lease; where its batch stops the finisher may do it."""
        batch = next(batch for batch in self.batches if batch.id == row.batch_id)
        assert batch.seen is not None
        ours = {keys.part_output_key(batch.id, row.seq, token), keys.part_errors_key(batch.id, row.seq, token), None}
        return batch.seen.status != "in_progress" or {row.out_key, row.err_key} <= ours

    async def _check_ledger(self, shown: dict[Any, BatchRecord]) -> None:
        """What was charged is what was committed, at every moment, and nothing but succeeded lines."""
        charged = {
            row.batch_id: row
            for row in await self.rows(
                "SELECT batch_id, sum(succeeded) AS succeeded, sum(errored) AS errored,"
                " sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens"
                " FROM usage_ledger GROUP BY batch_id"
            )
        }
        for batch, record in shown.items():
            for name in ("succeeded", "errored", "input_tokens", "output_tokens"):
                stated = getattr(record, name)
                found = int(getattr(charged.get(batch), name, 0))
                assert stated == found, f"{batch} states {stated} {name}, {found} were charged"

    async def _check_files(self) -> None:
        """The customer sees the files there should be, and no others."""
        found = await list_files(self.db, tenant_id=self.tenant, page=_PAGE, purpose=None)
        visible = {file.id for file in found.items}
        expected: set[FileId] = {source.new.id for source in self.inputs if not source.deleted}
        unsure: set[FileId] = set()
        for batch in self.batches:
            for file in self._results(batch):
                (unsure if self._is_near_expiry(batch) else expected).add(file)
        assert expected - unsure <= visible <= expected | unsure, "files appear or are hidden that should not be"

    def _results(self, batch: Batch) -> set[FileId]:
        """The result files of a batch that are neither deleted nor past their time."""
        if batch.seen is None or batch.ended is None:
            return set()
        files = {file for file in (batch.seen.output_file_id, batch.seen.error_file_id) if file is not None}
        return set() if self.elapsed - batch.ended > _lifetime(batch) + _BLUR else files - batch.deleted

    def _is_near_expiry(self, batch: Batch) -> bool:
        assert batch.ended is not None
        return abs(self.elapsed - batch.ended - _lifetime(batch)) <= _BLUR

    async def _check_objects(self) -> None:
        """Whatever anybody may still read is in the store."""
        rows = await self.rows(_NEEDED, keep=KEEP_SECONDS - _BLUR.total_seconds())
        missing = [row.key for row in rows if not self.has(row.key)]
        assert not missing, f"gone from the store: {missing}"

    async def read(self, batch: Batch) -> BatchRecord:
        """Read a batch as its customer."""
        return await get_batch(self.db, tenant_id=self.tenant, dialect="openai", batch_id=batch.id)


_NEEDED: Final = """
SELECT f.object_key AS key FROM files f
WHERE f.deleted_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > now() + interval '2 minutes')
UNION
SELECT k.key FROM batches b CROSS JOIN LATERAL (VALUES (b.input_key), (b.plan_key)) AS k (key)
WHERE k.key IS NOT NULL AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
UNION
SELECT k.key FROM batches b JOIN chunks c ON c.batch_id = b.id
CROSS JOIN LATERAL (VALUES (c.out_key), (c.err_key)) AS k (key)
WHERE k.key IS NOT NULL AND b.status IN ('in_progress', 'finalizing', 'cancelling')
UNION
SELECT s.object_key FROM batches b JOIN chunks c ON c.batch_id = b.id
JOIN chunk_segments s ON s.batch_id = c.batch_id AND s.seq = c.seq
WHERE c.state <> 'done' AND b.status IN ('in_progress', 'finalizing', 'cancelling')
"""


def _check_end(batch: Batch, record: BatchRecord, elapsed: timedelta) -> None:
    """A batch ends as it was asked to: each way only for its reason, and whole."""
    expected = batch.expected
    match record.status:
        case "failed":
            assert expected.fails, f"failed without a reason: {record.errors}"
            assert record.errors
            return
        case "completed":
            assert not expected.fails
            assert record.succeeded == len(expected.succeeded), "a line that should have succeeded did not"
        case "cancelled":
            assert batch.cancelled, "nobody cancelled it"
        case "expired":
            assert elapsed - batch.created > batch.window - _BLUR, "its window was not over"
        case other:
            raise AssertionError(f"{other} is no end")
    if record.in_progress_at is not None:
        assert record.succeeded + record.errored + record.cancelled + record.expired == expected.total
    assert record.succeeded <= len(expected.succeeded)


def _lifetime(batch: Batch) -> timedelta:
    return timedelta(seconds=batch.request.output_expires_seconds or EXPIRY_SECONDS)


def _facts(record: BatchRecord) -> tuple[Any, ...]:
    """Everything of a record but its times, which move with the world's clock."""
    return tuple(value for name in record.__slots__ if not hasattr(value := getattr(record, name), "tzinfo"))
