"""The datagrams of sd_notify(3), at a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.server.life.service_manager import EXTENSION_S, ServiceManager

EXTENSION = f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1_000_000)}"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Where it listens, as the variable says it, and its socket."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@bkctl-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listening.settimeout(10)
        yield name, listening


def test_what_a_life_tells(manager: tuple[str, socket.socket]) -> None:
    address, listening = manager
    told = ServiceManager({"NOTIFY_SOCKET": address})
    assert told.listens
    told.starting("replaying journals")
    told.ready("serves port 3181")
    told.alive()
    told.stopping("flushing")
    assert [listening.recv(4096).decode() for _ in range(4)] == [
        f"{EXTENSION}\nSTATUS=replaying journals",
        "READY=1\nSTATUS=serves port 3181",
        "WATCHDOG=1",
        f"STOPPING=1\n{EXTENSION}\nSTATUS=flushing",
    ]


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    nobody = ServiceManager({})
    assert not nobody.listens
    nobody.ready("serves")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("serves")


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "1000"}, 0.1),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_sign_of_life_is_given_twice_in_the_time_that_is_waited(
    environment: dict[str, str], interval_s: float | None
) -> None:
    assert ServiceManager(environment).watchdog_interval_s == interval_s
