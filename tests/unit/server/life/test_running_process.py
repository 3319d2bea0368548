"""The process of a bookie, by the locks in its directories and by who listens at its HTTP admin."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.server.life.port_holder import port_holder
from bkctl.server.life.running_process import process_at, process_in

LISTENING = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""
LOCKING = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print(0, flush=True)
sys.stdin.read()
"""


@contextmanager
def child(program: Path, text: str, argument: object) -> Iterator[tuple[int, int]]:
    """Run a script; give the number that it prints, and its process id."""
    program.write_text(text)
    command = [sys.executable, str(program), str(argument)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["bkctl", "org.apache.bookkeeper.server.Main"])
def test_a_bookie_is_found_at_its_address(tmp_path: Path, name: str) -> None:
    with child(tmp_path / name, LISTENING, "127.0.0.2") as (port, pid):
        found = process_at(f"http://127.0.0.2:{port}")
        assert found is not None
        assert found.pid == pid
        # Another address of this machine, where somebody else may listen.
        assert process_at(f"http://127.0.0.1:{port}") is None
        holder = port_holder(port)
        assert holder is not None
        assert str(holder).endswith(f"{name} (pid {pid})")


def test_who_listens_on_every_address_is_found_at_one(tmp_path: Path) -> None:
    with child(tmp_path / "bkctl", LISTENING, "") as (port, pid):
        found = process_at(f"http://localhost:{port}")
        assert found is not None
        assert found.pid == pid


def test_who_passes_connections_on_is_no_bookie(tmp_path: Path) -> None:
    with child(tmp_path / "docker-proxy", LISTENING, "127.0.0.1") as (port, _):
        assert process_at(f"http://127.0.0.1:{port}") is None


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:8080", "http://127.0.0.1:1", "http://no-such-host.invalid"]
)
def test_nobody_is_found_elsewhere(url: str) -> None:
    assert process_at(url) is None


def test_a_bookie_is_found_by_the_lock_of_its_database(tmp_path: Path) -> None:
    lock = tmp_path / "ledgers/current/locations/LOCK"
    lock.parent.mkdir(parents=True)
    lock.touch()
    directories = DirectorySettings(journals=(f"{tmp_path}/journal",), ledgers=(f"{tmp_path}/ledgers",))
    assert process_in(directories) is None
    with child(tmp_path / "bkctl", LOCKING, lock) as (_, pid):
        found = process_in(directories)
        assert found is not None
        assert found.pid == pid
