"""What customers do, through the functions that the API calls, each as often as it takes until they have an answer."""

import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from slackwater.blobs import keys
from slackwater.db.batches import cancel_batch, get_batch, list_batches, pause_batch, resume_batch
from slackwater.db.files import FileRecord, NewFile, delete_file, get_file, list_files
from slackwater.db.idempotency import Once
from slackwater.db.pages import PageRequest
from slackwater.domain.errors import NotFound, StateConflict
from slackwater.domain.ids import batch_id, file_id
from slackwater.flow.intake import BatchRequest, BatchRules, keep_file, start_batch
from tests.model.asked import KINDS, Batch, Input, Kind, content
from tests.model.crossings import Done, Mishap, perform
from tests.model.world import World
from tests.service import new_uuid

_RULES: Final = BatchRules(shortest_window=timedelta(hours=1), longest_window=timedelta(days=30))
_WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
_REPEATS_FOR: Final = timedelta(hours=23)
"""How long a key is surely remembered."""
_TRIES: Final = 3

at = st.integers(min_value=0, max_value=7)
"""Which of several, counted from the newest."""
lost = st.none() | st.builds(
    Mishap,
    kind=st.sampled_from(["fails", "dies"]),
    crossing=st.integers(min_value=0, max_value=1),
    when=st.sampled_from(["before", "after"]),
)
"""What happens to the process that a customer speaks to."""


