"""docs/cases.md tells of every case that a test provokes, and of no other; every collected file is put to use."""

import csv
import re
from pathlib import Path

from tests.cases.collected import FOLDER, marked_tests
from tests.cases.inputs import INPUTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "cases.md"

REQUIRED = {
    *("P01", "P03", "P04", "P05", "P06", "P07", "P08", "P09", "P10", "P11", "P13", "P14", "P16", "P18"),
    *("V01", "V02", "V03", "V04", "V05", "V06", "V08", "V09", "V10", "V11", "V18", "V19"),
    *("U01", "U02", "U03", "U06", "U07", "U08", "U10", "U11"),
    *("F01", "F03", "F04", "F05", "F07", "F08", "F10", "F12", "F13"),
    *("N01", "N02", "N03", "N04", "N06", "N08", "N09"),
    *("K01", "K02", "K04", "K06"),
    *("X01", "X02", "X03", "X04", "X05", "X09", "X10"),
    *("Z01", "Z04", "Z06", "Z07", "Z10", "Z11", "Z14"),
    *("L01", "L02", "L04", "L05", "L06", "L07", "L08", "L11", "L12", "L13", "L17", "L18", "L20", "L21"),
    *("C01", "C02", "C04", "C07", "C08", "C11"),
    *("R01", "R04", "R05", "R06", "R09", "R10", "R12", "R13", "R14", "R15", "R16", "R19", "R20"),
    *("E02", "E03", "E04", "E06"),
    *("T01", "T02", "T03", "T10", "T12"),
    *("W06", "W10", "W14", "W16"),
    *("D07", "D08", "D11", "D12", "D13", "D14"),
    *("O01", "O02", "O03", "O04", "O07"),
}
NOT_USED = {"a01_message_batches_bodies.jsonl": "bodies for the Anthropic API, which is not served yet"}


def listed_tests() -> set[tuple[str, str]]:
    """Pairs of a case and a test, as the page's tables have them."""
    rows = re.findall(r"(?m)^\| ([A-Z][0-9]{2}) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE.read_text())
    return {(case, name) for case, tests in rows for name in re.findall(r"`(\w+::\w+)`", tests)}


def test_the_page_and_the_marks_of_the_tests_say_the_same() -> None:
    assert listed_tests() == marked_tests()


def test_every_case_that_must_be_tested_is() -> None:
    assert {case for case, _ in marked_tests()} >= REQUIRED


def test_every_collected_file_of_these_cases_is_put_to_use() -> None:
    tested = {case for case, _ in marked_tests()}
    modules = [path for folder in (FOLDER, INPUTS.parent) for path in folder.glob("*.py") if path != Path(__file__)]
    sources = "".join(path.read_text() for path in modules)
    with (INPUTS.parent / "INPUTS.tsv").open(newline="") as table:
        rows = [(row["file"], set(row["cases"].split(","))) for row in csv.DictReader(table, delimiter="\t")]

    unused = {name for name, cases in rows if cases & tested and f'"{name}"' not in sources}

    assert unused == set(NOT_USED)
