"""Secrets stay out of logs and answers, whatever goes wrong and wherever they were put."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2
import psycopg
import pytest

from slackwater.db.catalog import add_model
from slackwater.db.session import Database
from slackwater.embedded.postgres import EmbeddedPostgres
from tests.api_under_test import make_tenant
from tests.cases.children import refuses_to_start
from tests.cases.databases import fresh_database
from tests.cases.marks import case
from tests.processes import Processes, free_port, running
from tests.service import MODEL, jsonl, line

MARK = "m4rk3d-s3cr3t"
PASSWORD, STORE_KEY, STORE_SECRET, ENGINE_KEY, ENGINE_PASSWORD = (
    f"{MARK}-{part}" for part in ("password", "store-key", "store-secret", "engine-key", "engine-password")
)
GOOD = jsonl([line("a")])


@dataclass
class MarkedSite:
    """Processes all of whose secrets bear the mark, and a customer's key."""

    processes: Processes
    server_url: str
    key: str

    def role(self, statement: str) -> None:
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def break_database(self) -> None:
        """Let nobody in with the marked password any more, and end who is in."""
        self.role("ALTER ROLE marked NOLOGIN")
        self.role("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'marked'")

    def mend_database(self) -> None:
        self.role("ALTER ROLE marked LOGIN")

    def logs(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.processes.logs.glob("*.log")}


@asynccontextmanager
async def marked_site(server: EmbeddedPostgres, folder: Path, **more: str) -> AsyncIterator[MarkedSite]:
    with fresh_database(server) as url:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE marked SUPERUSER LOGIN PASSWORD '{PASSWORD}'".encode())
        head, _, tail = url.partition("@")
        environment = {
            "SLACKWATER_DATABASE_URL": f"{head.split('//')[0]}//marked:{quote(PASSWORD)}@{tail}",
            "SLACKWATER_STORE_URL": f"file://{folder / 'objects'}",
            "SLACKWATER_ENGINE": "simulated",
            "SLACKWATER_LOG_LEVEL": "debug",
            **more,
        }
        try:
            db = Database.connect(url)
            await add_model(db, model_id=MODEL, actor="test")
            tenant = await make_tenant(db, "acme")
            await db.close()
            with running(environment, folder) as processes:
                yield MarkedSite(processes=processes, server_url=server.url, key=tenant.secret)
        finally:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(b"REASSIGN OWNED BY marked TO slackwater")
                connection.execute(b"DROP ROLE marked")


def hits(texts: dict[str, str], *secrets: str) -> list[tuple[str, str]]:
    """Every line that shows a secret, with where it stands."""
    return [
        (name, one)
        for name, text in texts.items()
        for one in text.splitlines()
        if any(secret in one for secret in secrets)
    ]


async def misuse(site: MarkedSite, http: httpx2.AsyncClient) -> list[httpx2.Response]:
    """Send keys in every place where people put them, good ones and bad ones, and bodies that go wrong."""
    own, wrong = site.key, f"sk-{MARK}"
    basic = base64.b64encode(f"user:{own}".encode()).decode()
    answers = []
    for key in (own, wrong):
        for headers in (
            {"Authorization": f"Bearer {key}"},
            {"Authorization": f"Bearer Bearer {key}"},
            {"Authorization": key},
            {"Authorization": f"Basic {basic}"},
            {"api-key": key},
            {"x-api-key": key, "anthropic-version": "2023-06-01"},
            {"Cookie": f"session={key}", "X-Request-Id": key},
        ):
            paths = ("/v1/files", f"/v1/files?api_key={key}", f"/v1/files/{key}/content", f"/{key}")
            answers += [await http.get(path, headers=headers) for path in paths]
            body = {"api_key": key, "input_file_id": key}
            answers.append(await http.post("/v1/batches", headers=headers, json=body))
    return answers


