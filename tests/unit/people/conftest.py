import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.people.command_line import CommandLine
from tests.unit.people.fake_service import FakeService, serving


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def base_url(service: FakeService) -> Iterator[str]:
    with serving(service) as url:
        yield url


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def command(base_url: str, tmp_path: Path) -> CommandLine:
    """The command line, pointed at the fake service by the environment."""
    return CommandLine(
        environment={
            "HOME": str(tmp_path),
            "SLACKWATER_BASE_URL": base_url,
            "SLACKWATER_API_KEY": "k",
        }
    )


@pytest.fixture
def requests_file(tmp_path: Path) -> Path:
    """Two requests, ready to be submitted."""
    path = tmp_path / "in.jsonl"
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny", "messages": []}}
    path.write_text("".join(json.dumps({"custom_id": name, **line}) + "\n" for name in ("a", "b")))
    return path
