"""Whatever a client sends is answered with a 2xx or a 4xx in our shape, never with a 5xx."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
from hypothesis import strategies as st

from tests.api_under_test import LINE, Api
from tests.integration.api.test_files import form, stored, upload
from tests.integration.api.test_transport import assert_openai_error

INPUTS = Path(__file__).parents[2] / "cases/inputs"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (INPUTS / name).read_text().splitlines()]


async def test_the_collected_bodies_get_what_they_should(api: Api) -> None:
    file_id = (await upload(api)).id
    http = api.http()

    for case in lines("b01_create_bodies.jsonl"):
        content = json.dumps(case["body"]).replace("FILE", file_id)
        response = await http.post("/v1/batches", content=content)
        expected = case["expect"]
        assert str(response.status_code) in expected, case["name"]
        if response.status_code >= 400:
            error = assert_openai_error(response)
            if "param=" in expected:
                assert error["param"] == expected.split("param=")[1].split(",")[0]
            if case["name"] == "unknown_field":
                assert error["param"] in {"priority", "extra"}


async def test_the_collected_list_queries_are_honoured_or_refused_by_name(api: Api) -> None:
    file = await upload(api)
    theirs = await api.sdk(api.globex).files.create(file=("x.jsonl", LINE), purpose="batch")
    http = api.http()

    for path in ("/v1/files", "/v1/batches"):
        for line in (INPUTS / "q01_list_queries.txt").read_text().splitlines():
            response = await http.get(f"{path}?{line.replace('OTHER_TENANTS_ID', theirs.id)}")
            assert response.status_code in {200, 400, 404}, line
            if response.status_code == 200:
                assert response.json()["object"] == "list"
            else:
                assert assert_openai_error(response)["param"] == line.split("=")[0].split("[")[0]
    assert (await http.get("/v1/files?limit=1")).json()["data"][0]["id"] == file.id


async def test_the_collected_file_names_are_kept_for_show_or_refused(api: Api) -> None:
    http = api.http()
    names = [case["filename"] for case in lines("f01_file_names.jsonl")]

    for name in names:
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        response = await http.post("/v1/files", **form(("purpose", None, b"batch"), ("file", quoted, LINE)))
        if response.status_code == 400:
            assert assert_openai_error(response)["param"] in {"file", None}
            continue
        assert response.status_code == 200, name
        made = response.json()
        content = await http.get(f"/v1/files/{made['id']}/content")
        assert content.content == LINE
        assert content.headers["content-disposition"].endswith(quote(made["filename"], safe=""))
        assert "x-evil" not in content.headers
        assert "\0" not in made["filename"]
    assert set(await stored(api)) == {f"inputs/{file.id}" for file in (await api.sdk().files.list()).data}
    assert len(await stored(api)) > len(names) // 2


async def test_the_collected_forms_are_taken_or_refused(api: Api) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=testboundary"}

    for name, allowed in [
        ("u01_plain.bin", {200}),
        ("u03_trailing_dashes.bin", {200, 400}),
        ("u04_preamble.bin", {200, 400}),
    ]:
        response = await api.http().post("/v1/files", content=(INPUTS / name).read_bytes(), headers=headers)
        assert response.status_code in allowed


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after", "invalid_lines", "x")


async def test_no_body_and_no_query_is_answered_with_a_server_error(api: Api) -> None:
    file_id = (await upload(api)).id
    good = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    http = api.http()
    sent: list[tuple[str, str, bytes | None]] = []

    @hypothesis.settings(max_examples=25, database=None, deadline=None)
    @hypothesis.given(
        st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, min_size=1, max_size=2) | ANY_JSON, st.binary()
    )
    def collect(changes: Any, noise: bytes) -> None:
        body = {**good, **changes} if isinstance(changes, dict) else changes
        sent.append(("POST", "/v1/batches", json.dumps(body).encode("utf-8", "surrogatepass")))
        sent.append(("POST", "/v1/batches", noise))
        sent.append(("GET", f"/v1/files?after={quote(noise)}&limit={quote(noise[:3])}", None))
        sent.append(("GET", f"/v1/batches/{quote(noise, safe='')}", None))

    collect()
    for method, path, content in sent:
        response = await http.request(method, path, content=content)
        assert response.status_code < 500, (method, path, content)
        if response.status_code >= 400:
            assert_openai_error(response)
