"""The mark that says which collected troubles a test stands for; ``docs/cases.md`` is checked against it."""

import pytest


def case(*ids: str) -> pytest.MarkDecorator:
    """Mark a test, or one of its parameters, with the ids of the cases it provokes."""
    return pytest.mark.case(*ids)
