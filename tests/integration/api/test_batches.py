"""Batches through the stock SDK: made, shown, listed, cancelled; made once however often they are asked for."""

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest

from slackwater.domain.states import TERMINAL, BatchState
from tests.api_under_test import LINE, Api
from tests.integration.api.test_files import upload
from tests.integration.api.test_transport import UNKNOWN_BATCH, UNKNOWN_FILE, assert_openai_error, make_batch

HOUR = 3600


async def put_into(api: Api, batch_id: str, status: BatchState) -> None:
    """Move a batch on as the queue would have."""
    stamps = {
        BatchState.IN_PROGRESS: ("in_progress_at",),
        BatchState.FINALIZING: ("in_progress_at", "finalizing_at"),
        BatchState.COMPLETED: ("in_progress_at", "finalizing_at", "completed_at"),
        BatchState.EXPIRED: ("in_progress_at", "finalizing_at", "expired_at"),
        BatchState.FAILED: ("failed_at",),
    }.get(status, ())
    times = "".join(f", {name} = now()" for name in stamps)
    statement = f"UPDATE batches SET status = %(status)s{times} WHERE id = %(id)s"  # noqa: S608  columns of ours
    await api.rows(statement, status=status, id=batch_id)


def body_of(file_id: str, **changes: Any) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **changes}


async def test_a_new_batch_is_validating_and_has_every_key(api: Api) -> None:
    file = await upload(api)

    response = await api.http().post("/v1/batches", json=body_of(file.id))

    shown = response.json()
    assert response.status_code == 200
    assert (shown["status"], shown["request_counts"]) == ("validating", {"total": 0, "completed": 0, "failed": 0})
    assert shown["expires_at"] == shown["created_at"] + 24 * HOUR
    assert (shown["input_file_id"], shown["endpoint"]) == (file.id, "/v1/chat/completions")
    assert len(shown) == 22
    assert (await api.sdk().batches.retrieve(shown["id"])).to_dict() == shown


async def test_metadata_is_echoed_and_null_is_none(api: Api) -> None:
    metadata = {"k": "v", "": "", "é" * 64: "😀" * 512}

    assert (await make_batch(api, metadata=metadata)).metadata == metadata
    assert (await make_batch(api, metadata={})).metadata == {}
    assert (await make_batch(api, metadata=None)).metadata is None
    assert (await make_batch(api)).metadata is None
    rows = await api.rows("SELECT count(*) FROM batches WHERE metadata IS NULL")
    assert rows[0][0] == 2


async def test_the_options_reach_the_queue(api: Api) -> None:
    batch = await make_batch(
        api,
        output_expires_after={"anchor": "created_at", "seconds": 7200},
        extra_body={"invalid_lines": "error"},
    )

    (row,) = await api.rows("SELECT * FROM batches")
    assert (row.id, row.tenant_id, row.dialect) == (batch.id, api.acme.id, "openai")
    assert (row.output_expires_seconds, row.invalid_lines) == (7200, "error")
    assert (row.input_key, row.input_bytes) == (f"inputs/{batch.input_file_id}", len(LINE))


async def test_a_window_is_any_number_of_hours_up_to_a_week(api: Api) -> None:
    file = await upload(api)

    for window, hours in [("24h", 24), ("1h", 1), ("1d", 24), ("36h", 36), ("7d", 168), ("168h", 168)]:
        shown = (await api.http().post("/v1/batches", json=body_of(file.id, completion_window=window))).json()
        assert shown["completion_window"] == window
        assert shown["expires_at"] - shown["created_at"] == hours * HOUR