@case("Z11")
async def test_no_secret_is_in_a_log_or_an_answer_when_the_database_goes_away(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with marked_site(postgres_server, tmp_path) as site:
        for role in ("api", "control", "work"):
            site.processes.start(role)
        origin = site.processes.base_url.removesuffix("/v1")
        async with httpx2.AsyncClient(base_url=origin, trust_env=False, timeout=60) as http:
            headers = {"Authorization": f"Bearer {site.key}"}
            fine = await misuse(site, http)
            await asyncio.to_thread(site.break_database)
            down = [await http.get("/v1/files", headers=headers), await http.get("/readyz")]
            down.append(
                await http.post("/v1/files", headers=headers, data={"purpose": "batch"}, files={"file": ("a", GOOD)})
            )
            logs = await until(site, "work.log", "does not answer")
            await asyncio.to_thread(site.mend_database)
            after = await http.get("/v1/files", headers=headers)

        assert {answer.status_code for answer in fine} <= {200, 400, 401, 404}
        assert [answer.status_code for answer in down] == [503, 503, 503]
        assert after.status_code == 200
        assert hits(logs, MARK, site.key) == []
        assert "database does not answer" in logs["api.log"]
        answers = {f"answer {n}": answer.text for n, answer in enumerate([*fine, *down, after])}
        assert hits(answers, PASSWORD) == []
        # A key is repeated to its sender only where it was sent as the name of something.
        plain = {str(answer.url): answer.text for answer in [*fine, *down] if answer.url.path == "/v1/files"}
        assert hits(plain, MARK, site.key) == []


async def until(site: MarkedSite, name: str, words: str) -> dict[str, str]:
    """Wait until a log says something; return all logs."""
    async with asyncio.timeout(60):
        while words not in site.logs()[name]:
            await asyncio.sleep(0.05)
    return site.logs()


@case("Z11")
async def test_no_secret_is_in_a_log_or_a_result_when_store_and_engine_cannot_be_reached(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    settings = {
        "SLACKWATER_STORE_ENDPOINT": f"http://{nobody}",
        "SLACKWATER_STORE_ACCESS_KEY_ID": STORE_KEY,
        "SLACKWATER_STORE_SECRET_ACCESS_KEY": STORE_SECRET,
        "SLACKWATER_ENGINE_URL": f"http://{nobody}",
        "SLACKWATER_ENGINE_API_KEY": ENGINE_KEY,
    }
    async with marked_site(postgres_server, tmp_path, **settings) as site:
        for role in ("api", "control"):
            site.processes.start(role, store_url="s3://bucket/marked")
        site.processes.start("work", engine="url")
        origin = site.processes.base_url.removesuffix("/v1")
        headers = {"Authorization": f"Bearer {site.key}"}
        async with httpx2.AsyncClient(base_url=origin, trust_env=False, timeout=120, headers=headers) as http:
            upload = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", GOOD)})
            ready = await http.get("/readyz")
        site.processes.stop()
        logs = site.logs()

        assert (upload.status_code, ready.status_code) == (503, 503)
        assert hits({**logs, "upload": upload.text, "ready": ready.text}, MARK, site.key) == []
        # The logs do say what is wrong.
        (told,) = [json.loads(one) for one in logs["api.log"].splitlines() if "request not served" in one]
        assert told["request_id"] == upload.headers["x-request-id"]
        assert "object store" in told["cause"]
        assert nobody in told["driver"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"SLACKWATER_ENGINE_URL": f"http://user:{ENGINE_PASSWORD}@127.0.0.1:1/v1"},
        {"SLACKWATER_ENGINE_URL": "http://127.0.0.1:1", "SLACKWATER_ENGINE_API_KEY": f"{ENGINE_KEY}\n"},
        {"SLACKWATER_DATABASE_URL": f"postgres:{PASSWORD}"},
        {"SLACKWATER_STORE_SECRET": STORE_SECRET},
    ],
    ids=", ".join,
)
@case("Z11")
async def test_a_setting_that_is_refused_is_not_repeated(wrong: dict[str, str], tmp_path: Path) -> None:
    settings = {"SLACKWATER_ENGINE": "url", "SLACKWATER_STORE_URL": f"file://{tmp_path}", **wrong}

    said = await refuses_to_start("work", settings)

    assert hits({"said": said}, MARK) == []
    assert "Traceback" not in said


@pytest.fixture(autouse=True)
def _no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes inherit nothing that could send them to a real store or engine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
