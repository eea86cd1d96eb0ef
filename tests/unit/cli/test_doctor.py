import dataclasses
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from slackwater.cli.doctor import doctor
from slackwater.cli.doctor_findings import (
    Verdict,
    judge_clocks,
    judge_leadership,
    judge_models,
    judge_schema,
    judge_server,
    judge_workers,
)
from slackwater.cli.doctor_machine import (
    examine_environment,
    examine_gpu,
    examine_model,
    examine_scratch,
    examine_server,
)
from slackwater.cli.doctor_site import examine_database, examine_store
from slackwater.config import Settings
from slackwater.db.catalog import Model, Worker
from slackwater.db.diagnosis import Leadership, Server
from slackwater.embedded.engine_recipe import Accelerator
from slackwater.inference.simulated import SimulatedEngine
from slackwater.inference.simulated_server import serve

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

SERVER = Server(major=18, version="18.4", now=NOON, standby=False, survives_power_loss=True, waits_for_commits=True)
WORKER = Worker(
    id="worker-1",
    models=("small",),
    slots=8,
    in_flight=0,
    engine_ready=True,
    draining=False,
    alive=True,
    lines_per_second=None,
    started_at=NOON,
    heartbeat_at=NOON,
)
MODEL = Model(
    id="small",
    endpoints=None,
    max_model_len=None,
    registered_by="worker",
    aliases=(),
    live_workers=1,
    created_at=NOON,
)


