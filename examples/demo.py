"""The demo: a real model answers a real batch, sent by the stock OpenAI SDK through every part of the service.

    python examples/demo.py

Makes the engine's environment and the demo model where they are missing, starts ``slackwater up``, sends
``examples/tickets.jsonl``, shows the answers, and ends everything it started. Exit code 0 means: every request was
answered, each exactly once, and nothing is left running.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from demo_batch import Answers, send, show
from demo_service import DemoFailed, running
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
INTERRUPTED = 130


def main() -> int:
    """Run the demo and return its exit code."""
    options = arguments()
    console = Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    data_dir = options.data_dir.resolve()
    try:
        run(options, data_dir, console)
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
    except DemoFailed as failure:
        console.print(f"the demo failed: {failure}", markup=False, style="red")
        console.print(f"logs: {data_dir / 'up.log'} and {data_dir / 'logs'}", markup=False)
        return 1
    console.print("done: nothing is left running")
    return 0


def run(options: argparse.Namespace, data_dir: Path, console: Console) -> None:
    """Set up, send, show, end. Raises DemoFailed."""
    environment = environment_of_the_service()
    if options.install:
        console.rule("the engine's environment and the demo model")
        if subprocess.run([options.slackwater, "engine", "install"], env=environment, check=False).returncode:
            raise DemoFailed("`slackwater engine install` failed, see above")
    console.rule("slackwater up")
    command = [options.slackwater, "up", "--data-dir", str(data_dir)]
    with running(command, data_dir, environment) as service:
        console.print(f"the service answers at {service.base_url}", markup=False)
        answers = send(service, options.input, data_dir, console, limit_seconds=options.limit_seconds)
        show(answers, options.input, console)
        console.rule("ending")
    check(answers)


def check(answers: Answers) -> None:
    """Raise DemoFailed unless every request was answered, each exactly once."""
    if answers.wrong:
        raise DemoFailed("; ".join(answers.wrong))


def environment_of_the_service() -> dict[str, str]:
    """Keep the engine and the model beside the checkout, where the tests find them too, unless told otherwise."""
    ours = {
        "SLACKWATER_ENGINE_ENVIRONMENT": str(ROOT / ".engine"),
        "SLACKWATER_MODELS_DIR": str(ROOT / ".models"),
    }
    return {**ours, **os.environ}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A real model answers a real batch.")
    parser.add_argument(
        "--data-dir", type=Path, default=ROOT / "data" / "demo", help="where the service keeps its data"
    )
    parser.add_argument("--input", type=Path, default=ROOT / "examples" / "tickets.jsonl", help="the requests")
    parser.add_argument("--slackwater", default=command_beside_this_python(), help="the slackwater command")
    parser.add_argument("--limit-seconds", type=float, default=600.0, help="give up after so long")
    parser.add_argument("--no-install", dest="install", action="store_false", help="the engine is there already")
    return parser.parse_args()


def command_beside_this_python() -> str:
    """Find the command of the environment that runs this program."""
    beside = Path(sys.executable).parent / "slackwater"
    return str(beside) if beside.exists() else shutil.which("slackwater") or "slackwater"


if __name__ == "__main__":
    sys.exit(main())
