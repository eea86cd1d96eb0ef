"""Things on loopback that a test needs: an ear that hears whether anybody connects."""

import socket
from types import TracebackType
from typing import Self


class Listener:
    """Listens on a port of its own, answers nobody, and counts who came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.settimeout(0)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def callers(self) -> int:
        """Count the connections that were made since the last look; the kernel has taken them all."""
        count = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return count
            connection.close()
            count += 1