def run(tmp_path: Path, *arguments: str, **environment: str) -> Result:
    """Run the command as a user whose home is the test's folder, with no setting but the given ones."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(doctor)
    # The one that the command itself may set is named too, so that it is taken back.
    ours = dict.fromkeys([name for name in os.environ if name.startswith("SLACKWATER_")] + ["SLACKWATER_CONFIG_FILE"])
    runner = CliRunner(env={**ours, "HOME": str(tmp_path), **environment})
    return runner.invoke(app, list(arguments), catch_exceptions=False)


def rows(result: Result) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in map(json.loads, result.stdout.splitlines())}


# The command


def test_in_a_pipe_every_finding_is_one_json_object_and_a_fault_is_exit_code_one(tmp_path: Path) -> None:
    result = run(tmp_path, SLACKWATER_DATABASE_URL="postgresql://me:hush-hush@127.0.0.1:1/site")

    found = rows(result)
    assert list(found) == ["settings", "database", "store", "engine", "model", "gpu", "scratch"]
    assert found["database"]["verdict"] == "fault"
    assert "127.0.0.1/site: " in found["database"]["found"]
    assert "hush-hush" not in result.output
    assert result.exit_code == 1


def test_a_wrong_setting_is_named_and_nothing_else_is_asked(tmp_path: Path) -> None:
    result = run(tmp_path, SLACKWATER_DATABASE="postgresql://somewhere/else")

    found = rows(result)
    assert list(found) == ["settings"]
    assert "SLACKWATER_DATABASE" in found["settings"]["found"]
    assert result.exit_code == 1


def test_whatever_is_not_well_comes_with_advice(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert [row for row in rows(result).values() if (row["verdict"] == "ok") == bool(row["advice"])] == []


def test_it_leaves_no_folder_behind_where_there_was_none(tmp_path: Path) -> None:
    objects = tmp_path / "objects"

    result = run(tmp_path, SLACKWATER_STORE_URL=f"file://{objects}")

    assert rows(result)["store"]["verdict"] == "warn"
    assert not objects.exists()


def test_beside_a_running_up_its_site_is_examined(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "site.toml").write_text(
        f'database_url = "postgresql://me@127.0.0.1:1/up"\nstore_url = "file://{tmp_path}"\n'
    )

    result = run(tmp_path, "--data-dir", str(tmp_path))

    found = rows(result)
    assert list(found) == ["settings", "database", "store", "engine", "scratch"]
    assert "127.0.0.1/up" in found["database"]["found"]
    assert str(tmp_path / "scratch") in found["scratch"]["found"]
    assert "SLACKWATER_CONFIG_FILE" not in os.environ


# Database


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        (SERVER, Verdict.OK),
        (dataclasses.replace(SERVER, standby=True), Verdict.FAULT),
        (dataclasses.replace(SERVER, survives_power_loss=False), Verdict.FAULT),
        (dataclasses.replace(SERVER, waits_for_commits=False), Verdict.WARN),
        (dataclasses.replace(SERVER, major=15, version="15.8"), Verdict.WARN),
    ],
)
def test_a_database_takes_writes_keeps_them_and_is_the_tested_version(server: Server, verdict: Verdict) -> None:
    assert judge_server(server).verdict is verdict


@pytest.mark.parametrize(
    ("current", "verdict", "advice"),
    [
        ("0003", Verdict.OK, ""),
        (None, Verdict.FAULT, "slackwater migrate"),
        ("0001", Verdict.FAULT, "slackwater migrate"),
        ("0004", Verdict.FAULT, "same version everywhere"),
    ],
)
def test_a_schema_is_the_newest_this_version_knows(current: str | None, verdict: Verdict, advice: str) -> None:
    finding = judge_schema(current, ("0003", "0002", "0001"))

    assert finding.verdict is verdict
    assert advice in finding.advice


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (5, "ok"), (-5, "ok"), (9, "warn"), (-9, "warn")])
def test_clocks_may_be_a_few_seconds_apart(seconds: int, verdict: str) -> None:
    finding = judge_clocks(NOON + timedelta(seconds=seconds), before=NOON, after=NOON)

    assert finding.verdict == verdict


def test_a_slow_answer_is_not_taken_for_a_wrong_clock() -> None:
    finding = judge_clocks(NOON, before=NOON, after=NOON + timedelta(seconds=12))

    assert finding.verdict is Verdict.OK


async def test_a_url_of_another_database_is_refused_without_showing_it() -> None:
    (finding,) = await examine_database("mysql://me:hush-hush@somewhere/site", now=lambda: NOON)

    assert finding.verdict is Verdict.FAULT
    assert "hush-hush" not in str(finding)


# Leader, workers, models


def test_without_a_leader_nothing_is_leased() -> None:
    leads = Leadership(term=7, holder="here-1", elected_at=NOON, alive=True)

    assert judge_leadership(None).verdict is Verdict.FAULT
    assert judge_leadership(dataclasses.replace(leads, alive=False)).verdict is Verdict.FAULT
    assert judge_leadership(leads).verdict is Verdict.OK
    assert "term 7" in judge_leadership(leads).found


@pytest.mark.parametrize(
    ("workers", "verdict", "found"),
    [
        ([], Verdict.WARN, "none is alive"),
        ([dataclasses.replace(WORKER, alive=False)], Verdict.WARN, "1 fell silent"),
        ([WORKER, dataclasses.replace(WORKER, id="worker-2", engine_ready=False)], Verdict.WARN, "worker-2"),
        ([dataclasses.replace(WORKER, draining=True)], Verdict.WARN, "drain"),
        ([WORKER, dataclasses.replace(WORKER, id="worker-2", alive=False)], Verdict.OK, "1 alive: worker-1"),
    ],
)
def test_some_worker_is_alive_has_an_engine_and_takes_work(workers: list[Worker], verdict: Verdict, found: str) -> None:
    finding = judge_workers(workers)

    assert finding.verdict is verdict
    assert found in finding.found


def test_every_known_model_has_a_live_worker() -> None:
    waiting = [dataclasses.replace(MODEL, id=f"large-{n}", live_workers=0) for n in range(7)]

    assert judge_models([]).verdict is Verdict.WARN
    assert judge_models([MODEL]).verdict is Verdict.OK
    assert "large-0, large-1, large-2, large-3, large-4 and 2 more" in judge_models([MODEL, *waiting]).found


# Store


async def test_the_store_is_written_read_and_cleared(tmp_path: Path) -> None:
    finding = await examine_store(Settings(store_url=f"file://{tmp_path}"))

    assert finding.verdict is Verdict.OK
    assert [path for path in tmp_path.rglob("*") if path.is_file() and ".staging" not in path.parts] == []


async def test_a_store_of_another_kind_is_a_fault() -> None:
    finding = await examine_store(Settings(store_url="https://somewhere/bucket"))

    assert finding.verdict is Verdict.FAULT


async def test_a_store_that_does_not_answer_is_a_fault() -> None:
    settings = Settings(
        store_url="s3://bucket",
        store_endpoint="http://127.0.0.1:1",
        store_access_key_id="me",
        store_secret_access_key=SecretStr("hush-hush"),
    )

    finding = await examine_store(settings)

    assert finding.verdict is Verdict.FAULT
    assert "hush-hush" not in str(finding)


# This machine


async def test_an_engine_that_answers_is_asked_for_its_models() -> None:
    server = await serve(SimulatedEngine())
    try:
        answers = await examine_server(Settings(engine="url", engine_url=server.url))
    finally:
        await server.close()
    silent = await examine_server(Settings(engine="url", engine_url=server.url))

    assert (answers.verdict, answers.found) == (Verdict.OK, "serves simulated")
    assert silent.verdict is Verdict.FAULT


async def test_an_engine_that_wants_a_key_is_a_fault_without_it() -> None:
    server = await serve(SimulatedEngine(), api_key="engine-key")
    try:
        without = await examine_server(Settings(engine="url", engine_url=server.url))
        with_key = await examine_server(
            Settings(engine="url", engine_url=server.url, engine_api_key=SecretStr("engine-key"))
        )
    finally:
        await server.close()

    assert (without.verdict, with_key.verdict) == (Verdict.FAULT, Verdict.OK)


async def test_an_engine_without_a_url_is_a_fault() -> None:
    assert (await examine_server(Settings(engine="url"))).verdict is Verdict.FAULT


def test_an_environment_without_vllm_is_a_fault_and_none_at_all_is_worth_a_look(tmp_path: Path) -> None:
    python = tmp_path / "made" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\n")
    python.chmod(0o755)

    assert examine_environment(tmp_path / "nothing").verdict is Verdict.WARN
    assert examine_environment(tmp_path / "made").verdict is Verdict.FAULT


def test_a_model_is_a_folder_with_a_configuration_or_a_name_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "config.json").write_text("{}")
    demo = tmp_path / "demo"

    assert examine_model(str(tmp_path / "good"), demo).verdict is Verdict.OK
    assert examine_model(None, tmp_path / "good").verdict is Verdict.OK
    assert examine_model("Qwen/Qwen2.5-7B-Instruct", demo).verdict is Verdict.OK
    assert examine_model(str(tmp_path / "gone"), demo).verdict is Verdict.FAULT
    assert examine_model(None, demo).verdict is Verdict.WARN


def test_a_machine_without_a_gpu_is_worth_a_look() -> None:
    assert examine_gpu(Accelerator.CUDA).verdict is Verdict.OK
    assert examine_gpu(Accelerator.CPU).verdict is Verdict.WARN


def test_the_largest_input_must_fit_into_the_scratch_folder(tmp_path: Path) -> None:
    assert examine_scratch(tmp_path, max_file_bytes=1).verdict is Verdict.OK
    assert examine_scratch(tmp_path, max_file_bytes=1 << 60).verdict is Verdict.WARN
    assert examine_scratch(tmp_path / "nothing", max_file_bytes=1).verdict is Verdict.FAULT
    assert list(tmp_path.iterdir()) == []
