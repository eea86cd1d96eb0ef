"""Requests that want the service to fetch, read, run or reach what is not theirs."""

import asyncio

import pytest

from slackwater.inference.simulated import SimulatedEngine
from tests.cases.engine_cases import check_chat_templates, check_media_parts, check_remote_media
from tests.cases.inputs import MODEL, read
from tests.cases.marks import case
from tests.cases.network import Listener
from tests.cases.site import Site
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")


@case("Z01", "Z04")
async def test_media_from_elsewhere_are_refused_before_anything_is_connected_to(site: Site) -> None:
    await check_remote_media(site, site.engine, MODEL)


@case("Z04")
async def test_files_of_the_engines_machine_are_refused_in_every_part_that_holds_media(site: Site) -> None:
    await check_media_parts(site, site.engine, MODEL)


@case("Z01")
async def test_what_a_request_carries_itself_is_no_remote_media(site: Site) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    parts = [{"type": "text", "text": "see http://127.0.0.1/"}, {"type": "image_url", "image_url": {"url": pixel}}]

    ended = await site.acme.run(jsonl([line("a", parts), line("b", "file:///etc/passwd")]))  # type: ignore[arg-type]

    assert ended.counts == (2, 2, 0)


TRAVERSALS = [
    "..%2f..%2fetc%2fpasswd",
    "..%2F..%2Fetc%2Fpasswd",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%252f..%252fetc%252fpasswd",
    "..\\..\\etc\\passwd",
    "..%5c..%5cetc%5cpasswd",
    "%2fetc%2fpasswd",
    "inputs%2ffile-x",
    "file-x%00",
    "file-%3Fx%23y",
    "file-x%0d%0aX-Evil:%201",
    "%ff%fe",
    "%",
    "%zz",
]


async def raw_get(site: Site, path: str) -> bytes:
    """Send a path as it is, which no HTTP client would; return the whole answer."""
    host, _, port = site.api.origin.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.acme.key}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("latin-1"))
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("name", TRAVERSALS)
@case("Z07")
async def test_an_id_in_a_path_is_an_id_or_nothing(site: Site, name: str) -> None:
    site.store.read_keys.clear()

    for path in (f"/v1/files/{name}/content", f"/v1/files/{name}", f"/v1/batches/{name}"):
        answer = await raw_get(site, path)
        assert answer.split(b" ", 2)[1] in {b"404", b"400"}, answer
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"x-evil" not in head.lower()
        assert b"root:" not in body

    assert site.store.read_keys == []


@case("Z07")
async def test_dots_and_a_query_or_fragment_in_place_of_an_id_lead_nowhere(site: Site) -> None:
    file_id = await site.acme.upload(jsonl([line("a")]))

    for path in (f"/v1/files/../files/{file_id}x", "/v1/files/../../etc/passwd", "/v1/batches/../files/..//content"):
        assert (await raw_get(site, path)).split(b" ", 2)[1] == b"404"
    for path in (f"/v1/files/{file_id}?x=/content", f"/v1/files/{file_id}%3Fx"):
        answer = await raw_get(site, path)
        assert answer.split(b" ", 2)[1] in {b"200", b"404"}
        assert b'"custom_id"' not in answer


@case("Z10")
async def test_a_chat_template_of_the_customers_is_refused_and_never_rendered(site: Site) -> None:
    await check_chat_templates(site, site.engine, MODEL)


@case("Z14")
async def test_nothing_in_a_body_steers_the_request_elsewhere(site: Site) -> None:
    data = read("v14_body_credentials.jsonl")
    with Listener() as ear:
        data = data.replace(b"127.0.0.1:9", b"127.0.0.1:%d" % ear.port)
        failed = await site.acme.run(data)
        ran = await site.acme.run(data, invalid_lines="error")
        assert ear.callers() == 0

    assert failed.error_lines == [(line_number, "invalid_request") for line_number in (2, 3, 4)]
    assert [error["param"] for error in failed.errors] == ["body.api_base", "body.api_key", "body.extra_headers"]
    assert (ran.counts, set(ran.answered)) == ((4, 1, 3), {"a-1"})
    assert len(site.engine.sent) == 1
    assert isinstance(site.engine.inner, SimulatedEngine)
