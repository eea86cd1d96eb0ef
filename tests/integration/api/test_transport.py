"""How the API speaks HTTP: paths, headers, keys, error bodies. Driven by the stock SDK where it can say the thing."""

import json
from typing import Any

import httpx2
import openai
import pytest
from structlog.testing import capture_logs

from tests.api_under_test import LINE, Api

UNKNOWN_BATCH = "batch_" + "0" * 32
UNKNOWN_FILE = "file-" + "0" * 32

HOSTILE_PATHS = (
    "/v1/files/..%2f..%2fetc%2fpasswd/content",
    "/v1/files/%2e%2e/content",
    "/v1/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/v1/files/file-1%3Fx%23y",
    "/v1/files/a%2Fb%20c%3Fd%23e%252F",
    "/v1/files/%00",
    "/v1/files/file-%0d%0aX-Evil:1",
    "/v1/files/" + "x" * 4000,
    "/v1/files/%ff%fe",
    f"/v1/files/inputs%2f{UNKNOWN_FILE}",
    f"/v1/files/{UNKNOWN_FILE}.part/content",
    "/v1/batches/..%2f..",
    "/v1/batches/%00/cancel",
    "/v1/models/%00",
    "/v1/models/..%2f..%2fetc",
    "/v1//batches",
)


async def make_batch(api: Api, **options: Any) -> openai.types.Batch:
    sdk = api.sdk()
    file = await sdk.files.create(file=("in.jsonl", LINE), purpose="batch")
    return await sdk.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **options
    )


def assert_openai_error(response: httpx2.Response) -> dict[str, Any]:
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert all(error[key] is None or isinstance(error[key], str) for key in ("param", "code"))
    return error


async def test_every_spelling_of_the_base_url_reaches_the_same_batch(api: Api) -> None:
    batch = await make_batch(api)

    for path in ("/v1", "/v1/", "", "/"):
        assert await api.sdk(path=path).batches.retrieve(batch.id) == batch


async def test_a_slash_or_a_missing_prefix_is_served_in_place(api: Api) -> None:
    for path in ("/v1/batches", "/v1/batches/", "/batches", "/batches/", "/v1/files/", "/files", "/models/"):
        response = await api.http().get(path)
        assert response.status_code == 200
        assert response.json()["object"] == "list"


async def test_a_wrong_key_is_an_authentication_error_that_does_not_repeat_it(api: Api) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        await api.sdk(api_key="sk-slw-not-a-key").batches.list()

    assert refused.value.code == "invalid_api_key"
    assert "not-a-key" not in str(refused.value)
    assert refused.value.response.headers["www-authenticate"] == "Bearer"


async def test_no_key_is_refused_before_anything_is_read(api: Api) -> None:
    http = api.http(headers={})

    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Basic x"}):
        for method in ("GET", "POST"):
            response = await http.request(method, "/v1/files", headers=headers)
            assert response.status_code == 401
            assert assert_openai_error(response)["code"] == "invalid_api_key"


async def test_a_key_may_come_in_any_of_three_headers(api: Api) -> None:
    secret = api.acme.secret

    for headers in ({"Authorization": f"Bearer {secret}"}, {"x-api-key": secret}, {"api-key": secret}):
        assert (await api.http(headers=headers).get("/v1/batches")).status_code == 200


async def test_a_key_header_set_by_hand_wins_over_the_dummy_that_the_sdk_sends(api: Api) -> None:
    sdk = api.sdk(api_key="EMPTY", default_headers={"api-key": api.acme.secret})

    assert (await sdk.batches.list()).data == []


async def test_organisation_project_and_unknown_headers_are_taken(api: Api) -> None:
    sdk = api.sdk(organization="org-x", project="proj-y", default_headers={"x-foo": "bar", "X-Request-Id": "mine"})

    page = await sdk.batches.list(extra_headers={"x-stainless-timeout": "NOT_GIVEN"})

    assert page.data == []


