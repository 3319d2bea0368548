"""Reading leaves no trace: on a read-only mount, in a directory, beside a process that holds the lock."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.uri import open_metadata_store
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
ZK = str(DEMO / "zk.json")
BKCTL = (sys.executable, "-m", "bkctl")

Run = Callable[..., Any]

#: Every command that reads, with how many rows (of NDJSON) it gives for the bookie of ``demo``.
COMMANDS: list[tuple[tuple[str, ...], int]] = [
    (("inspect", "{bookie}"), 11),
    (("entrylog", "list", "{bookie}"), 3),
    (("entrylog", "show", "0", "{bookie}"), 1),
    (("entrylog", "show", "0", "{bookie}", "--walk"), 1),
    (("entrylog", "scan", "{bookie}"), 665),
    (("entrylog", "verify", "{bookie}", "--metadata", ZK), 3),
    (("journal", "list", "{bookie}"), 1),
    (("journal", "scan", "{bookie}"), 753),
    (("journal", "verify", "{bookie}", "--metadata", ZK), 1),
    (("index", "scan", "{bookie}"), 532),
    (("index", "ledgers", "{bookie}"), 4),
    (("index", "get", "0", "2", "{bookie}"), 1),
    (("cookie", "get", "{bookie}"), 2),
    (("lastmark", "show", "{bookie}"), 1),
]
NAMES = [" ".join(word for word in command if word not in ("{bookie}", ZK)) for command, _ in COMMANDS]


def command_line(command: tuple[str, ...], bookie: Path) -> list[str]:
    return [str(bookie) if word == "{bookie}" else word for word in command] + ["-o", "ndjson"]


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    return shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """An own directory for temporary files, so that what stays in it can be seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def traces(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything a write would change, of every file and directory; reading may change access times."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        facts = path.lstat()
        found[str(path)] = (
            facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode, facts.st_nlink,
        )  # fmt: skip
    return found


# -------------------------------------------------------------------------------------- a read-only mount

MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
TRY_TO_WRITE = """
import sys
try:
    open(sys.argv[1] + "/written", "w").close()
except OSError as error:
    print(error.errno)
"""


def read_only(
    folder: Path, *command: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in its own mount namespace, where ``folder`` is mounted read-only."""
    user = ("--user", "--map-root-user") if not PRIVILEGED else ()
    return subprocess.run(
        ["unshare", *user, "--mount", "sh", "-c", MOUNTED, str(folder), *command],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **(environment or {})},
    )  # fmt: skip


def reason_against() -> tuple[bool, str | None]:
    """Whether root is needed for a mount namespace, and why there can be none (None: there can)."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False, "unshare and mount are not installed"
    said = ""
    for privileged, user in ((False, ("--user", "--map-root-user")), (True, ())):
        if privileged and os.geteuid() != 0:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["unshare", *user, "--mount", "sh", "-c", MOUNTED, folder, "true"],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
        if done.returncode == 0:
            return privileged, None
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    return False, f"no mount namespace with a read-only bind mount here: {said}"


PRIVILEGED, AGAINST = reason_against()
on_a_read_only_mount = pytest.mark.skipif(AGAINST is not None, reason=AGAINST or "possible")


@on_a_read_only_mount
def test_the_mount_is_really_read_only(bookie: Path) -> None:
    done = read_only(bookie, sys.executable, "-c", TRY_TO_WRITE, str(bookie / "ledgers/current"))
    assert (done.returncode, done.stdout.strip()) == (0, str(errno.EROFS)), done.stderr
    assert not (bookie / "ledgers/current/written").exists()
    # The same without the mount succeeds, so it is the mount that refuses.
    open(bookie / "ledgers/current/written", "w").close()


@on_a_read_only_mount
@pytest.mark.parametrize(("command", "rows"), COMMANDS, ids=NAMES)
def test_a_command_reads_a_read_only_mount(
    bookie: Path, temporary: Path, command: tuple[str, ...], rows: int
) -> None:
    before = traces(bookie)
    done = read_only(bookie, *BKCTL, *command_line(command, bookie), environment={"TMPDIR": str(temporary)})
    assert (done.returncode, done.stderr) == (0, "")
    assert len(from_ndjson(done.stdout)) == rows
    assert traces(bookie) == before
    assert not list(temporary.iterdir())


@on_a_read_only_mount
def test_metadata_in_a_file_are_read_on_a_read_only_mount(tmp_path: Path, temporary: Path) -> None:
    """SQLite wants to write beside its file; the last registration is in its write-ahead log alone."""
    bookie = DoctoredBookie.of(DEMO / "bookie1", tmp_path / "bookie1")
    with open_metadata_store(bookie.uri) as store:
        before = traces(bookie.root)
        conf = str(bookie.conf)
        environment = {"TMPDIR": str(temporary)}
        words = ("doctor", "--conf", conf, "--only", "metadata,cookies", "-o", "ndjson")
        done = read_only(bookie.root, *BKCTL, *words, environment=environment)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        done = read_only(bookie.root, *BKCTL, "bookie", "start", "--conf", conf, environment=environment)
        assert done.returncode == 7
        assert "read-only" in done.stderr.lower()
        assert "unable to open database file" not in done.stderr
        assert traces(bookie.root) == before
        assert store.layout.cluster_exists()
    assert not list(temporary.iterdir())


# ----------------------------------------------------------------------------------- the directory itself


@pytest.mark.parametrize(("command", "rows"), COMMANDS, ids=NAMES)
def test_a_command_leaves_the_directory_as_it_was(
    run_cli: Run,
    bookie: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    rows: int,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = traces(bookie)
    result = run_cli(*command_line(command, bookie))
    assert (result.exit_code, len(from_ndjson(result.stdout))) == (0, rows)
    assert traces(bookie) == before
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("folder", ["samples", "index"])
def test_other_layouts_and_damaged_files_are_left_as_they_were(
    run_cli: Run, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Index files, DirectIO, several directories, damage: errors leave no trace either."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    copy = shutil.copytree(DATA / folder, tmp_path / folder)
    before = traces(copy)
    codes = set()
    for sample in sorted(path for path in copy.iterdir() if path.is_dir()):
        for command, _ in COMMANDS:
            codes.add(run_cli(*command_line(command, sample)).exit_code)
    assert {0, 2, 6} <= codes <= {0, 1, 2, 3, 6}
    assert traces(copy) == before
    assert not list(temporary.iterdir())


def test_a_database_that_cannot_be_opened_leaves_nothing_behind(
    run_cli: Run, bookie: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for manifest in bookie.rglob("MANIFEST-*"):
        manifest.write_bytes(b"\xff" * 66)
    before = traces(bookie)
    for command in (
        ("index", "scan"),
        ("index", "ledgers"),
        ("index", "get", "0", "2"),
        ("entrylog", "verify"),
    ):
        code = run_cli(*command, bookie).exit_code
        assert code in ((3,) if command[0] == "entrylog" else (1, 7))
    assert traces(bookie) == before
    assert not list(temporary.iterdir())


def test_a_reader_that_goes_away_leaves_nothing_behind(bookie: Path, temporary: Path) -> None:
    before = traces(bookie)
    with subprocess.Popen(
        [*BKCTL, "index", "scan", str(bookie)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
    assert process.returncode in (0, 141)
    assert traces(bookie) == before
    assert not list(temporary.iterdir())


# -------------------------------------------------------------------------------- beside a running bookie

HOLDER = """
import sys
import rocksdict
stores = [rocksdict.Rdict(path, options=rocksdict.Options(raw_mode=True)) for path in sys.argv[1:]]
row = (77).to_bytes(8, "big") + (5).to_bytes(8, "big")
stores[0][row] = (1 << 32 | 4096).to_bytes(8, "big")
stores[0].flush_wal(True)
print("ready", flush=True)
sys.stdin.readline()
"""
SECOND_WRITER = """
import sys
import rocksdict
try:
    rocksdict.Rdict(sys.argv[1], options=rocksdict.Options(raw_mode=True))
except Exception as error:
    print(error)
"""


@pytest.fixture
def held(bookie: Path) -> Iterator[Path]:
    """A bookie whose databases another process holds open for writing, with one row just written."""
    current = bookie / "ledgers/current"
    command = [sys.executable, "-c", HOLDER, str(current / "locations"), str(current / "ledgers")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield bookie
        process.stdin.close()
    assert process.returncode == 0


def test_the_lock_is_really_held(held: Path) -> None:
    locations = held / "ledgers/current/locations"
    done = subprocess.run(
        [sys.executable, "-c", SECOND_WRITER, str(locations)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "lock" in done.stdout.lower()


def test_commands_read_beside_the_process_that_holds_the_lock(
    run_cli: Run, held: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = traces(held)
    for command, rows in COMMANDS:
        result = run_cli(*command_line(command, held))
        extra = {("index", "scan"): 1}.get(command[:2], 0)
        assert (result.exit_code, result.stderr) == (0, ""), command
        assert len(from_ndjson(result.stdout)) == rows + extra, command
    assert traces(held) == before
    assert not list(temporary.iterdir())


def test_a_row_just_written_is_seen(run_cli: Run, held: Path) -> None:
    result = run_cli("index", "get", "77", "5", held)
    answer = json.loads(result.stdout)
    assert (answer["log_id"], answer["offset"]) == (1, 4096)
