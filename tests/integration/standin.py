"""A stand-in for the ``slackwater`` command: enough of ``engine install`` and ``up`` for the demo to run against.

``STANDIN`` in the environment makes it misbehave: see the names below.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from slackwater.cli.profile import Profile, write_profile
from tests.unit.people.fake_service import FakeService, Json, serving

MISBEHAVIOUR = os.environ.get("STANDIN", "")

EARLIER_BATCH_GOES_ON = 6


class Answering(FakeService):
    """Answers each request of a batch with its own custom_id, but one where it is told to lose or fail one."""

    def _create_batch(self, seen: object) -> Json:
        batch = super()._create_batch(seen)  # type: ignore[arg-type]  # the parent's own request type
        lines = [json.loads(line) for line in self.contents[batch["input_file_id"]].splitlines()]
        answers = [answer(line["custom_id"]) for line in lines]
        if MISBEHAVIOUR == "loses a result":
            answers.pop()
        self.add_file("file-out", "".join(answers).encode(), purpose="batch_output")
        counts = {"total": len(lines), "completed": len(lines), "failed": 0}
        usage = {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 13,
        }
        self._lives[batch["id"]] = deque(
            [
                {"status": "in_progress", "request_counts": {**counts, "completed": 0}},
                {"status": "completed", "request_counts": counts, "usage": usage, "output_file_id": "file-out"},
            ]
        )
        return batch


def answer(custom_id: str) -> str:
    body = {
        "choices": [{"message": {"role": "assistant", "content": f"[red]the answer\nto {custom_id}"}}],
        "usage": {"completion_tokens": 4},
    }
    response = {"status_code": 200, "request_id": "r", "body": body}
    return json.dumps({"id": "b", "custom_id": custom_id, "response": response, "error": None}) + "\n"


def up(data_dir: Path) -> int:
    if MISBEHAVIOUR == "dies at once":
        return 3
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if MISBEHAVIOUR == "leaves a process behind":
        # Its own parent ends at once, as a careless daemon's does.
        subprocess.run(["/bin/sh", "-c", "sleep 1000 &"], check=True, start_new_session=True)
    service = Answering()
    service.add_batch("batch_of_an_interrupted_demo", status="in_progress")
    with serving(service) as url:
        write_profile(data_dir / "profile.toml", Profile(base_url=url, api_key="sk-1", tenant="demo"))
        stop.wait()
    if MISBEHAVIOUR == "" and service.batches["batch_of_an_interrupted_demo"]["status"] != "cancelling":
        return EARLIER_BATCH_GOES_ON
    return 5 if MISBEHAVIOUR == "ends badly" else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["engine", "install"]:
        sys.exit(MISBEHAVIOUR == "cannot install")
    sys.exit(up(Path(sys.argv[sys.argv.index("--data-dir") + 1])))
