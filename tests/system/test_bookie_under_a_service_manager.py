"""``bkctl bookie start`` as systemd and a container start it: readiness, life signs, signals, exit codes."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bkctl.commands.frame.nouns import EXIT_CODES
from tests.demo_client import DemoClient
from tests.support.bookie_command import TEST_KEYS, WAIT_S, BookieCommand, command
from tests.support.command_line import invoke

CONF = Path(__file__).resolve().parents[2] / "conf"


def test_ready_alive_and_stopping_are_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with subprocess.Popen(
            command(),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as bookie:
            try:
                told = ""
                while "READY=1" not in told:
                    told = manager.recv(4096).decode()
                assert told.startswith("READY=1\nSTATUS=bookie 127.0.0.1:")
                assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
                bookie.send_signal(signal.SIGTERM)
                while not told.startswith("STOPPING=1"):
                    told = manager.recv(4096).decode()
                _, log = bookie.communicate(timeout=WAIT_S)
            finally:
                bookie.kill()
    assert bookie.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    said = [line.get("event", line["message"]) for line in lines]
    assert said == ["starting", "serving", "stopping", "stopped"]
    assert lines[1]["replayed_entries"] == 0
    assert lines[2]["signal"] == "SIGTERM"


def test_a_start_that_fails_tells_its_exit_code_in_json(tmp_path: Path) -> None:
    done = subprocess.run(
        command(metadataServiceUri="zk+flat://127.0.0.1:1/ledgers", zkTimeout="200"),
        cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert done.returncode == 5
    assert (events[-1]["event"], events[-1]["exit_code"]) == ("ended_by_error", 5)
    assert len(events) == len(done.stderr.splitlines())


def test_the_unit_file_starts_what_exists_and_knows_our_exit_codes() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CONF / "systemd" / "bkctl-bookie.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bkctl")
    # The same words, with a file that is not there: understood, and refused for the file alone.
    refused = invoke(words)
    assert refused.exit_code != 0
    assert "/etc/bookkeeper/bk_server.conf" in refused.stderr
    told = {code for code, _ in EXIT_CODES}
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == {2, 4} <= told


def test_the_start_of_a_container_takes_keys_from_the_environment_and_the_signal(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "bkctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m bkctl "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        **{f"BK_{key}": value for key, value in TEST_KEYS.items()},
        "BK_bookieId": "bookie-of-a-container",
        "BK_MEM": "2g",  # of another image's habits: named in the log, no error
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    with subprocess.Popen(
        [str(CONF / "container" / "bookie")],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as bookie:  # fmt: skip
        try:
            assert bookie.stdout is not None
            row = json.loads(bookie.stdout.readline())
            ready = f"http://127.0.0.1:{row['http_port']}/api/v1/bookie/is_ready"
            with urllib.request.urlopen(ready, timeout=WAIT_S) as answer:
                assert answer.status == 200
            bookie.send_signal(signal.SIGTERM)
            _, log = bookie.communicate(timeout=WAIT_S)
        finally:
            bookie.kill()
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert "$BK_MEM: 'MEM' is not a known key" in messages
    assert row["bookie"] == "bookie-of-a-container"
    assert bookie.returncode == 0


def unit_options() -> dict[str, list[str]]:
    """The options of the unit's service, each with the values of its lines."""
    found: dict[str, list[str]] = {}
    for line in (CONF / "systemd" / "bkctl-bookie.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_hardened() -> None:
    said = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            "--no-pager",
            CONF / "systemd" / "bkctl-bookie.service",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    if said.returncode and "offline" in said.stderr:
        pytest.skip("systemd-analyze is too old to look at a file")
    exposure = re.search(r"Overall exposure level for bkctl-bookie.service: ([0-9.]+)", said.stdout)
    assert exposure is not None, said.stdout + said.stderr
    assert float(exposure[1]) <= 2.5


_HARDENED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, PR_CAPBSET_DROP = 38, 65, 24
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
# Kernels before 6.3 do not know it.
libc.prctl(PR_SET_MDWE, 1, 0, 0, 0)
for capability in range(64):
    libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.umask(0o027)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_bookie_starts_under_what_the_unit_forbids(tmp_path: Path) -> None:
    """As far as a process may ask for it itself: no new privileges or capabilities, no executable memory."""
    assert unit_options()["MemoryDenyWriteExecute"] == unit_options()["NoNewPrivileges"] == ["yes"]
    assert unit_options()["CapabilityBoundingSet"] == [""]
    with subprocess.Popen(
        [sys.executable, "-c", _HARDENED, *command()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bookie:
        try:
            assert bookie.stdout is not None
            row = json.loads(bookie.stdout.readline())
            assert row["bookie"].startswith("127.0.0.1:")
            bookie.send_signal(signal.SIGTERM)
            bookie.communicate(timeout=WAIT_S)
        finally:
            bookie.kill()
    assert bookie.returncode == 0


def test_what_a_bookie_writes_is_not_for_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with BookieCommand(tmp_path) as bookie:
            with DemoClient(bookie.port) as client:
                client.add(1, range(50), size_bytes=100)
            assert bookie.end(signal.SIGTERM) == 0
    finally:
        os.umask(before)
    data = tmp_path / "bkctl-data"
    modes = {path.relative_to(data): path.stat().st_mode & 0o777 for path in (data, *data.rglob("*"))}
    assert len(modes) > 15
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & 0o027} == {}