async def test_every_reply_carries_a_request_id_of_ours_under_both_names(api: Api) -> None:
    sdk = api.sdk()
    batch = await make_batch(api)
    http = api.http()

    assert batch._request_id is not None
    assert batch._request_id.startswith("req_")
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.batches.retrieve(UNKNOWN_BATCH)
    assert missing.value.request_id is not None
    for method, path in [("GET", "/v1/batches"), ("GET", "/nowhere"), ("PATCH", "/v1/batches"), ("GET", "/healthz")]:
        response = await http.request(method, path, headers={"x-request-id": "forged", "request-id": "forged"})
        assert response.headers["x-request-id"] == response.headers["request-id"]
        assert response.headers["x-request-id"].startswith("req_")


async def test_raw_and_streaming_wrappers_of_the_sdk_work(api: Api) -> None:
    batch = await make_batch(api)
    sdk = api.sdk()

    raw = await sdk.batches.with_raw_response.retrieve(batch.id)
    assert raw.parse() == batch
    assert raw.request_id is not None
    async with sdk.batches.with_streaming_response.retrieve(batch.id) as streamed:
        assert await streamed.parse() == batch


async def test_an_unknown_path_is_a_404_that_names_it(api: Api) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await api.sdk().get("/nothing/here", cast_to=object)

    assert missing.value.message.endswith("Invalid URL (GET /v1/nothing/here)")
    assert assert_openai_error(missing.value.response)


async def test_a_wrong_method_is_a_405_that_says_which_are_right(api: Api) -> None:
    http = api.http()

    for method, path, allowed in [
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/batches", "GET, POST"),
        ("PATCH", f"/v1/files/{UNKNOWN_FILE}", "DELETE, GET"),
        ("PUT", f"/v1/batches/{UNKNOWN_BATCH}", "GET"),
        ("GET", f"/v1/batches/{UNKNOWN_BATCH}/cancel", "POST"),
    ]:
        response = await http.request(method, path)
        assert response.status_code == 405
        assert response.headers["allow"] == allowed
        assert method in assert_openai_error(response)["message"]


async def test_an_id_that_is_none_is_a_404_and_reaches_nothing(api: Api) -> None:
    http = api.http()

    for path in HOSTILE_PATHS:
        for method in ("GET", "DELETE", "POST"):
            response = await http.request(method, path)
            assert response.status_code in {404, 405}
            assert_openai_error(response)


async def test_a_connection_goes_on_after_an_error(api: Api) -> None:
    http = api.http(limits=httpx2.Limits(max_connections=1))

    for _ in range(3):
        assert (await http.post("/v1/batches", content=b"{" * 10_000)).status_code == 400
        assert (await http.post("/v1/batches", content=b" " * (1 << 20) + b"{}")).status_code == 413
        assert (await http.get("/v1/batches")).status_code == 200


async def test_a_body_that_is_no_json_is_a_400(api: Api) -> None:
    sdk = api.sdk()

    for body in (b"", b"{", b"nonsense", b"\xff\xfe", b"{'a': 1}", b'{"a": 1} {}', b"[" * 100_000):
        with pytest.raises(openai.BadRequestError) as refused:
            await sdk.post("/batches", cast_to=object, content=body)
        assert assert_openai_error(refused.value.response)


async def test_a_body_over_the_limit_is_a_413_that_states_it(api: Api) -> None:
    response = await api.http().post("/v1/batches", content=b" " * ((1 << 20) + 1))

    assert response.status_code == 413
    assert str(1 << 20) in assert_openai_error(response)["message"]


async def test_cancel_and_delete_take_an_empty_body_whatever_it_calls_itself(api: Api) -> None:
    http = api.http()

    for headers in ({"Content-Type": "application/json"}, {}):
        batch = await make_batch(api)
        cancelled = await http.post(f"/v1/batches/{batch.id}/cancel", headers={**headers, "Content-Length": "0"})
        deleted = await http.request("DELETE", f"/v1/files/{batch.input_file_id}", headers=headers)
        assert (cancelled.status_code, deleted.status_code) == (200, 200)


