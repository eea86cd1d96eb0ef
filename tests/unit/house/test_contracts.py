"""The import contracts of pyproject.toml: each is kept by a tree in order, and broken by every import it forbids."""

import ast
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[3]
PYPROJECT = ROOT / "pyproject.toml"

CONTRACTS: list[str] = [
    contract["id"] for contract in tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
]

# What every tree in order may do: one allowed import of each kind, so that a contract that forbids too much shows.
IN_ORDER = {
    "slackwater.__main__": "import slackwater.cli.main",
    "slackwater.api.routes": "import fastapi\nimport slackwater.flow.intake",
    "slackwater.blobs.store": "import boto3\nimport obstore",
    "slackwater.cli.main": "import slackwater.api.routes\nimport slackwater.client.calls\nimport slackwater.config",
    "slackwater.client.calls": "import httpx2\nimport slackwater.domain.ids",
    "slackwater.config": "import slackwater.domain.ids",
    "slackwater.db.files": "import psycopg\nimport sqlalchemy\nimport slackwater.metrics",
    "slackwater.db.migrate": "import alembic",
    "slackwater.db.queue.leases": "import slackwater.db.files",
    "slackwater.domain.ids": "import msgspec\nimport re",
    "slackwater.embedded.postgres": "import slackwater.logs",
    "slackwater.flow.deliver": "import aiohttp",
    "slackwater.flow.intake": "import slackwater.blobs.store\nimport slackwater.db.queue.leases",
    "slackwater.inference.openai_server": "import aiohttp",
    "slackwater.logs": "",
    "slackwater.metrics": "",
    "slackwater.probe": "import aiohttp\nimport slackwater.domain.ids",
}

# contract, the module that errs, the line it errs with
VIOLATIONS = [
    ("layers", "slackwater.cli.main", "import slackwater.__main__"),
    ("layers", "slackwater.config", "import slackwater.cli.main"),
    ("layers", "slackwater.api.routes", "import slackwater.config"),
    ("layers", "slackwater.flow.intake", "import slackwater.config"),
    ("layers", "slackwater.domain.ids", "import slackwater.config"),
    ("layers", "slackwater.flow.intake", "import slackwater.api.routes"),
    ("layers", "slackwater.db.files", "import slackwater.flow.intake"),
    ("layers", "slackwater.db.files", "import slackwater.blobs.store"),
    ("layers", "slackwater.blobs.store", "import slackwater.inference.openai_server"),
    ("layers", "slackwater.inference.openai_server", "import slackwater.embedded.postgres"),
    ("layers", "slackwater.embedded.postgres", "import slackwater.db.files"),
    ("layers", "slackwater.metrics", "import slackwater.db.files"),
    ("layers", "slackwater.logs", "import slackwater.metrics"),
    ("layers", "slackwater.probe", "import slackwater.metrics"),
    ("layers", "slackwater.domain.ids", "import slackwater.metrics"),
    ("layers", "slackwater.unplaced", ""),
    ("client", "slackwater.client.calls", "import slackwater.api.routes"),
    ("client", "slackwater.client.calls", "import slackwater.config"),
    ("client", "slackwater.client.calls", "import slackwater.logs"),
    ("client", "slackwater.client.calls", "import slackwater.unplaced"),
    ("server", "slackwater.api.routes", "import slackwater.client.calls"),
    ("server", "slackwater.flow.intake", "from slackwater.client import calls"),
    *(
        ("domain", "slackwater.domain.ids", f"import {library}")
        for library in ("asyncio", "logging", "os", "os.path", "random", "time", "sqlalchemy.sql", "aiohttp")
    ),
    ("web", "slackwater.flow.intake", "import fastapi"),
    ("web", "slackwater.cli.main", "import starlette.responses"),
    ("sql", "slackwater.flow.intake", "from sqlalchemy import text"),
    ("sql", "slackwater.api.routes", "import psycopg.errors"),
    ("sql", "slackwater.cli.main", "import alembic.command"),
    ("objects", "slackwater.flow.intake", "import obstore.store"),
    ("objects", "slackwater.cli.main", "import boto3"),
    ("outbound", "slackwater.flow.intake", "import aiohttp"),
    ("outbound", "slackwater.api.routes", "import aiohttp.web"),
    ("people", "slackwater.inference.openai_server", "import httpx2"),
    ("people", "slackwater.cli.main", "import httpx2"),
    ("queue", "slackwater.api.routes", "from slackwater.db.queue.leases import sync"),
    ("queue", "slackwater.cli.main", "import slackwater.db.queue"),
    ("queue", "slackwater.db.files", "import slackwater.db.queue"),
]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, str]], bool]:
    """Lint a tree of the given modules, that stands in for the real package, against one of our contracts."""

    def lint(contract: str, modules: dict[str, str]) -> bool:
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
            for folder in reversed(path.relative_to(tmp_path).parents[:-1]):
                (tmp_path / folder).mkdir(exist_ok=True)
                (tmp_path / folder / "__init__.py").touch()
            path.write_text(text)
        # The linter finds the package as an import would, so neither the loaded one nor the installed one may win.
        for name in [name for name in sys.modules if name.split(".")[0] == "slackwater"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(tmp_path)
        return lint_imports(str(PYPROJECT), limit_to_contracts=(contract,), no_cache=True, no_logo=True) == 0

    return lint


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_tree_in_order_keeps_the_contract(
    contract: str, kept: Callable[[str, dict[str, str]], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    in_order = kept(contract, IN_ORDER)

    assert in_order, capsys.readouterr().out


@pytest.mark.parametrize(("contract", "module", "line"), VIOLATIONS)
def test_a_forbidden_import_breaks_the_contract(
    contract: str,
    module: str,
    line: str,
    kept: Callable[[str, dict[str, str]], bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = {"slackwater.unplaced": ""} if "unplaced" in line else {}
    tree |= IN_ORDER | {module: f"{IN_ORDER.get(module, '')}\n{line}\n"}

    in_order = kept(contract, tree)

    report = capsys.readouterr().out
    assert not in_order
    assert "BROKEN" in report, "the linter failed before it checked anything"
    assert module in report


def test_every_contract_is_proven_to_break() -> None:
    assert {contract for contract, _, _ in VIOLATIONS} == set(CONTRACTS)


def test_the_domain_imports_nothing_but_the_standard_library_msgspec_and_itself() -> None:
    allowed = sys.stdlib_module_names | {"msgspec"}
    strangers = []
    for path in sorted((ROOT / "src/slackwater/domain").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            strangers += [
                f"{path.name}: {name}"
                for name in names
                if name.split(".")[0] not in allowed and not name.startswith("slackwater.domain")
            ]

    assert strangers == []
