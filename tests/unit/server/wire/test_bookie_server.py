"""The address of a bookie's server."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.errors import StorageError
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire.bookie_server import BookieServer, bind
from tests.support.engine_rig import EngineRig


def test_of_two_that_are_bound_to_one_address_the_second_to_listen_says_so() -> None:
    """uvloop closed the socket without a word, and the start failed with "Bad file descriptor"."""
    rig = EngineRig()
    rig.start()
    loop = new_event_loop()
    with contextlib.closing(bind("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with contextlib.closing(bind("127.0.0.1", port)) as second:
            first.listen()
            with pytest.raises(StorageError, match=f"on 127.0.0.1:{port}: Address already in use"):
                loop.run_until_complete(asyncio.wait_for(served(rig, second), 10))
    loop.close()
    rig.bookie.abort()


async def served(rig: EngineRig, bound: socket.socket) -> None:
    server = BookieServer(rig.bookie, NetworkSettings(), SystemClock())
    try:
        await server.start(bound)
    finally:
        await server.stop()
