"""Program for the engine's interpreter: fetch a model's files from the hub, or end at once where it is not reachable.

``python model_from_hub.py REPOSITORY FOLDER``.
"""

import sys
from typing import Final

from huggingface_hub import HfApi, snapshot_download  # type: ignore[import-not-found]

_REACHABLE_SECONDS: Final = 5
_FILES: Final = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def main() -> None:
    """Download the repository named first into the folder named second."""
    repository, folder = sys.argv[1:]
    revision = HfApi().model_info(repository, timeout=_REACHABLE_SECONDS).sha
    snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=_FILES, ignore_patterns=["*/*"])


if __name__ == "__main__":
    main()
