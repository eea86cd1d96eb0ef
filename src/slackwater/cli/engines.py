"""Which engine a worker runs: a vLLM child, a server it attaches to, or the simulated engine."""

import os
import secrets
from pathlib import Path

from slackwater.config import Settings
from slackwater.domain.errors import SetupError
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.protocol import Engine
from slackwater.metrics import Metrics


async def open_engine(settings: Settings, metrics: Metrics) -> Engine:
    """Make the engine that the settings name. It may still be loading. Raises SetupError where a setting lacks."""
    match settings.engine:
        case "url":
            return _attached(settings)
        case "simulated":
            return _simulated(settings)
        case "vllm":
            return _supervised(settings, metrics)


def _supervised(settings: Settings, metrics: Metrics) -> Engine:
    """Start vLLM as a child, from the engine's own environment."""
    from slackwater.cli.folders import folders
    from slackwater.embedded.engine_environment import engine_python
    from slackwater.embedded.engine_recipe import Accelerator, find_accelerator
    from slackwater.inference.vllm import Vllm
    from slackwater.inference.vllm_restarts import VllmEvents
    from slackwater.inference.vllm_settings import VllmSettings

    places = folders(settings)
    python = engine_python(places.engine)
    if python is None:
        raise SetupError(f"no engine in {places.engine}: run `slackwater engine install`, or attach to a server")
    if settings.engine_model is None:
        raise SetupError("SLACKWATER_ENGINE_MODEL is not set: name the model to serve, a folder or a hub name")
    restarts = metrics.model(model_label(settings)).restarts
    engine = Vllm(
        VllmSettings(
            model=settings.engine_model,
            served_model_names=(settings.engine_served_name or settings.engine_model,),
            max_num_seqs=settings.max_num_seqs,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_model_len=settings.max_model_len,
            kv_cache_memory_bytes=settings.kv_cache_memory_bytes,
            extra_args=tuple(settings.engine_args),
            on_cpu=find_accelerator(os.environ) is Accelerator.CPU,
            cpu_has_bf16=_cpu_has_bf16(),
            api_key=secrets.token_urlsafe(24),
        ),
        python=python,
        log=settings.engine_log or places.logs / "engine.log",
        environment=os.environ,
        events=VllmEvents(died=lambda _log: restarts.inc()),
    )
    engine.start()
    return engine


def _cpu_has_bf16() -> bool:
    """Tell whether this machine's processor multiplies bf16 in hardware; True where it does not say."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return "bf16" in flags


async def wait_for_start(engine: Engine) -> None:
    """Return when a supervised engine is up for the first time, at once for others. SetupError if it never is."""
    from slackwater.inference.vllm import Vllm

    if isinstance(engine, Vllm):
        await engine.wait_ready()


def model_label(settings: Settings) -> str:
    """Name the engine in the metrics before it is up."""
    return settings.engine_served_name or settings.engine_model or settings.engine


def _attached(settings: Settings) -> Engine:
    """Attach to any OpenAI-compatible server."""
    if settings.engine_url is None:
        raise SetupError("SLACKWATER_ENGINE_URL is not set: an engine is never guessed, and never a public one")
    key = settings.engine_api_key
    return OpenAIServer(settings.engine_url, api_key=None if key is None else key.get_secret_value())


def _simulated(settings: Settings) -> Engine:
    """Make the simulated engine, which says its name."""
    from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
    from slackwater.inference.simulated_writer import SimulatedModel

    model = SimulatedModel(
        names=(settings.engine_served_name or settings.engine_model or "simulated",),
        max_model_len=settings.max_model_len or 32768,
    )
    latency = Latency(decode_seconds_per_token=settings.simulated_seconds_per_token)
    return SimulatedEngine(SimulatedSettings(model=model, max_num_seqs=settings.max_num_seqs, latency=latency))
