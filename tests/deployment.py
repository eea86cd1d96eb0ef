"""docker-compose.yml as docker compose would read it: merged, with the variables of .env.example filled in."""

import functools
import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
COMPOSE: Final = ROOT / "docker-compose.yml"
SECRET: Final = "marker-secret-of-the-site"

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}")


def example_environment() -> dict[str, str]:
    """Read .env.example; what it leaves empty is a password, and gets one."""
    lines = (ROOT / ".env.example").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")]
    return {name: value or ("" if name == "HF_TOKEN" else SECRET) for name, value in pairs}


def variables() -> dict[str, str | None]:
    """List the variables that docker-compose.yml asks for, with their defaults."""
    return {found[1]: found[2] for found in _VARIABLE.finditer(COMPOSE.read_text())}


@functools.cache
def compose() -> dict[str, Any]:
    """Return docker-compose.yml as a document. Like docker compose, fill in the variables once it is parsed."""
    document: dict[str, Any] = _filled_in(yaml.safe_load(COMPOSE.read_text()), example_environment())
    return document


def services() -> dict[str, dict[str, Any]]:
    """Return the services by name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def _filled_in(value: Any, environment: dict[str, str]) -> Any:
    match value:
        case dict():
            return {name: _filled_in(item, environment) for name, item in value.items()}
        case list():
            return [_filled_in(item, environment) for item in value]
        case str() if _VARIABLE.search(value):
            text = _VARIABLE.sub(lambda found: environment.get(found[1], found[2] or ""), value)
            return int(text) if text.isdecimal() else text
        case _:
            return value
