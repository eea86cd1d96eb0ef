"""Where a person's commands find the service: its URL and a key.

``slackwater up`` writes a profile (``profile.toml``, readable by its owner alone) into its data directory; commands on
the same machine read it. Options come before it, then the environment. A key is never sent to another place than it
was given for: the profile's key goes to the profile's URL alone.
"""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.client.calls import normal_base_url
from slackwater.domain.errors import SetupError

BASE_URL_VARIABLE: Final = "SLACKWATER_BASE_URL"
API_KEY_VARIABLE: Final = "SLACKWATER_API_KEY"
DATA_DIR_VARIABLE: Final = "SLACKWATER_DATA_DIR"
FILE_NAME: Final = "profile.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What ``slackwater up`` tells the commands beside it."""

    base_url: str
    api_key: str
    tenant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The service that a command talks to; without a key no Authorization header is sent."""

    base_url: str
    api_key: str | None


def data_dir(environment: Mapping[str, str], home: Path) -> Path:
    """Return the directory in which ``slackwater up`` keeps everything unless told otherwise."""
    named = environment.get(DATA_DIR_VARIABLE)
    return Path(named) if named else home / ".local" / "share" / "slackwater"


def find_target(
    *,
    base_url: str | None,
    api_key: str | None,
    environment: Mapping[str, str],
    profile: Callable[[], Profile | None],
) -> Target:
    """Choose by precedence: options, environment, profile (read only where it is needed). Raises SetupError."""
    url = base_url or environment.get(BASE_URL_VARIABLE)
    key = api_key or environment.get(API_KEY_VARIABLE)
    if url and key:
        return Target(base_url=url, api_key=key)
    found = profile()
    if url:
        return Target(base_url=url, api_key=_key_for(url, found))
    if found is None:
        raise SetupError(
            f"no service is known: start one with `slackwater up`, or give --base-url and --api-key "
            f"(or {BASE_URL_VARIABLE} and {API_KEY_VARIABLE})"
        )
    return Target(base_url=found.base_url, api_key=key or found.api_key)


def read_profile(path: Path) -> Profile | None:
    """Read a profile; None where there is none. Raises SetupError where it cannot be read."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        return Profile(
            base_url=str(fields["base_url"]), api_key=str(fields["api_key"]), tenant=str(fields.get("tenant", ""))
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SetupError(f"cannot read the profile {path}: {error}") from error
    except KeyError as error:
        raise SetupError(f"the profile {path} lacks {error}: start `slackwater up` once more") from error


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile, whole or not at all, for its owner's eyes alone. Raises OSError."""
    fields = {"base_url": profile.base_url, "api_key": profile.api_key, "tenant": profile.tenant}
    # A JSON string is a TOML basic string as long as it is not forced into ASCII.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items()]
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    # The mode is given at creation: there is no moment in which others can read the key.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _key_for(url: str, found: Profile | None) -> str | None:
    if found is None or normal_base_url(url) != normal_base_url(found.base_url):
        return None
    return found.api_key
