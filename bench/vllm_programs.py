"""Real vLLM on the tiny model: as a server, and as the two ways of running a batch that it brings along."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from bench.engine_offline import CONTEXT_TOKENS, KV_CACHE_BYTES, SEQUENCES
from bench.site import Failed
from slackwater.embedded.engine_environment import engine_python
from slackwater.inference.vllm import Vllm
from slackwater.inference.vllm_settings import VllmSettings

MODEL_NAME: Final = "tiny"
_ENVIRONMENT_VARIABLE: Final = "SLACKWATER_ENGINE_ENVIRONMENT"
_STOP_SECONDS: Final = 30.0


def find_python(checkout: Path) -> Path | None:
    """Return the engine's interpreter; None where no engine is installed."""
    return engine_python(Path(os.environ.get(_ENVIRONMENT_VARIABLE, checkout / ".engine")))


def make_tiny_model(python: Path, folder: Path) -> Path:
    """Write the tiny model and return its folder."""
    program = Path(__file__).with_name("tiny_model.py")
    done = subprocess.run([python, program, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the tiny model cannot be made: {done.stderr[-2000:]}")
    return folder


def engine_settings(model: Path) -> VllmSettings:
    """Return what the server, and with the same values the other two ways, are started with."""
    return VllmSettings(
        model=str(model),
        served_model_names=(MODEL_NAME,),
        max_num_seqs=SEQUENCES,
        max_model_len=CONTEXT_TOKENS,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        # Every pass sends the same prompts: none may profit from the one before.
        extra_args=("--no-enable-prefix-caching",),
        on_cpu=True,
        cpu_threads=1,
    )


@contextlib.contextmanager
def vllm_server(python: Path, model: Path, log: Path) -> Iterator[str]:
    """Run vLLM's server while the block runs and yield its URL, once it is ready."""
    with asyncio.Runner() as runner:
        engine = runner.run(_started(python, model, log))
        try:
            assert engine.base_url is not None
            yield engine.base_url
        finally:
            runner.run(engine.close())


async def _started(python: Path, model: Path, log: Path) -> Vllm:
    engine = Vllm(engine_settings(model), python=python, log=log, environment=os.environ)
    engine.start()
    try:
        await engine.wait_ready()
    except BaseException:
        await engine.close()
        raise
    return engine


class Offline:
    """A process of ``engine_offline``, with its model loaded."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log
        self._result()

    def seconds(self, requests: Path, count: int, tokens: int) -> float:
        """Answer a batch input; returns the seconds it took. Raises Failed unless all of it was answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{requests}\n")
        self._process.stdin.flush()
        result = self._result()
        if (result["answers"], result["tokens"]) != (count, tokens):
            raise Failed(f"{count} requests gave {result}")
        return float(result["seconds"])

    def _result(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return result
        raise Failed(f"vLLM ended: {self._log.read_text(errors='replace')[-2000:]}")


@contextlib.contextmanager
def offline(python: Path, way: Literal["generate", "run_batch"], model: Path, log: Path) -> Iterator[Offline]:
    """Run one way of vLLM's own in a process group of its own while the block runs."""
    program = Path(__file__).with_name("engine_offline.py")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [python, program, way, model, MODEL_NAME],
            env=engine_settings(model).environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield Offline(process, log)
    finally:
        _end_group(process)


def _end_group(process: "subprocess.Popen[str]") -> None:
    """Close its stdin, which ends it, and kill what is left: vLLM's engine core may outlive its parent."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
