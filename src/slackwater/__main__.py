"""``python -m slackwater``: the command line."""

from slackwater.cli.main import app

app(prog_name="slackwater")
