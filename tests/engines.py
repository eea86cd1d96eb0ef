"""Real engines as fixtures: vLLM from its own environment, on a tiny model with random weights.

Its folder is ``SLACKWATER_TEST_ENGINE``, else ``.engine`` in the checkout; ``make test`` installs it.
"""

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slackwater.embedded.engine_environment import engine_python as find_engine_python
from slackwater.inference.vllm import Vllm
from slackwater.inference.vllm_restarts import RestartPolicy
from slackwater.inference.vllm_settings import VllmSettings

ROOT = Path(__file__).resolve().parents[1]
TINY_MODEL_NAMES = ("tiny", "test-model")
TINY_CONTEXT_TOKENS = 2048


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The interpreter of the engine's environment."""
    folder = Path(os.environ.get("SLACKWATER_TEST_ENGINE", ROOT / ".engine"))
    python = find_engine_python(folder)
    if python is None:
        reason = f"no engine in {folder}: run `slackwater engine install` or set SLACKWATER_TEST_ENGINE"
        assert "SLACKWATER_TEST_ENGINE" not in os.environ, reason
        pytest.skip(reason)
    return python


@pytest.fixture(scope="session")
def tiny_model_path(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model; its greedy answers never change. ``lora`` beside it holds an adapter for it."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    program = ROOT / "bench" / "tiny_model.py"
    command = [str(part) for part in (engine_python, program, folder, "--lora", folder.with_name("lora"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def vllm_engine_settings(tiny_model_path: Path) -> VllmSettings:
    """Settings that start vLLM on the tiny model, lean: one thread, 64 MiB of KV cache."""
    return VllmSettings(
        model=str(tiny_model_path),
        served_model_names=TINY_MODEL_NAMES,
        max_num_seqs=64,
        max_model_len=TINY_CONTEXT_TOKENS,
        kv_cache_memory_bytes=64 * 1024 * 1024,
        on_cpu=True,
        cpu_threads=1,
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm(
    engine_python: Path, vllm_engine_settings: VllmSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Vllm]:
    """One running vLLM for the session, for tests that leave it as it was; its ``base_url`` serves other loops too."""
    engine = Vllm(
        vllm_engine_settings,
        python=engine_python,
        log=tmp_path_factory.mktemp("vllm") / "vllm.log",
        environment=os.environ,
        policy=RestartPolicy(first_seconds=0.1, starts_before_giving_up=1),
    )
    engine.start()
    await engine.wait_ready()
    group = engine.group
    yield engine
    await engine.close()
    assert group is not None
    assert not processes_in(group)


def processes_in(group: int) -> dict[int, str]:
    """Return the living processes of a group by id, with their names as the kernel has them."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                name, _, facts = (entry / "stat").read_text().partition("(")[2].rpartition(") ")
                state, _parent, its_group = facts.split()[:3]
                if int(its_group) == group and state != "Z":
                    found[int(entry.name)] = name
    return found
