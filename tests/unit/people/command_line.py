"""The people's commands as the command line mounts them, run in this process."""

import os
from dataclasses import dataclass, field

import typer
from typer.testing import CliRunner, Result

from slackwater.cli import people_batch, people_exits, people_file
from slackwater.cli.run import run

app = typer.Typer()
app.add_typer(people_batch.app)
app.add_typer(people_file.app)
app.command(epilog=people_exits.EPILOG)(run)


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """Types commands with an environment of its own."""

    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: bytes | None = None, **environment: str) -> Result:
        ours = {name: None for name in os.environ if name.startswith(("SLACKWATER_", "OPENAI_"))}
        runner = CliRunner(env={**ours, **self.environment, **environment})
        result = runner.invoke(app, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result


if __name__ == "__main__":
    app()
