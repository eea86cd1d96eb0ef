"""Addresses and ports of this machine for the children of ``up``."""

import contextlib
import socket


def reachable(host: str) -> str:
    """Return the address at which this machine reaches a server that listens on ``host``."""
    return "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104


def port_or_free(host: str, port: int) -> int:
    """Return the port if nobody listens there, else a free one."""
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return free_ports(1)[0]
    return port


def probe_ports(first: int, count: int) -> list[int]:
    """Return the ports from ``first`` on, each replaced by a free one where it is taken."""
    return [port_or_free("127.0.0.1", port) for port in range(first, first + count)]


def free_ports(count: int) -> list[int]:
    """Find ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
