"""Uploads as clients really send them, and as attackers do: any shape, in linear time, leaving nothing behind."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import openai
import pytest

from slackwater.api.settings import ApiSettings
from slackwater.domain.errors import DatabaseUnavailable
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.sweep import Sweeper
from tests.cases.inputs import FORM_HEADERS, INPUTS, form, read
from tests.cases.marks import case
from tests.cases.site import Site, own_site
from tests.nginx import run_nginx
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
GOOD = jsonl([line("a"), line("b")])
CPU_SECONDS_PER_MIB = 0.1


async def post_form(site: Site, body: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    return await site.acme.http.post("/v1/files", content=body, headers=FORM_HEADERS | (headers or {}))


@case("U01")
async def test_a_plain_form_is_taken_and_its_lines_run(site: Site) -> None:
    answer = await post_form(site, read("u01_plain.bin"))

    assert answer.status_code == 200, answer.text
    batch = await site.acme.create(answer.json()["id"])
    assert (await site.acme.ended(batch["id"])).status == "completed"


HEAD = b'--testboundary\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
QUOTES = b'--testboundary\r\nContent-Disposition: form-data; name="file"; ' + b'filename="' * 400
HOSTILE: dict[str, tuple[Callable[[], bytes], set[int]]] = {
    "dashes after the end": (lambda: read("u03_trailing_dashes.bin"), {200, 400}),
    "something before the start": (lambda: read("u04_preamble.bin"), {200, 400}),
    "5 MiB of dashes after the end": (lambda: form(GOOD).rstrip() + b"-" * (5 * MIB), {200, 400}),
    "5 MiB of dashes before the start": (lambda: b"-" * (5 * MIB) + b"\r\n" + form(GOOD), {200, 400}),
    "line ends before the start": (lambda: b"\r\n" * (2 * MIB) + form(GOOD), {200, 400}),
    "almost boundaries before the start": (lambda: b"\r\n--testboundar" * 300_000 + form(GOOD), {200, 400}),
    "almost boundaries in the file": (lambda: form(b"\r\n--testboundar" * 300_000), {200}),
    "a header without an end": (lambda: b"--testboundary\r\nX-A: " + b"a" * (4 * MIB), {400}),
    "headers without an end": (lambda: b"--testboundary\r\n" + b"X-A: b\r\n" * 500_000 + form(GOOD), {400}),
    "a header full of quotes": (lambda: QUOTES + b"\r\n\r\n" + form(GOOD), {400}),
    "fifty thousand parts": (lambda: HEAD.replace(b"purpose", b"x[]") * 50_000 + form(GOOD), {400}),
    "a field of 4 MiB": (lambda: HEAD.replace(b"batch", b"b" * (4 * MIB)) + form(GOOD), {400}),
    "nothing": (lambda: b"", {400}),
}
"""Forms that a careless parser reads a byte, or a header, or a part at a time, over and over."""


@pytest.mark.parametrize("name", HOSTILE)
@case("U06")
async def test_a_hostile_form_is_taken_or_refused_in_linear_time(site: Site, name: str) -> None:
    make, statuses = HOSTILE[name]
    body = make()

    before = time.process_time()
    answer = await post_form(site, body)
    spent = time.process_time() - before

    assert answer.status_code in statuses, answer.text
    # The client and all stages run in this process, too, and count against the bound.
    assert spent < 0.3 + CPU_SECONDS_PER_MIB * len(body) / MIB
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def file_names() -> list[str]:
    lines = (INPUTS / "f01_file_names.jsonl").read_text().splitlines()
    return [json.loads(one)["filename"] for one in lines]


async def written(site: Site) -> set[str]:
    """Every file below the site's folder, by its path from there."""
    return {str(path.relative_to(site.folder)) for path in site.folder.rglob("*") if path.is_file()}


@case("U08", "Z06")
async def test_a_file_name_is_for_display_only_and_never_a_place(site: Site) -> None:
    before = await written(site)
    taken: dict[str, str] = {}

    for name in file_names():
        answer = await post_form(site, form(GOOD, filename=name.encode()))
        assert answer.status_code in {200, 400}, name
        if answer.status_code == 400:
            assert answer.json()["error"]["param"] == "file", name
            continue
        shown = answer.json()
        taken[shown["id"]] = shown["filename"]
        content = await site.acme.http.get(f"/v1/files/{shown['id']}/content")
        assert (content.status_code, content.content) == (200, GOOD)
        assert len(content.headers.get_list("content-disposition")) == 1
        assert "x-evil" not in content.headers
        again = await site.acme.sdk.files.retrieve(shown["id"])
        assert again.filename == shown["filename"]

    assert await written(site) - before == {f"objects/inputs/{file_id}" for file_id in taken}
    assert {"日本語.jsonl", "😀.jsonl", "café %2e%2e%2f.jsonl", "{{7*7}}.jsonl", "a/b.jsonl", "/etc/passwd"} <= set(
        taken.values()
    )
    assert not any(mark in name for name in taken.values() for mark in "\0\r\n")


