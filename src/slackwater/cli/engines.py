"""Which engine a worker runs: a vLLM child, a server it attaches to, or the simulated engine."""

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
            raise SetupError("not yet")


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
