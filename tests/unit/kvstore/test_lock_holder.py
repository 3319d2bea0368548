"""Naming the process that holds a lock, without its arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.kvstore import lock_holder
from bkctl.kvstore.rocksdb_store import _just_below


@pytest.mark.parametrize(
    ("naming", "arguments", "expected"),
    [
        (lock_holder._java_program, ["-Xmx1g", "-cp", "a:b", "org.Main", "secret"], "org.Main"),
        (lock_holder._java_program, ["-Dpassword=x", "-jar", "/opt/bookie.jar"], "bookie.jar"),
        (lock_holder._java_program, ["--add-opens=a/b=c", "@options"], ""),
        (lock_holder._python_program, ["/venv/bin/bkctl", "--password", "x"], "bkctl"),
        (lock_holder._python_program, ["-m", "pytest", "x"], "pytest"),
        (lock_holder._python_program, ["-c", "password = 'x'"], ""),
        (lock_holder._python_program, [], ""),
    ],
)
def test_a_program_is_named_without_its_arguments(
    naming: Callable[[list[str]], str], arguments: list[str], expected: str
) -> None:
    assert naming(arguments) == expected


def test_a_process_that_is_gone_has_no_name() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert lock_holder.process_name(done.pid) == "a process"


def test_a_lock_that_nobody_holds(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    assert lock_holder.lock_holder(str(tmp_path / "LOCK")) is None


def test_a_lock_of_another_container_has_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "LOCK").touch()
    monkeypatch.setattr(lock_holder, "_pid_by_getlk", lambda _: 0)
    holder = lock_holder.lock_holder(str(tmp_path / "LOCK"))
    assert holder is not None
    assert holder.pid is None
    assert "another container" in str(holder)


def test_a_file_of_ours_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "LOCK"
    path.touch()
    monkeypatch.setattr(lock_holder, "OWN", {(path.stat().st_dev, path.stat().st_ino)})
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    holder = lock_holder.lock_holder(str(path))
    assert holder is not None
    assert holder.pid == os.getpid()


@pytest.mark.parametrize(
    "stop", [b"a", b"ab", b"\x01\x00", b"\x00", b"\x00\x00\x01", b"", bytes(15) + b"\x07"]
)
def test_the_key_below_is_below_and_above_all_others(stop: bytes) -> None:
    below = _just_below(stop)
    assert below < stop or stop == b""
    for other in (
        b"",
        b"\x00",
        b"`" + b"\xff" * 15,
        b"a" * 15,
        bytes(15) + b"\x06",
        b"\x00\x00\x00" + b"\xff" * 5,
    ):
        assert not below < other < stop
