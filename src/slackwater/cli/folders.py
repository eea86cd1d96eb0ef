"""Where one machine keeps what belongs to it: the data folder of ``slackwater up`` and what lies in it."""

import os
from dataclasses import dataclass
from pathlib import Path

from slackwater.cli.profile import FILE_NAME, data_dir
from slackwater.config import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """The data folder, readable by its owner alone."""

    data: Path
    engine: Path
    """The engine's own Python environment."""
    models: Path

    @property
    def profile(self) -> Path:
        """What the people's client reads: base URL and key."""
        return self.data / FILE_NAME

    @property
    def site(self) -> Path:
        """The settings of a running ``up``, which the administration's verbs read."""
        return self.data / "site.toml"

    @property
    def objects(self) -> Path:
        """The local object store."""
        return self.data / "objects"

    @property
    def scratch(self) -> Path:
        """Planning's scratch files."""
        return self.data / "scratch"

    @property
    def logs(self) -> Path:
        """One log a role."""
        return self.data / "logs"

    @property
    def postgres(self) -> Path:
        """The embedded PostgreSQL."""
        return self.data / "postgres"


def folders(settings: Settings, data: Path | None = None) -> Folders:
    """Choose the folders: the named data folder, else the environment's, else the user's own."""
    root = (data or data_dir(os.environ, Path.home())).resolve()
    return Folders(
        data=root,
        engine=(settings.engine_environment or root / "engine").resolve(),
        models=(settings.models_dir or root / "models").resolve(),
    )
