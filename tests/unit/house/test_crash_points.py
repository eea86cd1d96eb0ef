"""Every stage of the code is a crash point with a scenario, or says why it is none; the page lists the same."""

import re
from pathlib import Path

from tests.crashes.points import COMMANDS, DRIVEN, READS, REPRESENTATIVE, points
from tests.crashes.scenarios import SCENARIOS
from tests.crashes.stages import SOURCE, stages_of

ROOT = Path(__file__).parents[3]
WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|COPY)\b")


def statements() -> dict[str, str]:
    """Return the statements of queue.sql by name, without their comments and their row locks."""
    text = (SOURCE / "db/queue/queue.sql").read_text().replace("FOR UPDATE", "")
    blocks = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    code = {name: re.sub(r"--.*", "", body) for name, body in zip(blocks[::2], blocks[1::2], strict=True)}
    return {name: body.strip() for name, body in code.items()}


def statements_by_stage() -> dict[str, list[str]]:
    """Return which statements of queue.sql each stage runs, where it names them in one call."""
    pairs = re.findall(
        r'\.fetch\(\s*"([\w.]+)",\s*SQL\["(\w+)"\]', "".join(p.read_text() for p in SOURCE.rglob("*.py"))
    )
    found: dict[str, list[str]] = {}
    for stage, name in pairs:
        found.setdefault(stage, []).append(name)
    return found


def test_every_stage_is_driven_or_says_why_not() -> None:
    """A new stage that writes needs a scenario in tests/crashes that takes a process past it."""
    named = set(stages_of())

    assert named - {*DRIVEN, *READS, *COMMANDS} == set(), "stages without a place in tests/crashes/points.py"
    assert {*DRIVEN, *READS, *COMMANDS} - named == set(), "stages that are no more"
    assert len(DRIVEN) + len(READS) + len(COMMANDS) == len({*DRIVEN, *READS, *COMMANDS})


def test_what_counts_as_a_read_writes_nothing() -> None:
    texts = statements()
    by_stage = statements_by_stage()

    writing = {stage for stage in READS for name in by_stage.get(stage, ()) if WRITES.search(texts[name])}

    assert writing == set()
    assert WRITES.search(texts["commit_chunk"])


def test_every_scenario_drives_some_stage() -> None:
    assert set(DRIVEN.values()) == set(SCENARIOS)


def test_the_representative_points_are_crash_points_of_every_role() -> None:
    assert set(REPRESENTATIVE) <= set(points())
    assert {SCENARIOS[DRIVEN[point.stage]].role for point in REPRESENTATIVE} == {"api", "control", "work"}


def test_the_page_lists_every_crash_point() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \|", page, flags=re.MULTILINE)

    assert dict(rows) == {stage: SCENARIOS[scenario].role for stage, scenario in DRIVEN.items()}
    assert len(rows) == len(DRIVEN)
