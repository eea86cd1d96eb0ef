"""Every role runs on uvloop, whose transports differ from asyncio's: what speaks HTTP is tested on both."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Name the loops that each test runs on."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
