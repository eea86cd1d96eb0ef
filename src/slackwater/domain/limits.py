"""Bounds on a batch's input. Defaults are the service's; a tenant's own limits only lower them."""

from dataclasses import dataclass, replace

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class InputLimits:
    """What one input file may hold."""

    max_lines: int = 1_000_000
    """Requests, blank lines not counted."""
    max_input_bytes: int = 8 * GIB
    max_line_bytes: int = 16 * MIB
    """One request: it is held in memory whole, once as bytes and once decoded."""
    max_custom_id_chars: int = 512
    max_embedding_inputs: int = 1_000_000
    """Texts or token lists over all lines of a batch of embeddings."""
    max_listed_errors: int = 100

    def lowered(self, *, max_lines: int | None, max_input_bytes: int | None) -> "InputLimits":
        """Return the limits with a tenant's own applied; None leaves the service's."""
        return replace(
            self,
            max_lines=self.max_lines if max_lines is None else min(self.max_lines, max_lines),
            max_input_bytes=self.max_input_bytes
            if max_input_bytes is None
            else min(self.max_input_bytes, max_input_bytes),
        )