async def test_a_wrong_field_is_refused_by_its_name(api: Api) -> None:
    file_id = (await upload(api)).id
    other_id = (await upload(api, purpose="user_data")).id
    good = body_of(file_id)
    http = api.http()

    def but(**changes: Any) -> dict[str, Any]:
        return {**good, **changes}

    def without(name: str) -> dict[str, Any]:
        return {key: value for key, value in good.items() if key != name}

    cases: list[tuple[Any, int, str | None, str | None]] = [
        (without("input_file_id"), 400, "input_file_id", "missing_required_parameter"),
        (without("endpoint"), 400, "endpoint", "missing_required_parameter"),
        (without("completion_window"), 400, "completion_window", "missing_required_parameter"),
        (but(input_file_id=7), 400, "input_file_id", "invalid_type"),
        (but(input_file_id=None), 400, "input_file_id", "invalid_type"),
        (but(input_file_id=[file_id]), 400, "input_file_id", "invalid_type"),
        (but(input_file_id=UNKNOWN_FILE), 404, "input_file_id", None),
        (but(input_file_id=""), 404, "input_file_id", None),
        (but(input_file_id="\0"), 404, "input_file_id", None),
        (but(input_file_id=other_id), 400, "input_file_id", None),
        (but(endpoint="/v1/audio/speech"), 400, "endpoint", "invalid_value"),
        (but(endpoint="/chat/completions"), 400, "endpoint", "invalid_value"),
        *[
            (but(completion_window=window), 400, "completion_window", "invalid_value")
            for window in ("", "0h", "8d", "169h", "24", "h", "-1h", "1.5h", "24H", "٢h", "9999999h", "24h ", "soon")
        ],
        (but(completion_window=24), 400, "completion_window", "invalid_type"),
        (but(metadata={str(n): "" for n in range(17)}), 400, "metadata", "invalid_value"),
        (but(metadata={"k" * 65: ""}), 400, "metadata", "invalid_value"),
        (but(metadata={"k": "v" * 513}), 400, "metadata", "invalid_value"),
        (but(metadata={"k": 1}), 400, "metadata", "invalid_type"),
        (but(metadata={"k": "a\0b"}), 400, "metadata", "invalid_value"),
        (but(metadata={"a\0b": ""}), 400, "metadata", "invalid_value"),
        (but(metadata=["k"]), 400, "metadata", "invalid_type"),
        (but(output_expires_after={"anchor": "created_at", "seconds": 3599}), 400, "output_expires_after", None),
        (but(output_expires_after={"anchor": "created_at", "seconds": 2592001}), 400, "output_expires_after", None),
        (but(output_expires_after={"anchor": "now", "seconds": 3600}), 400, "output_expires_after", None),
        (but(output_expires_after={"seconds": 3600}), 400, "output_expires_after", None),
        (but(output_expires_after=3600), 400, "output_expires_after", None),
        (but(output_expires_after={"anchor": "created_at", "seconds": "3600"}), 400, "output_expires_after", None),
        (but(invalid_lines="skip"), 400, "invalid_lines", "invalid_value"),
        (but(priority=9), 400, "priority", "unknown_parameter"),
        ([good], 400, None, "invalid_type"),
        ("text", 400, None, "invalid_type"),
    ]
    for body, status, param, code in cases:
        response = await http.post("/v1/batches", json=body)
        error = assert_openai_error(response)
        assert (response.status_code, error["param"]) == (status, param), body
        if code is not None or status == 404:
            assert error["code"] == code, body
    assert await api.rows("SELECT id FROM batches") == []


async def test_a_wrong_endpoint_and_a_wrong_window_are_told_what_is_right(api: Api) -> None:
    file_id = (await upload(api)).id
    sdk = api.sdk()

    with pytest.raises(openai.BadRequestError, match="'/v1/embeddings'") as endpoint:
        await sdk.batches.create(**body_of(file_id, endpoint="/v1/audio/speech"))
    with pytest.raises(openai.BadRequestError, match="from '1h' to '7d'") as window:
        await sdk.batches.create(**body_of(file_id, completion_window="14d"))

    assert (endpoint.value.param, window.value.param) == ("endpoint", "completion_window")


async def test_the_same_idempotency_key_makes_one_batch(api: Api) -> None:
    file_id = (await upload(api)).id
    sdk = api.sdk()
    headers = {"Idempotency-Key": "k-1"}

    made = [await sdk.batches.create(**body_of(file_id), extra_headers=headers) for _ in range(2)]
    with pytest.raises(openai.BadRequestError) as reused:
        await sdk.batches.create(**body_of(file_id, completion_window="48h"), extra_headers=headers)

    assert made[0] == made[1]
    assert reused.value.code == "idempotency_key_reused"
    for wrong in ("", "x" * 256, "a b"):
        response = await api.http().post("/v1/batches", json=body_of(file_id), headers={"Idempotency-Key": wrong})
        assert response.status_code == 400


async def test_creates_at_the_same_time_under_one_key_make_one_batch(api: Api) -> None:
    file_id = (await upload(api)).id
    http = api.http(headers={"Authorization": f"Bearer {api.acme.secret}", "Idempotency-Key": "k-1"})

    replies = await asyncio.gather(*[http.post("/v1/batches", json=body_of(file_id)) for _ in range(8)])

    assert len({reply.json()["id"] for reply in replies}) == 1
    assert len(await api.rows("SELECT id FROM batches")) == 1


