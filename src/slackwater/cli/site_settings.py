"""The settings of the site that a verb of administration acts on."""

import tomllib
from pathlib import Path

from slackwater.cli.folders import folders
from slackwater.config import Settings, load


def site_settings(data: Path | None = None) -> Settings:
    """Read the settings; beside a running ``slackwater up`` those of that site, where nothing else names a database."""
    settings = load()
    site = site_beside(settings, data)
    if site is None:
        return settings
    said = {
        name: value for name, value in tomllib.loads(site.read_text()).items() if name not in settings.model_fields_set
    }
    return load(**said)


def site_beside(settings: Settings, data: Path | None = None) -> Path | None:
    """Return the file in which a running ``slackwater up`` tells its settings, where they are to be used."""
    site = folders(settings, data).site
    return site if "database_url" not in settings.model_fields_set and site.is_file() else None
