"""A real nginx for tests, with the configuration that we ship, before any HTTP server.

Loopback only; ended by its process id. Where no nginx is installed the test is skipped and says so.
"""

import asyncio
import re
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

CONFIG: Final = Path(__file__).parents[1] / "deploy" / "nginx.conf"

_START_SECONDS: Final = 15.0
_WRAPPER: Final = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/spooled-uploads;
    proxy_temp_path {folder}/spooled-answers;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/slackwater.conf;
}}
"""


@asynccontextmanager
async def run_nginx(upstream: str, folder: Path) -> AsyncIterator[str]:
    """Run nginx with deploy/nginx.conf before ``upstream`` (``host:port``); yields its base URL.

    Whatever nginx spools lies in ``folder``, in ``spooled-uploads`` and ``spooled-answers``.
    """
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin") or shutil.which("nginx")
    if program is None:
        pytest.skip("no nginx on the PATH; `make test` brings one")
    port = _free_port()
    config = CONFIG.read_text().replace("server 127.0.0.1:8000;", f"server {upstream};")
    config, listening = re.subn(r"(?m)^(\s*)listen 80;", rf"\1listen 127.0.0.1:{port};", config)
    assert listening == 1
    (folder / "slackwater.conf").write_text(config)
    (folder / "nginx.conf").write_text(_WRAPPER.format(folder=folder))
    process = await asyncio.create_subprocess_exec(
        program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")
    )
    try:
        await _listening(port, process, folder / "error.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            assert process.returncode is None, log.read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
