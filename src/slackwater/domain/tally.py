"""How far a scan has come in its file, and what it has found to run."""

from collections import Counter


class Tally:
    """Changed by whoever takes the next line: the scan itself, or a frame's fast lane."""

    __slots__ = ("accepted_bytes", "custom_ids", "n_accepted", "number", "offset", "prompts", "records", "requests")

    def __init__(self) -> None:
        self.number = 0
        """Physical lines taken."""
        self.offset = 0
        """Where the next line begins."""
        self.requests = 0
        """Lines taken that were not blank."""
        self.prompts = 0
        """Prompts of the lines to run: more than one a line only for endpoints that take several."""
        self.n_accepted: Counter[int] = Counter()
        """Lines to run, by number of the model."""
        self.accepted_bytes = 0
        self.records: list[bytes] = []
        """Of the lines to run; emptied with every block."""
        self.custom_ids: list[bytes] = []
        """Of all lines that have one, as UTF-8; emptied with every block."""

    def take(self, model: int, n_lines: int, n_bytes: int) -> None:
        """Take lines to run, of one prompt each, with nothing between them; ``n_bytes`` includes their line feeds."""
        self.number += n_lines
        self.offset += n_bytes
        self.requests += n_lines
        self.prompts += n_lines
        self.n_accepted[model] += n_lines
        self.accepted_bytes += n_bytes - n_lines
