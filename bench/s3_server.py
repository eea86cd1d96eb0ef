"""SeaweedFS as a program of a benchmark: the same server, started the same way, as the tests have."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.s3 import S3Server, command, free_ports, wait_until_it_writes


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """Run an S3 server with all its data in a folder while the block runs; its bucket is there."""
    place = folder / "seaweedfs"
    place.mkdir()
    ports = free_ports(5)
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            command(place, ports),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=place,
            env={"HOME": str(place), "TMPDIR": str(place)},
        )
    try:
        server = S3Server(endpoint=f"http://127.0.0.1:{ports[0]}", checks_keys=True)
        wait_until_it_writes(server, process, place / "log")
        yield server
    finally:
        process.kill()  # asked politely it takes ten seconds, for data that nobody wants to keep
        process.wait()