async def test_anthropic_clients_get_errors_in_their_shape(api: Api) -> None:
    http = api.http()

    for path in ("/v1/files", "/v1/files/x/content", "/nowhere", "/v1/batches/x"):
        response = await http.get(path, headers={"anthropic-version": "2023-06-01"})
        body = response.json()
        assert response.status_code == 404
        assert body.keys() == {"type", "error", "request_id"}
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
        assert body["request_id"] == response.headers["request-id"]


async def test_a_wrong_key_of_an_anthropic_client_is_an_authentication_error(api: Api) -> None:
    headers = {"x-api-key": "wrong", "anthropic-version": "2023-06-01"}

    response = await api.http(headers=headers).get("/v1/models")

    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_models_are_readable_by_both_families(api: Api) -> None:
    await api.rows("INSERT INTO models (id, max_model_len, registered_by) VALUES ('org/small', 2048, 'operator')")
    await api.rows("INSERT INTO model_aliases (alias, model_id) VALUES ('gpt-4.1-mini', 'org/small')")
    sdk = api.sdk()

    models = (await sdk.models.list()).data

    assert [(model.id, model.object, model.owned_by) for model in models] == [
        ("gpt-4.1-mini", "model", "slackwater"),
        ("org/small", "model", "slackwater"),
    ]
    assert isinstance(models[0].created, int)
    assert await sdk.models.retrieve("org/small") == models[1]
    shown = (await api.http().get("/v1/models")).json()
    assert shown["data"][0].keys() >= {"type", "display_name", "created_at"}
    assert shown["has_more"] is False


async def test_an_unknown_model_is_a_404(api: Api) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await api.sdk().models.retrieve("gpt-5")

    assert missing.value.code == "model_not_found"


async def test_no_reply_is_anything_but_json(api: Api) -> None:
    batch = await make_batch(api)
    http = api.http()

    for path in (
        "/v1/batches",
        f"/v1/batches/{batch.id}",
        "/v1/files",
        f"/v1/files/{batch.input_file_id}",
        "/v1/models",
    ):
        response = await http.get(path)
        assert response.headers["content-type"] == "application/json"
        json.loads(response.content)
    for path in ("/docs", "/redoc", "/openapi.json", "/"):
        response = await http.get(path)
        assert response.status_code == 404
        assert_openai_error(response)


async def test_a_request_is_logged_with_its_ids_and_without_its_key(api: Api) -> None:
    with capture_logs() as logged:
        response = await api.http().get("/v1/batches/x%0Aforged?secret=1")

    (line,) = [entry for entry in logged if entry["event"] == "request"]
    assert line["request_id"] == response.headers["x-request-id"]
    assert (line["tenant_id"], line["status"], line["path"]) == (api.acme.id, 404, "/v1/batches/x\nforged")
    assert api.acme.secret not in repr(logged)
    assert "secret" not in repr(logged)


async def test_an_error_nobody_expected_is_a_500_with_an_id_and_no_detail(api: Api) -> None:
    await api.rows("ALTER TABLE models RENAME TO gone")

    with capture_logs() as logged, pytest.raises(openai.InternalServerError) as failed:
        await api.sdk().models.list()

    error = assert_openai_error(failed.value.response)
    request_id = failed.value.request_id
    assert request_id is not None
    assert request_id in error["message"]
    assert "gone" not in failed.value.response.text
    assert [entry["error"] for entry in logged if entry["event"] == "request failed"] == ["ProgrammingError"]
    labels = {"method": "GET", "route": "/v1/models", "status": "500"}
    assert api.deps.metrics.registry.get_sample_value("slackwater_http_requests_total", labels) == 1
