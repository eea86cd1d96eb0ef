"""The wheel: `pip install` alone must be able to run `slackwater migrate`."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]


def built_wheel(folder: Path) -> zipfile.ZipFile:
    # The backend's own function, in a process of its own: an isolated build would ask an index for the backend.
    build = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("slackwater-*.whl")
    return zipfile.ZipFile(wheel)


def test_the_wheel_holds_the_migrations_every_module_and_the_statements(tmp_path: Path) -> None:
    with built_wheel(tmp_path) as wheel:
        inside = set(wheel.namelist())

    migrations = {
        f"slackwater/migrations/{path.relative_to(ROOT / 'migrations')}"
        for path in (ROOT / "migrations").rglob("*.py")
        if "__pycache__" not in path.parts
    }
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/slackwater").rglob("*")
        if path.suffix in {".py", ".sql"}
    }
    assert any("/versions/" in name for name in migrations)
    assert migrations | package <= inside
    assert {name.split("/")[0] for name in inside if ".dist-info" not in name} == {"slackwater"}
