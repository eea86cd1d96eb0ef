"""Which cases the tests of ``tests/e2e/cases`` stand for, read from their marks."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "e2e" / "cases"


def marked_tests() -> set[tuple[str, str]]:
    """Return pairs of a case's id and a test's name, ``module::function``."""
    return {
        (case_id, f"{path.stem}::{name}")
        for path in sorted(FOLDER.glob("test_*.py"))
        for name, test in inspect.getmembers(importlib.import_module(f"tests.e2e.cases.{path.stem}"))
        if name.startswith("test_")
        for mark in getattr(test, "pytestmark", [])
        for case_id in _ids(mark)
    }


def _ids(mark: pytest.Mark) -> Iterator[Any]:
    """Yield the ids in a mark of a test, or in the marks of its parameters."""
    if mark.name == "case":
        yield from mark.args
    elif mark.name == "parametrize":
        for values in mark.args[1]:
            for inner in getattr(values, "marks", ()):
                yield from _ids(getattr(inner, "mark", inner))
