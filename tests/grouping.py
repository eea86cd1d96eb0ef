"""Which tests of the suite have to run in one process, and which begin first.

Fixtures of the session are made once a process. What is dear (a real vLLM, SeaweedFS, a site for a whole module) is
made in one process alone: the tests that share it are one group. Groups begin first, so that neither process is left
with one at the end; all other tests go to whichever process is free.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest

ENGINE: Final = "engine"
SEAWEEDFS: Final = "seaweedfs"

_TESTS: Final = Path(__file__).parent
_SLOW_FOLDERS: Final = ("e2e", "integration", "contract")
"""The slowest first; the other tests come after them."""


def group_of(name: str, fixtures: Collection[str], *, module: str | None) -> str | None:
    """Name the group of a test; None where it may run anywhere.

    ``fixtures`` are all that it needs, ``module`` is its module if that has a loop, and what runs on it, for all its
    tests. A fixture that another one chooses by a parameter is only seen in the test's name.
    """
    if "engine_python" in fixtures:
        return ENGINE
    if module is not None:
        return module
    return SEAWEEDFS if "seaweedfs" in fixtures or "[seaweedfs" in name else None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the suite runs in several processes, give each test its group and put the slow ones first."""
    if not getattr(config.option, "loadgroup", False):
        return
    places = {}
    for item in items:
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        places[item] = _place(item, group)
    items.sort(key=places.__getitem__)


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("asyncio")
    shares_loop = marker is not None and marker.kwargs.get("loop_scope") == "module"
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
    return group_of(item.name, fixtures, module=item.path.stem if shares_loop else None)


def _place(item: pytest.Item, group: str | None) -> int:
    """Tell when a test begins: the engine's first, for they wait most, then the other groups, then the rest."""
    if group is not None:
        return 0 if group == ENGINE else 1
    folder = item.path.relative_to(_TESTS).parts[0]
    return 2 + (_SLOW_FOLDERS.index(folder) if folder in _SLOW_FOLDERS else len(_SLOW_FOLDERS))
