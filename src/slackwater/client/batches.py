"""Requests of the batches and models APIs. Pure: each function builds one operation."""

from collections.abc import Mapping

from slackwater.client.calls import Call, Operation, Pairs, json_call, segment
from slackwater.client.replies import Batch, Model, Page


def create_batch(
    *,
    input_file_id: str,
    endpoint: str,
    key: str,
    completion_window: str = "24h",
    metadata: Mapping[str, str] | None = None,
    output_expires_after_seconds: int | None = None,
    invalid_lines: str | None = None,
) -> Operation[Batch]:
    """Start a batch. ``key`` is the idempotency key: a create that is sent again makes no second batch.

    ``invalid_lines`` is this service's own option: ``fail`` refuses the whole file for one bad line (the default),
    ``error`` gives that line its error and runs the rest.
    """
    body: dict[str, object] = {
        "input_file_id": input_file_id,
        "endpoint": endpoint,
        "completion_window": completion_window,
    }
    if metadata:
        body["metadata"] = dict(metadata)
    if output_expires_after_seconds is not None:
        body["output_expires_after"] = {"anchor": "created_at", "seconds": output_expires_after_seconds}
    if invalid_lines is not None:
        body["invalid_lines"] = invalid_lines
    return Operation(call=json_call("/batches", body, headers=(("Idempotency-Key", key),)), into=Batch)


def get_batch(batch_id: str) -> Operation[Batch]:
    """Look at one batch."""
    return Operation(call=Call(method="GET", path=f"/batches/{segment(batch_id)}"), into=Batch)


def cancel_batch(batch_id: str) -> Operation[Batch]:
    """Ask for a batch's end; what is done stays."""
    return Operation(call=Call(method="POST", path=f"/batches/{segment(batch_id)}/cancel"), into=Batch)


def pause_batch(batch_id: str) -> Operation[Batch]:
    """Ask that nothing more of a batch runs for now; its deadline stays. This service's own."""
    return Operation(call=Call(method="POST", path=f"/batches/{segment(batch_id)}/pause"), into=Batch)


def resume_batch(batch_id: str) -> Operation[Batch]:
    """Let a paused batch run on. This service's own."""
    return Operation(call=Call(method="POST", path=f"/batches/{segment(batch_id)}/resume"), into=Batch)


def list_batches(*, after: str | None = None, limit: int = 100) -> Operation[Page[Batch]]:
    """List one page of batches, newest first; ``limit`` is 1 to 100."""
    query: Pairs = (("limit", str(limit)),)
    if after is not None:
        query = (*query, ("after", after))
    return Operation(call=Call(method="GET", path="/batches", query=query), into=Page[Batch])


def list_models() -> Operation[Page[Model]]:
    """List the models that requests may name."""
    return Operation(call=Call(method="GET", path="/models"), into=Page[Model])
