"""Options, hypothesis profiles, and the fixtures that every suite shares."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tests.support import grades
from tests.support.folder_seconds import FolderSeconds

REPOSITORY = Path(__file__).resolve().parent.parent
# Every process that a test starts, from whatever directory, imports this tree and no installed one.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)
#: Where tests take long, most of it waiting: they come first, so that no worker is alone with one in the end.
LONG_FOLDERS = ("tests/spark/", "tests/interop/", "tests/system/", "tests/crash/", "tests/cli/")
#: Whose tests are long and need nothing of each other: any worker takes the next one.
SEPARATE_FOLDERS = ("tests/corpora/", "tests/crash/", "tests/property/", "tests/sim/")

# All stay random: a run that finds something prints the seed and a blob that repeats it.
_slow_machine = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=25, **_slow_machine)
settings.register_profile("thorough", max_examples=60, **_slow_machine)
_soak_examples = int(os.environ.get("SOAK_EXAMPLES") or 20_000)
settings.register_profile("soak", max_examples=_soak_examples, **_slow_machine)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--corpora",
        metavar="DIR",
        default=os.environ.get("BKCTL_CORPORA", str(REPOSITORY.parent / "shared" / "corpora")),
        help="directory of the full corpora (NAME.tar.xz); tests that need them are skipped without it",
    )
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write into tests/transcripts what the commands say now, for review",
    )
    parser.addoption("--folder-seconds", action="store_true", help="end with the seconds of each folder")
    parser.addoption(
        "--thorough",
        action="store_true",
        default=grades.is_thorough(),
        help=f"run all tests, also those marked thorough ({grades.VARIABLE}=1 is the same)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background jobs ignore Ctrl-C, and so would whatever the tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--thorough"):
        # For the counts in modules of tests, which are imported later, and for the workers.
        os.environ[grades.VARIABLE] = "1"
        if not config.getoption("--hypothesis-profile"):
            settings.load_profile("thorough")
    config.pluginmanager.register(grades.Grades(), "grades")
    if config.getoption("--folder-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderSeconds(), "folder-seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        order = {folder: number for number, folder in enumerate(LONG_FOLDERS)}
        items.sort(key=lambda item: order.get("/".join(item.nodeid.split("/")[:2]) + "/", len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` one worker runs all tests of a module, so that its fixtures are made once.

    All tests that need Spark are run by one, so that there is one session. The marker ``xdist_group`` does
    not do it: pytest-xdist hands a group on in a test's id, which pytest 9.2 does not let it change.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadgroup import LoadGroupScheduling

    config.option.loadscopereorder = False

    class ByModule(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "spark"
            if nodeid.startswith(SEPARATE_FOLDERS):
                return nodeid
            return nodeid.partition("::")[0]

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            # Asked after each test: what is done is forgotten, or it would be counted through each time.
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return super()._pending_of(workload)

    return ByModule(config, log)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time zone is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class CliResult(NamedTuple):
    """What one command line did."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run_cli() -> Callable[..., CliResult]:
    """``run_cli("entrylog", "list", path)`` runs the real application in this process."""
    from tests.support.command_line import invoke

    def run(*arguments: object, env: dict[str, str | None] | None = None) -> CliResult:
        result = invoke([str(argument) for argument in arguments], env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return CliResult(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def half_full_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``bkctl doctor`` sees disks of their real size, half of which is free."""
    from bkctl.admin.doctor import doctor

    disk = doctor._disk
    monkeypatch.setattr(
        doctor, "_disk", lambda path: replace(disk(path), free_bytes=disk(path).total_bytes // 2)
    )


@pytest.fixture(scope="session")
def corpora(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """``corpora("db")`` is the unpacked archive ``db.tar.xz``; the test is skipped where there is none.

    Unpacked once per machine, under the directory for temporary files, and never written to by a test.
    """
    source = Path(request.config.getoption("--corpora"))

    def unpacked(name: str) -> Path:
        archive = source / f"{name}.tar.xz"
        if not archive.is_file():
            pytest.skip(f"{archive} is not there (--corpora DIR or BKCTL_CORPORA names another place)")
        with archive.open("rb") as content:
            version = hashlib.file_digest(content, "sha256").hexdigest()[:16]
        cache = Path(tempfile.gettempdir()) / f"bkctl-corpora-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
        target = cache / f"{name}-{version}"
        with _locked(cache / f"{name}.lock"):
            if not target.is_dir():
                _unpack(archive, target)
        return target

    return unpacked


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the system drops the lock of a process that dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _unpack(archive: Path, target: Path) -> None:
    """Whole or not at all: beside the target, then renamed."""
    half = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        with tarfile.open(archive) as bundle:
            bundle.extractall(half, filter="data")
        half.rename(target)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
