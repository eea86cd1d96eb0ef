"""What docs/style.md asks of every module and no linter checks."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/slackwater"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_LINES = 300

EMPTY_NAMES = re.compile(r"^(utils?|common|helpers?|managers?|services?|misc|base(_.*)?|.*_(impl|utils?|helpers?))$")

# The stages of architecture: they meet in the database.
STAGES = {"intake", "plan", "schedule", "work", "finish", "deliver", "sweep"}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> set[str]:
    """Return the dotted names a module imports, `from a import b` as `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def stage(module: str) -> str | None:
    """Return the stage that a module below slackwater.flow belongs to: plan, plan_scan and plan.scan are one."""
    match = re.match(r"slackwater\.flow\.([a-z]+)", module)
    return match[1] if match and match[1] in STAGES else None


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_module_says_what_it_promises(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_names_say_what_is_inside() -> None:
    parts = {part for path in MODULES for part in path.relative_to(SOURCE).with_suffix("").parts}

    assert [part for part in sorted(parts) if EMPTY_NAMES.match(part)] == []


def test_stages_never_import_one_another() -> None:
    crossings = [
        f"{shown(path)} imports {imported}"
        for path in sorted((SOURCE / "flow").rglob("*.py"))
        for imported in sorted(imports(path))
        if stage(dotted(path)) and stage(imported) not in {None, stage(dotted(path))}
    ]

    assert crossings == []


def test_fakes_satisfy_protocols_instead_of_patching() -> None:
    patching = [shown(path) for path in TESTS if any(name.startswith("unittest.mock") for name in imports(path))]

    assert patching == []
