"""Apache BookKeeper 4.17.3 itself, driven from Python: the other side of every differential test.

What runs
    The released jars, resolved by Maven from ``tests/interop/pom.xml`` into a cache outside the work tree,
    and the small programs of ``tests/interop/java``, compiled with javac into the same cache. One JVM answers
    many requests (:class:`JavaDriver`); a JVM of its own per request would cost a second each.

What it needs
    A JDK (java and javac, 17 or newer) and Maven. ``BKCTL_JARS`` names a directory that holds the jars
    already (then Maven is not needed) or into which they shall go; the default is
    ``~/.cache/bkctl/bookkeeper-4.17.3``. What is missing skips the test with the reason, and fails it where
    ``BKCTL_REQUIRE_INTEROP=1``, so that a CI run cannot be green by skipping.

Use it once per test module::

    @pytest.fixture(scope="module")
    def java() -> Iterator[JavaDriver]:
        with start_driver() as driver:
            yield driver
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tests.support.java_start import LIGHT, NETTY, start_options

VERSION = "4.17.3"
JARS_ENV = "BKCTL_JARS"
REQUIRE_ENV = "BKCTL_REQUIRE_INTEROP"

_INTEROP_DIR = Path(__file__).resolve().parent.parent / "interop"
_SAMPLES = _INTEROP_DIR.parent / "data" / "samples"
_POM = _INTEROP_DIR / "pom.xml"
_SOURCES = _INTEROP_DIR / "java"
SHELL_LOGGING = _SOURCES / "log4j2-shell.xml"
DRIVER_CLASS = "org.apache.bookkeeper.bookie.Driver"
_SHELL_CLASS = "org.apache.bookkeeper.bookie.BookieShell"
_STAMP = "pom.sha256"

_RESOLVE_SECONDS = 240
_COMPILE_SECONDS = 180
_REQUEST_SECONDS = 60
_EXIT_SECONDS = 20

# netty takes its limit on direct memory from the same option: absurd sizes fail, as they do in a bookie.
_JVM_OPTIONS = ("-Xmx512m", "-XX:MaxDirectMemorySize=512m", *NETTY)

Row = dict[str, Any]


class JarsUnavailableError(Exception):
    """Java, Maven or the jars are not to be had; the message says which and why."""


class JavaError(Exception):
    """The Java side answered a request with an exception (``java.io.IOException: …``)."""


# --- finding and making what is needed ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Jars:
    """What a JVM needs to run BookKeeper and the driver programs."""

    java: str
    classpath: str
    #: Whether there is an archive of the classes: only for the class path of this module.
    archive: bool = True

    def quick_command(self, *words: str, log_level: str = "OFF", memory_mb: int = 256) -> list[str]:
        """The command line of a JVM that starts soon: options, a main class and its arguments."""
        memory = (f"-Xmx{memory_mb}m", f"-XX:MaxDirectMemorySize={memory_mb}m")
        options = (*memory, *NETTY, f"-Dorg.apache.logging.log4j.level={log_level}")
        start = start_options(Path(self.java), self.classpath, cache_root()) if self.archive else LIGHT
        return [self.java, *start, *options, "-cp", self.classpath, *words]

    def driver_command(self, *arguments: str) -> list[str]:
        """The command line of a JVM that answers one request (with arguments), as fast as Java can."""
        quiet = "-Dorg.apache.logging.log4j.level=OFF"
        return [self.java, *_JVM_OPTIONS, quiet, "-cp", self.classpath, DRIVER_CLASS, *arguments]

    def shell_command(self, conf: Path, *arguments: str) -> list[str]:
        """The command line of ``bookkeeper shell`` with its released format of output."""
        logging = f"-Dlog4j.configurationFile={SHELL_LOGGING}"
        options = [*_JVM_OPTIONS, logging]
        return [self.java, *options, "-cp", self.classpath, _SHELL_CLASS, "-conf", str(conf), *arguments]


def cache_root() -> Path:
    return Path.home() / ".cache" / "bkctl"


def find_jars() -> Jars:
    """The jars and the compiled driver, made when they are not there yet.

    Raises :class:`JarsUnavailableError`. Safe to call in several processes at once: one makes them, the
    others wait for it.
    """
    found = _try_to_find_jars()
    if isinstance(found, JarsUnavailableError):
        raise found
    return found


@functools.cache
def _try_to_find_jars() -> Jars | JarsUnavailableError:
    """A failure is remembered, so that only the first test waits for it."""
    try:
        return _find_jars()
    except JarsUnavailableError as error:
        return error


def _find_jars() -> Jars:
    java = _tool("java")
    javac = _tool("javac")
    given = os.environ.get(JARS_ENV)
    jars = Path(given) if given else cache_root() / f"bookkeeper-{VERSION}"
    if not _are_current(jars, trusted=bool(given)):
        with _locked(jars.parent, f"{jars.name}.lock"):
            if not _are_current(jars, trusted=bool(given)):
                _resolve(jars)
    driver = cache_root() / f"driver-{_sources_digest(javac)}.jar"
    if not driver.is_file():
        with _locked(driver.parent, "driver.lock"):
            if not driver.is_file():
                _compile(javac, jars, driver)
    return Jars(java, os.pathsep.join((str(driver), str(jars / "*"))))


def require_jars() -> Jars:
    """:func:`find_jars` for tests: skips, or fails where the interop tests are required."""
    try:
        return find_jars()
    except JarsUnavailableError as error:
        _skip(f"no BookKeeper {VERSION} to compare with: {error}")


def start_driver() -> JavaDriver:
    """A running driver; skips the test when it cannot be had."""
    return JavaDriver(require_jars())


def _skip(reason: str) -> NoReturn:
    import pytest  # the benchmarks use this module too, without pytest

    if os.environ.get(REQUIRE_ENV) == "1":
        pytest.fail(f"{reason} ({REQUIRE_ENV}=1)", pytrace=False)
    pytest.skip(reason)


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home and name != "mvn" else None
    found = found or shutil.which(name)
    if found is None:
        raise JarsUnavailableError(f"{name} is not on the PATH")
    return found


def _are_current(jars: Path, *, trusted: bool) -> bool:
    """Jars that the user has put there carry no stamp and are taken as they are."""
    if not any(jars.glob(f"bookkeeper-server-{VERSION}.jar")):
        return False
    stamp = jars / _STAMP
    return stamp.read_text() == _pom_digest() if stamp.exists() else trusted


def _pom_digest() -> str:
    return hashlib.sha256(_POM.read_bytes()).hexdigest()


def _sources_digest(javac: str) -> str:
    digest = hashlib.sha256(f"{VERSION} {javac}".encode())
    for source in sorted(_SOURCES.glob("*.java")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(directory: Path, name: str) -> Iterator[None]:
    """One process at a time; the lock ends with its process, whatever happens to it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / name).open("w")
    except OSError as error:
        raise JarsUnavailableError(f"cannot use {directory}: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve(jars: Path) -> None:
    maven = _tool("mvn")
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=".resolving-") as scratch:
        fresh = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        options = [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        _run("mvn", [*command, *options], _RESOLVE_SECONDS, cwd=Path(scratch))
        (fresh / _STAMP).write_text(_pom_digest())
        _put_in_place(fresh, jars, Path(scratch))


def _compile(javac: str, jars: Path, driver: Path) -> None:
    with tempfile.TemporaryDirectory(dir=driver.parent, prefix=".compiling-") as scratch:
        classes = Path(scratch) / "classes"
        sources = [str(source) for source in sorted(_SOURCES.glob("*.java"))]
        options = ["-nowarn", "-encoding", "UTF-8", "-cp", str(jars / "*"), "-d", str(classes)]
        _run("javac", [javac, *options, *sources], _COMPILE_SECONDS, cwd=Path(scratch))
        fresh = Path(scratch) / driver.name
        with zipfile.ZipFile(fresh, "w") as packed:
            for path in sorted(classes.rglob("*.class")):
                packed.write(path, path.relative_to(classes))
        fresh.rename(driver)


def _put_in_place(fresh: Path, target: Path, scratch: Path) -> None:
    """A rename, so that a reader sees the whole directory or none."""
    if target.exists():
        target.rename(scratch / "outdated")
    fresh.rename(target)


def _run(name: str, command: list[str], seconds: float, *, cwd: Path) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailableError(f"{name} did not end within {seconds:.0f} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise JarsUnavailableError(f"{name} failed: {' | '.join(lines[:3])}")


# --- one JVM, many requests ---------------------------------------------------------------------------------


class JavaDriver:
    """A JVM with BookKeeper in it. :meth:`ask` is the protocol, the other methods are its commands.

    Directories are parents of ``current``. Index databases are opened read-only, the other classes may
    create small files: hand them a copy (:func:`copy_directory`).
    """

    def __init__(self, jars: Jars, program: str = DRIVER_CLASS) -> None:
        """``program`` is the main class."""
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            jars.quick_command(program, memory_mb=512),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read_answers, name="java-driver", daemon=True)
        self._reader.start()

    def __enter__(self) -> JavaDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the JVM: by the end of its input, by force when it does not take that."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_EXIT_SECONDS)
        self._reader.join(_EXIT_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def ask(self, command: str, *arguments: object, seconds: float = _REQUEST_SECONDS) -> list[Row]:
        """All rows of one answer. An answer that does not come in time ends the JVM."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([command, *map(_argument, arguments)]) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise JavaError(f"the JVM has ended: {self._last_words()}") from error
        rows: list[Row] = []
        while True:
            row = self._next_row(command, seconds)
            if "failed" in row:
                raise JavaError(row["failed"])
            if "done" in row:
                return rows
            rows.append(row)

    def _next_row(self, command: str, seconds: float) -> Row:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._process.kill()
            raise JavaError(f"no answer to {command} within {seconds:.0f} s") from None
        if line is None:
            raise JavaError(f"the JVM ended during {command}: {self._last_words()}")
        row: Row = json.loads(line)
        return row

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip() or "without a word"

    # entry logs and journals

    def entry_log(self, ledger_dir: Path, log_id: int) -> EntryLogVerdict:
        """What DefaultEntryLogger makes of one log."""
        rows = self.ask("entry-log", ledger_dir, log_id)
        by_kind = {row["kind"]: row for row in rows if row["kind"] != "record"}
        return EntryLogVerdict(
            records=[
                EntryLogRecord(row["ledger"], row["entry"], row["offset"], row["size"])
                for row in rows
                if row["kind"] == "record"
            ],
            error=by_kind["end"].get("error"),
            metadata=_metadata(by_kind["metadata"]),
            ledgers_map=_metadata(by_kind["map"]),
        )

    def entry(self, ledger_dir: Path, ledger: int, entry: int, location: int) -> bytes:
        """The body at a location, as a read request would get it."""
        return bytes.fromhex(self.ask("entry", ledger_dir, ledger, entry, location)[0]["body"])

    def journal(
        self,
        journal_dir: Path,
        ledger_dir: Path,
        journal_id: int,
        *,
        start: int = 0,
        skip_invalid: bool = False,
    ) -> JournalVerdict:
        """What a replay of one journal would be handed, and where and how it would end."""
        rows = self.ask("journal", journal_dir, ledger_dir, journal_id, start, skip_invalid)
        records = [
            JournalRecord(row["version"], row["offset"], row["length"], row["ledger"], row["entry"])
            for row in rows[:-1]
        ]
        return JournalVerdict(records, rows[-1].get("position"), rows[-1].get("error"))

    def last_mark(self, journal_dir: Path, *ledger_dirs: Path) -> tuple[int, int]:
        """(journal id, offset) from which a starting bookie would replay."""
        row = self.ask("last-mark", journal_dir, *ledger_dirs)[0]
        return row["journal_id"], row["offset"]

    # indexes

    def rocksdb_rows(self, current: Path, name: str) -> list[tuple[bytes, bytes]]:
        """Every key and value of a database in a ``current`` directory."""
        rows = self.ask("rocksdb-rows", current, name)
        return [(bytes.fromhex(row["key"]), bytes.fromhex(row["value"])) for row in rows]

    def db_ledgers(self, current: Path) -> dict[int, Row]:
        """The ledgers of a DbLedgerStorage: ``fenced``, ``master_key``, ``explicit_lac`` (hex), ``limbo``."""
        return {row["ledger"]: row for row in self.ask("db-ledgers", current)}

    def db_locations(self, current: Path, *ledgers: int) -> dict[tuple[int, int], tuple[int, int]]:
        """(ledger, entry) -> (log id, offset) of the ledgers asked for."""
        rows = self.ask("db-locations", current, *ledgers)
        return {(row["ledger"], row["entry"]): (row["log_id"], row["offset"]) for row in rows}

    def idx_ledgers(self, *ledger_dirs: Path) -> dict[int, Row]:
        """The ledgers of an Interleaved or Sorted storage.

        ``fenced``, ``master_key`` and ``explicit_lac`` (hex), ``locations`` [[entry, log id, offset]], or
        ``error``.
        """
        return {row["ledger"]: row for row in self.ask("idx-ledgers", *ledger_dirs)}

    def ledger_data(self, value: bytes) -> bytes:
        """The value of a row of ``ledgers``, parsed and serialized again."""
        return bytes.fromhex(self.ask("ledger-data", value.hex())[0]["bytes"])

    def entry_log_metadata(self, value: bytes) -> Row:
        """The value of a row of ``metadata-cache``: its fields, ``bytes`` (hex) as serialized again."""
        return self.ask("entry-log-metadata", value.hex())[0]

    def paths(self, *ledgers: int) -> list[Row]:
        """For each ledger the path of its ``index`` file and of its ``znode``."""
        return self.ask("paths", *ledgers)

    # small files and metadata

    def cookie(self, text: bytes) -> bytes:
        """A cookie, parsed and printed again."""
        return bytes.fromhex(self.ask("cookie", text.hex())[0]["bytes"])

    def bookie_status(self, text: bytes) -> tuple[bytes | None, bool | None]:
        """A BOOKIE_STATUS file, parsed and printed again, and whether it says read-only; None if refused."""
        row = self.ask("bookie-status", text.hex())[0]
        return (None if row["bytes"] is None else bytes.fromhex(row["bytes"])), row["read_only"]

    def ledger_metadata(self, stored: bytes, ledger: int = 0, *, ctime_ms: int | None = None) -> Row:
        """Ledger metadata, parsed: its fields, and ``bytes`` (hex) as Java serializes them again."""
        return self.ask("ledger-metadata", stored.hex(), ledger, "" if ctime_ms is None else ctime_ms)[0]

    # digests

    def sealed_entry(self, digest: str, password: bytes, header: EntryHeader, payload: bytes) -> bytes:
        """The bytes that a client sends for an entry, digest included; ``digest`` as in JSON (``crc32c``)."""
        fields = (header.ledger, header.entry, header.lac, header.length)
        row = self.ask("digest", digest, password.hex(), *fields, payload.hex())[0]
        return bytes.fromhex(row["body"])

    def sealed_explicit_lac(self, digest: str, password: bytes, ledger: int, lac: int) -> bytes:
        """The blob that a client sends as explicit LAC."""
        return bytes.fromhex(self.ask("explicit-lac", digest, password.hex(), ledger, lac)[0]["body"])

    def opened_entry(
        self, digest: str, password: bytes, ledger: int, entry: int, body: bytes
    ) -> bytes | None:
        """The payload as a client would get it, or None when its digest does not check."""
        row = self.ask("verify", digest, password.hex(), ledger, entry, body.hex())[0]
        return None if "error" in row else bytes.fromhex(row["payload"])

    def master_key(self, password: bytes) -> bytes:
        return bytes.fromhex(self.ask("master-key", password.hex())[0]["master_key"])


def _argument(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- answers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """What stands in front of an entry's digest."""

    ledger: int
    entry: int
    lac: int
    length: int


@dataclass(frozen=True, slots=True)
class EntryLogRecord:
    """One record that a scan delivered; ``offset`` is that of the size word, ``size`` that of the body."""

    ledger: int
    entry: int | None
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class EntryLogVerdict:
    """A scan, and the bytes per ledger by Java's choice (``metadata``) and by the map; errors are text."""

    records: list[EntryLogRecord]
    error: str | None
    metadata: dict[int, int] | str
    ledgers_map: dict[int, int] | str


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record that a scan delivered: the offset of its length word, the length of its body."""

    version: int
    offset: int
    length: int
    ledger: int | None
    entry: int | None


@dataclass(frozen=True, slots=True)
class JournalVerdict:
    """What a scan delivered, and its end: a position or an error."""

    records: list[JournalRecord]
    position: int | None
    error: str | None


def _metadata(row: Row) -> dict[int, int] | str:
    if "error" in row:
        return str(row["error"])
    return {int(ledger): size for ledger, size in row["ledgers"].items()}


def stable_error(error: str | None) -> str | None:
    """An error without the figures that differ from run to run (netty's count of bytes in use)."""
    return None if error is None else re.sub(r" \(used: \d+, max: \d+\)", "", error)


def copy_directory(source: Path, target: Path) -> Path:
    """A private copy that keeps holes: preallocated journals stay small."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True, timeout=120)
    return target


def sample_directory(name: str, corpora: Callable[[str], Path]) -> Path:
    """A small real directory (``a/l``): the one kept in ``tests/data``, else that of the full corpora."""
    kept = _SAMPLES / name
    return kept if kept.exists() else corpora("samples") / name.split("/")[0] / name