async def test_a_key_is_forgotten_where_the_create_failed_and_after_a_day(api: Api) -> None:
    file_id = (await upload(api)).id
    http = api.http(headers={"Authorization": f"Bearer {api.acme.secret}", "Idempotency-Key": "k-1"})

    assert (await http.post("/v1/batches", json=body_of(UNKNOWN_FILE))).status_code == 404
    first = (await http.post("/v1/batches", json=body_of(file_id))).json()
    await api.rows("UPDATE idempotency_keys SET created_at = now() - interval '24 hours'")
    second = (await http.post("/v1/batches", json=body_of(file_id, completion_window="2d"))).json()

    assert first["id"] != second["id"]


async def test_keys_of_different_tenants_are_different_keys(api: Api) -> None:
    headers = {"Idempotency-Key": "k-1"}
    mine = await api.sdk().batches.create(**body_of((await upload(api)).id), extra_headers=headers)
    theirs = await api.sdk(api.globex).files.create(file=("x.jsonl", LINE), purpose="batch")

    other = await api.sdk(api.globex).batches.create(**body_of(theirs.id), extra_headers=headers)

    assert other.id != mine.id


async def test_a_create_whose_reply_was_lost_is_not_repeated_by_the_sdks_retry(api: Api) -> None:
    file_id = (await upload(api)).id
    lost = 0

    class LosesTheFirstReply(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            nonlocal lost
            response = await super().handle_async_request(request)
            if request.method == "POST" and not lost:
                lost += 1
                await response.aclose()
                raise httpx2.RemoteProtocolError("the connection broke")
            return response

    http = httpx2.AsyncClient(transport=LosesTheFirstReply(verify=False), trust_env=False, verify=False)
    sdk = api.sdk(http_client=http, max_retries=2)

    batch = await sdk.batches.create(**body_of(file_id))

    assert lost == 1
    assert [row.id for row in await api.rows("SELECT id FROM batches")] == [batch.id]


async def test_two_equal_creates_on_purpose_make_two_batches(api: Api) -> None:
    file_id = (await upload(api)).id

    first, second = [await api.sdk().batches.create(**body_of(file_id)) for _ in range(2)]
    await api.rows("UPDATE idempotency_keys SET created_at = now() - interval '61 seconds'")
    late = await api.sdk().batches.create(**body_of(file_id), extra_headers={"x-stainless-retry-count": "1"})

    assert len({first.id, second.id, late.id}) == 3


async def test_a_batch_that_waits_to_be_validated_is_cancelled_at_once(api: Api) -> None:
    batch = await make_batch(api)

    cancelled = await api.sdk().batches.cancel(batch.id)

    assert cancelled.status == "cancelled"
    assert cancelled.cancelling_at is not None
    assert cancelled.cancelled_at is not None
    assert (cancelled.output_file_id, cancelled.error_file_id) == (None, None)
    assert await api.sdk().batches.retrieve(batch.id) == cancelled
    labels = {"status": "cancelled"}
    assert api.deps.metrics.registry.get_sample_value("slackwater_batches_ended_total", labels) == 1


@pytest.mark.parametrize("status", [BatchState.VALIDATING, BatchState.IN_PROGRESS])
async def test_an_open_batch_is_paused_and_resumed_and_keeps_its_deadline(api: Api, status: BatchState) -> None:
    batch = await make_batch(api)
    await put_into(api, batch.id, status)
    before = (await api.http().get(f"/v1/batches/{batch.id}")).json()

    paused = (await api.http().post(f"/v1/batches/{batch.id}/pause")).json()
    again = (await api.http().post(f"/v1/batches/{batch.id}/pause")).json()

    assert paused == again == {**before, "paused_at": paused["paused_at"]}
    assert before["created_at"] <= paused["paused_at"] <= before["created_at"] + HOUR
    assert (await api.sdk().batches.retrieve(batch.id)).to_dict() == paused
    assert (await api.http().post(f"/v1/batches/{batch.id}/resume")).json() == before
    assert (await api.http().post(f"/v1/batches/{batch.id}/resume")).json() == before


@pytest.mark.parametrize("action", ["pause", "resume"])
@pytest.mark.parametrize("status", [BatchState.FINALIZING, BatchState.COMPLETED, BatchState.EXPIRED])
async def test_a_batch_that_runs_nothing_any_more_is_not_paused(api: Api, status: BatchState, action: str) -> None:
    batch = await make_batch(api)
    await put_into(api, batch.id, status)

    refused = await api.http().post(f"/v1/batches/{batch.id}/{action}")

    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
    assert assert_openai_error(refused)["message"] == f"Cannot {action} a batch with status '{status}'."


async def test_a_running_batch_becomes_cancelling_and_asking_again_changes_nothing(api: Api) -> None:
    batch = await make_batch(api)
    await put_into(api, batch.id, BatchState.IN_PROGRESS)

    first = await api.sdk().batches.cancel(batch.id)
    second = await api.sdk().batches.cancel(batch.id)

    assert first == second
    assert (first.status, first.cancelled_at) == ("cancelling", None)
    assert first.cancelling_at is not None
    (row,) = await api.rows("SELECT ending FROM batches")
    assert row.ending == "cancelled"


async def test_an_ended_batch_cannot_be_cancelled_and_is_asked_only_once(api: Api) -> None:
    asked = []

    async def note(request: httpx2.Request) -> None:
        asked.append(request.url.path)

    http = httpx2.AsyncClient(event_hooks={"request": [note]}, trust_env=False, verify=False)
    sdk = api.sdk(http_client=http, max_retries=2)
    for status in TERMINAL | {BatchState.FINALIZING}:
        batch = await make_batch(api)
        await put_into(api, batch.id, status)
        before = await api.sdk().batches.retrieve(batch.id)
        asked.clear()

        with pytest.raises(openai.ConflictError) as refused:
            await sdk.batches.cancel(batch.id)

        assert refused.value.message.endswith(f"Cannot cancel a batch with status '{status}'.")
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert len(asked) == 1
        assert await api.sdk().batches.retrieve(batch.id) == before


async def test_an_unknown_batch_is_a_404_that_names_it(api: Api) -> None:
    for batch_id in (UNKNOWN_BATCH, "batch_x"):
        for call in (api.sdk().batches.retrieve, api.sdk().batches.cancel):
            with pytest.raises(openai.NotFoundError) as missing:
                await call(batch_id)
            assert missing.value.message.endswith(f"No batch found with id '{batch_id}'.")


async def test_paging_shows_every_batch_once_newest_first(api: Api) -> None:
    made = [(await make_batch(api)).id for _ in range(5)]

    assert [batch.id async for batch in api.sdk().batches.list(limit=2)] == made[::-1]


async def test_a_cursor_that_is_none_is_refused_and_never_the_first_page(api: Api) -> None:
    await make_batch(api)

    for after in (UNKNOWN_BATCH, "batch_doesnotexist", "x"):
        with pytest.raises(openai.NotFoundError) as missing:
            await api.sdk().batches.list(after=after)
        assert missing.value.param == "after"


async def test_a_batch_of_another_dialect_is_not_shown(api: Api) -> None:
    batch = await make_batch(api)
    await api.rows("UPDATE batches SET dialect = 'anthropic'")

    assert (await api.sdk().batches.list()).data == []
    for call in (api.sdk().batches.retrieve, api.sdk().batches.cancel):
        with pytest.raises(openai.NotFoundError):
            await call(batch.id)


async def test_showing_a_batch_is_one_query(api: Api) -> None:
    batch = await make_batch(api)
    stages: list[str] = []

    class Noting:
        async def before_commit(self, stage: str) -> None:
            stages.append(stage)

        async def after_commit(self, stage: str) -> None:
            return

    api.deps.db._seam = Noting()
    await api.http().get(f"/v1/batches/{batch.id}")

    assert stages == ["auth", "batches.get"]


async def test_errors_of_a_failed_batch_are_shown_as_a_list(api: Api) -> None:
    batch = await make_batch(api)
    errors = [{"code": "invalid_json_line", "message": "This line is not JSON.", "param": None, "line": 3}]
    await put_into(api, batch.id, BatchState.FAILED)
    await api.rows("UPDATE batches SET errors = %(errors)s", errors=json.dumps(errors))

    failed = await api.sdk().batches.retrieve(batch.id)

    assert failed.errors is not None
    assert failed.errors.to_dict() == {"object": "list", "data": errors}
    assert (failed.usage, failed.failed_at is not None) == (None, True)
