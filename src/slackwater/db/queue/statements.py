"""The statements of ``queue.sql``, by name."""

import re
from importlib.resources import files
from typing import Final

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.DOTALL | re.MULTILINE)

SQL: Final[dict[str, str]] = {
    name: "\n".join(line for line in block.splitlines() if not line.startswith("--")).strip().removesuffix(";")
    for name, block in _BLOCK.findall(files(__package__).joinpath("queue.sql").read_text())
}
"""Every statement without its comment, ready for the driver."""
