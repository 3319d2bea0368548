"""The JVMs of these tests take their classes from an archive, and do without it where it is no good."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import java_start
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import DRIVER_CLASS, require_jars

pytestmark = pytest.mark.interop

REQUEST = ["master-key", "00"]


def answer(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def option(command: list[str], name: str) -> str:
    return next(word for word in command if word.startswith(name))


def test_classes_come_from_the_archive() -> None:
    command = require_jars().quick_command(DRIVER_CLASS, *REQUEST)
    at = command.index("-Xlog:disable")
    command[at] = "-Xlog:class+load"
    lines = answer(command).splitlines()
    ours = [line for line in lines if " org.apache.bookkeeper." in line]
    shared = [line for line in ours if "shared objects file" in line]
    assert ours
    assert len(shared) > 0.9 * len(ours)


@pytest.mark.parametrize("damage", one_kept("as with other damage", "of other jars", "gone", "empty"))
def test_an_archive_that_is_no_good_is_not_used_and_not_mentioned(tmp_path: Path, damage: str) -> None:
    command = require_jars().quick_command(DRIVER_CLASS, *REQUEST)
    expected = answer(command)
    name = "-XX:SharedArchiveFile="
    whole = Path(option(command, name).removeprefix(name))
    other = tmp_path / whole.name
    if damage == "empty":
        other.touch()
    elif damage == "of other jars":
        shutil.copyfile(whole, other)
        classpath = command.index("-cp") + 1
        first, colon, rest = command[classpath].partition(":")
        moved = shutil.copy(first, tmp_path / "driver.jar")
        command[classpath] = f"{moved}{colon}{rest}"
    command[command.index(f"{name}{whole}")] = f"{name}{other}"
    assert answer(command) == expected


def test_a_rehearsal_that_fails_is_not_repeated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = require_jars()
    monkeypatch.setattr(java_start, "_REHEARSAL", "NoSuchClass")
    first = java_start.start_options.__wrapped__(Path(jars.java), jars.classpath, tmp_path)
    (left,) = tmp_path.glob("classes-*.jsa")
    made = left.stat().st_mtime_ns
    again = java_start.start_options.__wrapped__(Path(jars.java), jars.classpath, tmp_path)
    assert first == again == java_start.LIGHT
    assert left.stat().st_mtime_ns == made


def test_no_archive_where_nothing_can_be_written(tmp_path: Path) -> None:
    jars = require_jars()
    options = java_start.start_options.__wrapped__(Path(jars.java), jars.classpath, tmp_path / "none")
    assert options == java_start.LIGHT