@case("U08")
async def test_a_smuggled_second_name_is_refused_or_not_used(site: Site) -> None:
    smuggled = b"filename=\"in.jsonl\"; filename*=UTF-8''evil%0D%0AX-Evil%3A%201.sh"
    body = form(GOOD).replace(b'filename="in.jsonl"', smuggled)
    assert smuggled in body

    answer = await post_form(site, body)

    assert answer.status_code == 400 or answer.json()["filename"] == "in.jsonl"


async def zeros(total: int) -> AsyncIterator[bytes]:
    """A form whose file is made of zeros, as a client without a Content-Length sends it."""
    head, tail = form(b"\1").split(b"\1")
    yield head
    for _ in range(total // MIB):
        yield bytes(MIB)
    yield tail


async def write_all_then_read(site: Site, total: int) -> bytes:
    """Send a form as a client that looks at the answer only after it has sent everything; return the answer's head."""
    host, _, port = site.api.origin.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.acme.key}\r\n"
    pieces = [piece async for piece in zeros(MIB)]
    length = sum(map(len, pieces)) + total - MIB
    writer.write(f"{head}Content-Type: {FORM_HEADERS['Content-Type']}\r\nContent-Length: {length}\r\n\r\n".encode())
    async for piece in zeros(total):
        writer.write(piece)
        await writer.drain()
    answer = await reader.readuntil(b"\r\n")
    writer.close()
    return answer


@case("U07")
async def test_a_file_far_over_the_limit_is_a_413_that_every_client_can_read(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    limit, sent = MIB, 128 * MIB
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.truncate(sent)
    async with own_site(postgres_server, tmp_path / "site", api_settings=ApiSettings(max_upload_bytes=limit)) as site:
        sdk = site.acme.sdk.with_options(max_retries=2)

        with pytest.raises(openai.APIStatusError) as announced:
            await sdk.files.create(file=path, purpose="batch")
        chunked = await site.acme.http.post("/v1/files", content=zeros(sent), headers=FORM_HEADERS)
        patient = await write_all_then_read(site, sent)
        fitting = await site.acme.http.post("/v1/files", content=zeros(limit), headers=FORM_HEADERS)

        assert (announced.value.status_code, announced.value.code) == (413, "file_too_large")
        assert str(limit) in announced.value.message
        assert (chunked.status_code, chunked.json()["error"]["code"]) == (413, "file_too_large")
        assert patient.startswith(b"HTTP/1.1 413 ")
        assert fitting.status_code == 200
        assert len(await site.store.keys("inputs")) == 1
        assert site.server_errors() == {}


class LosesTheRow:
    """A database that breaks around the commit of an upload's row: before it, or after it, when told to."""

    def __init__(self) -> None:
        self.before = self.after = False

    async def before_commit(self, stage: str) -> None:
        if self.before and stage == "intake.file":
            raise DatabaseUnavailable("the database is gone")

    async def after_commit(self, stage: str) -> None:
        if self.after and stage == "intake.file":
            raise DatabaseUnavailable("the connection broke")


@case("U10")
@pytest.mark.parametrize("headers", [{}, {"x-stainless-retry-count": "0"}])
async def test_an_upload_whose_row_cannot_be_made_is_a_503_and_no_ghost(
    postgres_server: EmbeddedPostgres, tmp_path: Path, headers: dict[str, str]
) -> None:
    seam = LosesTheRow()
    async with own_site(postgres_server, tmp_path, seam=seam) as site:
        seam.before = True
        refused = await post_form(site, form(GOOD), headers)
        seam.before = False
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert (await site.acme.http.get("/v1/files")).json()["data"] == []

        seam.after = True
        unheard = await post_form(site, form(GOOD), headers)
        seam.after = False

        # The row was made although the client could not be told: it points at whole bytes.
        assert unheard.status_code == 503
        (kept,) = (await site.acme.http.get("/v1/files")).json()["data"]
        assert await site.acme.content(kept["id"]) == GOOD

        # Two days on, the object without a row is collected, and the other is not.
        in_two_days = datetime.now(UTC) + timedelta(days=2)
        assert len(await site.store.keys("inputs")) == 2
        sweeper = Sweeper(db=site.db, store=site.store, keep_seconds=0, now=lambda: in_two_days)
        assert await sweeper.sweep_orphans_once()
        assert await site.store.keys("inputs") == {f"inputs/{kept['id']}"}
        assert await site.acme.content(kept["id"]) == GOOD


@case("U11")
async def test_our_proxy_configuration_lets_large_files_through_in_both_directions(site: Site, tmp_path: Path) -> None:
    upstream = site.api.origin.removeprefix("http://")
    headers = {"Authorization": f"Bearer {site.acme.key}"}
    async with (
        run_nginx(upstream, tmp_path) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60) as http,
    ):
        sent = await http.post("/v1/files", content=zeros(64 * MIB), headers=FORM_HEADERS)
        assert sent.status_code == 200, sent.text
        size = 0
        async with http.stream("GET", f"/v1/files/{sent.json()['id']}/content") as answer:
            async for piece in answer.aiter_bytes():
                size += len(piece)
        missing = await http.get("/v1/files/file-unknown/content")

    assert size == 64 * MIB
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")
