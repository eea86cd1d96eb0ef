"""From the command line of ``slackwater up`` to what it starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from slackwater.cli.folders import folders
from slackwater.cli.site import start_logs
from slackwater.cli.up import UpOptions, up
from slackwater.config import Settings, load
from slackwater.domain.errors import SetupError
from slackwater.embedded.demo_model import MODEL_NAME
from slackwater.embedded.engine_environment import engine_python
from slackwater.inference.http_client import check_url

DEMO_MODEL: Final = MODEL_NAME.lower()
"""The name under which the small model is served that `slackwater engine install` makes."""


def start_up(
    *,
    data_dir: Path | None,
    host: str | None,
    port: int | None,
    engine_url: str | None,
    engine_api_key: str | None,
    model: str | None,
    served_name: str | None,
    aliases: Sequence[str],
    workers: int,
    simulated: bool,
) -> None:
    """Check what was asked for, then bring the service up. Raises SetupError."""
    overrides: dict[str, Any] = {"api_host": host, "api_port": port}
    if simulated:
        overrides |= {"engine": "simulated", "engine_served_name": served_name or model}
    elif engine_url is not None:
        overrides |= {"engine": "url", "engine_url": engine_url, "engine_api_key": engine_api_key}
    else:
        overrides |= {"engine_model": model, "engine_served_name": served_name}
    settings = load(**overrides)
    if settings.engine == "url" and settings.engine_url is not None:
        # Here it is one error; in a worker it would be one that is started again and again.
        check_url(settings.engine_url)
    places = folders(settings, data_dir)
    if settings.engine == "vllm":
        settings = _with_vllm(settings, places.engine, places.models)
    start_logs(settings, "up")
    options = UpOptions(
        aliases=dict(_alias(text) for text in aliases),
        workers=workers,
        model_name=_served_name(settings),
        max_model_len=settings.max_model_len,
    )
    up(settings, places, options)


def _with_vllm(settings: Settings, engine: Path, models: Path) -> Settings:
    """Fall back on the small model, and insist that the engine is installed."""
    model = settings.engine_model or str(models / MODEL_NAME)
    if engine_python(engine) is None:
        raise SetupError(
            f"no engine in {engine}: run `slackwater engine install` first, or attach to one with --engine"
        )
    if settings.engine_model is None and not Path(model).is_dir():
        raise SetupError(f"no model in {model}: run `slackwater engine install` first, or name one with --model")
    name = settings.engine_served_name or (Path(model).name.lower() if Path(model).exists() else model)
    return load(**_set(settings) | {"engine_model": model, "engine_served_name": name})


def _set(settings: Settings) -> dict[str, Any]:
    """Return what was set, by whatever source."""
    return {name: getattr(settings, name) for name in settings.model_fields_set}


def _served_name(settings: Settings) -> str | None:
    """Return the model's public name where it is known before the engine is up."""
    match settings.engine:
        case "vllm":
            return settings.engine_served_name
        case "simulated":
            return settings.engine_served_name or "simulated"
        case "url":
            return None


def _alias(text: str) -> tuple[str, str]:
    """Read NAME=MODEL."""
    name, equals, model = text.partition("=")
    if not (name and equals and model):
        raise SetupError(f"--alias takes NAME=MODEL, not {text!r}")
    return name, model
