"""``slackwater engine install``: the engine's own environment and the small demo model."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.people_exits import exits, say


def install(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to; SLACKWATER_ENGINE_ENVIRONMENT, or the data folder, by default.")
    ] = None,
    *,
    model: Annotated[bool, typer.Option("--model/--no-model", help="Make the small demo model, too.")] = True,
) -> None:
    """Install vLLM into an environment of its own, for this machine's GPU or its CPU. Does nothing twice."""
    from slackwater.cli.folders import folders
    from slackwater.config import load
    from slackwater.embedded.demo_model import demo_model
    from slackwater.embedded.engine_environment import install_engine

    with exits():
        places = folders(load())
        engine = folder or places.engine
        install_engine(engine, python=Path(sys.executable), environment=os.environ, report=say)
        say(f"the engine is in {engine}")
        if model:
            made = demo_model(places.models, engine=engine, environment=os.environ, report=say)
            say(f"the demo model is in {made}")
