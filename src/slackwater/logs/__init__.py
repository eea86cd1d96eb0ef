"""Logs of every role: one line an event, JSON in production, with ids and never a prompt or a key.

Modules log with ``structlog.get_logger(__name__)`` and plain keywords; ids of what is under way come from
:func:`bound`. Libraries that log the standard way go the same way. What leaves is decided here alone: secrets are
masked (``redaction``), traces are short and printed once (``traces``), and text from outside cannot end its line.
"""

from slackwater.logs.setup import bound, configure

__all__ = ["bound", "configure"]