class Customers(World):
    """Two tenants; the second has nothing and looks for what the first has."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.batches: list[Batch] = []
        self.api = self.process("api")
        super().__init__()

    def batch(self, which: int) -> Batch | None:
        """Pick a batch; None where there is none yet."""
        return self.batches[-1 - which % len(self.batches)] if self.batches else None

    def ask(self, act: Callable[[], Coroutine[Any, Any, Any]], mishap: Mishap | None = None) -> Any:
        """Ask the API until it answers; a process that dies is replaced by one that does not."""
        for _ in range(_TRIES):
            ending = self.run(perform(self.api, act, mishap))
            if isinstance(ending, Done):
                return ending.value
            mishap = None
        raise AssertionError("no answer although nothing is in the way")

    @rule(
        kinds=st.lists(st.sampled_from(KINDS), min_size=3, max_size=9).map(tuple),
        mishap=lost,
        invalid_lines=st.sampled_from(["fail", "error", "error"]),
        window=st.sampled_from(sorted(_WINDOWS)),
        expires=st.sampled_from([None, 7200]),
    )
    def submits(
        self, kinds: tuple[Kind, ...], mishap: Mishap | None, invalid_lines: str, window: str, expires: int | None
    ) -> None:
        """Upload a file and make a batch of it; the mishap is the upload's or the batch's, by chance of its number."""
        file = file_id(new_uuid())
        data = content(kinds)
        new = NewFile(
            id=file,
            purpose="batch",
            filename="in.jsonl",
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            object_key=keys.input_key(file),
            expires_after=None,
        )
        once = _once("POST /v1/files", [kinds, file])
        source = Input(new=new, once=once, kinds=kinds)
        kept = self.ask(lambda: self._upload(source), mishap)
        assert kept.size_bytes == len(data)
        source.new = replace(new, id=kept.id, object_key=kept.object_key)
        self.inputs.append(source)
        self._create(source, mishap, invalid_lines, window, expires)

    @rule(
        which=at,
        mishap=lost,
        invalid_lines=st.sampled_from(["fail", "error"]),
        window=st.sampled_from(sorted(_WINDOWS)),
    )
    def makes_another_batch_of_a_file(self, which: int, mishap: Mishap | None, invalid_lines: str, window: str) -> None:
        if self.inputs:
            self._create(self.inputs[-1 - which % len(self.inputs)], mishap, invalid_lines, window, None)

    def _create(
        self, source: Input, mishap: Mishap | None, invalid_lines: str, window: str, expires: int | None
    ) -> None:
        request = BatchRequest(
            dialect="openai",
            endpoint="/v1/chat/completions",
            completion_window=window,
            input_file_id=source.new.id,
            invalid_lines=invalid_lines,
            metadata={"n": str(len(self.batches))},
            output_expires_seconds=expires,
        )
        once = _once("POST /v1/batches", [len(self.batches)])
        try:
            made = self.ask(lambda: self._start(request, once), mishap)
        except NotFound:
            assert source.deleted, "an input that is there was not found"
            return
        assert not source.deleted, "a batch was made of a deleted input"
        assert made.status == "validating"
        self.batches.append(
            Batch(
                id=made.id,
                request=request,
                once=once,
                source=source,
                window=_WINDOWS[window],
                created=self.elapsed,
            )
        )

    @rule(which=at)
    def repeats_what_was_asked(self, which: int) -> None:
        """Upload the same again and create the same again, with the keys of the first time."""
        batch = self.batch(which)
        if batch is None or self.elapsed - batch.created > _REPEATS_FOR:
            return
        made = self.ask(lambda: self._start(batch.request, batch.once))
        assert made.id == batch.id, "a repeated create made another batch"
        source = batch.source
        if batch is not self._first_of(source):
            return
        try:
            kept = self.ask(lambda: self._upload(source))
        except NotFound:
            assert source.deleted, "the file of a repeated upload was not found"
            return
        assert kept.id == source.new.id, "a repeated upload made another file"

    def _first_of(self, source: Input) -> Batch:
        return next(batch for batch in self.batches if batch.source is source)

    @rule(which=at, mishap=lost)
    def cancels(self, which: int, mishap: Mishap | None) -> None:
        batch = self.batch(which)
        if batch is None:
            return
        before = self.status_of(batch)
        try:
            stopped = self.ask(lambda: cancel_batch(self.db, **self._of(batch)), mishap)
        except StateConflict:
            after = self.status_of(batch)
            assert after not in {"validating", "in_progress"}
            # The answer to a cancel that was obeyed may have been lost: asked again, it is in vain.
            batch.cancelled |= after == "cancelled" and before == "validating"
            return
        assert before in {"validating", "in_progress", "cancelling"}
        assert stopped.status in {"cancelling", "cancelled"}
        batch.cancelled = True

    @rule(which=at, mishap=lost)
    def pauses_or_resumes(self, which: int, mishap: Mishap | None) -> None:
        batch = self.batch(which)
        if batch is None:
            return
        if batch.seen is not None and batch.seen.paused_at is not None:
            self.resume(batch)
            return
        before = self.status_of(batch)
        try:
            paused = self.ask(lambda: pause_batch(self.db, **self._of(batch)), mishap)
        except StateConflict:
            assert before not in {"validating", "in_progress"}
            return
        assert paused.paused_at is not None

    def resume(self, batch: Batch) -> None:
        """Let a batch run on, where it may."""
        before = self.status_of(batch)
        try:
            resumed = self.ask(lambda: resume_batch(self.db, **self._of(batch)))
        except StateConflict:
            assert before not in {"validating", "in_progress"}
            return
        assert resumed.paused_at is None

    @rule(which=at, mishap=lost)
    def deletes_an_input(self, which: int, mishap: Mishap | None) -> None:
        if not self.inputs:
            return
        source = self.inputs[-1 - which % len(self.inputs)]
        found = self.ask(lambda: delete_file(self.db, tenant_id=self.tenant, file_id=source.new.id), mishap)
        assert found is not source.deleted or mishap is not None
        source.deleted = True

    @rule(which=at)
    def deletes_a_result(self, which: int) -> None:
        batch = self.batch(which)
        if batch is None or batch.seen is None or batch.seen.output_file_id is None:
            return
        file = batch.seen.output_file_id
        self.ask(lambda: delete_file(self.db, tenant_id=self.tenant, file_id=file))
        batch.deleted.add(file)

    @rule(which=at)
    def a_stranger_looks_for_it(self, which: int) -> None:
        batch = self.batch(which)
        if batch is not None:
            self.run(self._stranger_sees_nothing(batch))

    async def _stranger_sees_nothing(self, batch: Batch) -> None:
        who: dict[str, Any] = self._of(batch) | {"tenant_id": self.stranger}
        for act in (get_batch, cancel_batch, pause_batch, resume_batch):
            assert await _refused(act(self.db, **who)), f"a stranger's {act.__name__} was obeyed"
        page = PageRequest(limit=100)
        assert not (await list_batches(self.db, tenant_id=self.stranger, dialect="openai", page=page)).items
        assert not (await list_files(self.db, tenant_id=self.stranger, page=page, purpose=None)).items
        record = batch.seen
        results = () if record is None else (record.output_file_id, record.error_file_id)
        for file in (batch.source.new.id, *results):
            if file is not None:
                assert await _refused(get_file(self.db, tenant_id=self.stranger, file_id=file))
                assert not await delete_file(self.db, tenant_id=self.stranger, file_id=file)
        starting = start_batch(
            self.db,
            tenant_id=self.stranger,
            batch_id=batch_id(new_uuid()),
            request=batch.request,
            rules=_RULES,
            once=None,
        )
        assert await _refused(starting), "a stranger made a batch of another's file"

    def status_of(self, batch: Batch) -> str:
        """The state of a batch now."""
        return self.run(get_batch(self.db, **self._of(batch))).status

    def _of(self, batch: Batch) -> dict[str, Any]:
        return {"tenant_id": self.tenant, "dialect": "openai", "batch_id": batch.id}

    async def _upload(self, source: Input) -> FileRecord:
        """Store the bytes and make the row, under a name of its own each time, as the API does."""
        file = file_id(new_uuid())
        key = keys.input_key(file)
        async with self.store.writer(key, stage="intake.upload") as writer:
            await writer.write(content(source.kinds))
            await writer.finish()
        new = replace(source.new, id=file, object_key=key)
        return await keep_file(self.db, self.store, tenant_id=self.tenant, new=new, once=source.once)

    async def _start(self, request: BatchRequest, once: Once) -> Any:
        return await start_batch(
            self.db,
            tenant_id=self.tenant,
            batch_id=batch_id(new_uuid()),
            request=request,
            rules=_RULES,
            once=once,
        )


def _once(route: str, what: object) -> Once:
    """Make a key and the hash of a body from whatever tells one request from another."""
    text = repr(what)
    return Once(route=route, key=text[-200:], body_sha256=hashlib.sha256(text.encode()).digest(), attempt="explicit")


async def _refused(act: Coroutine[Any, Any, Any]) -> bool:
    """Whether a request is answered as one for something that does not exist."""
    try:
        await act
    except NotFound:
        return True
    return False
