"""Commands in processes of their own that start at once: forked from one that has imported everything.

The parent (:class:`ForkedCommands`) speaks JSON, a line each way, with a process that runs this module. That
one opens no database itself: threads of RocksDB would not survive a fork.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
#: Far more than a command on a small bookie needs, far less than reading /dev/zero to its end takes.
MEMORY_BYTES_MAX = 6 << 30
FILE_BYTES_MAX = 256 << 20
#: Events of the interpreter whose arguments are names of files, and which of the arguments those are.
_EVENTS = {
    "open": (0,),
    "os.listdir": (0,),
    "os.scandir": (0,),
    "os.rename": (0, 1),
    "os.link": (0, 1),
    "os.symlink": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.chmod": (0,),
    "os.truncate": (0,),
    "sqlite3.connect": (0,),
}


@dataclass(frozen=True)
class Ended:
    """How a command ended: ``code`` is None when it was killed after its time, negative after a signal.

    ``names`` are paths that it opened, listed, made, renamed or removed, where that was asked for.
    """

    code: int | None
    stdout: str
    stderr: str
    names: tuple[str, ...]
    seconds: float


class ForkedCommands:
    """A context manager; the process behind it ends with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.forked_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )

    def __enter__(self) -> ForkedCommands:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def run(self, words: Sequence[str], cwd: str, limit_s: float, *, trace: bool = False) -> Ended:
        """Run one command line; what it needs for an import is imported for those that follow, too."""
        request = {"words": list(words), "cwd": cwd, "limit_s": limit_s, "trace": trace}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return Ended(**{**answer, "names": tuple(answer["names"])})


def _serve() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        sys.stdout.write(json.dumps(_run(**request)) + "\n")
        sys.stdout.flush()


def _run(words: list[str], cwd: str, limit_s: float, trace: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        paths = [os.path.join(folder, name) for name in ("out", "err", "facts")]
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            _child(words, cwd, trace, paths)
        code = _waited(child, limit_s)
        seconds = time.monotonic() - begun
        out, err, facts = (_text(path) for path in paths)
    found = json.loads(facts) if facts else {"names": [], "modules": []}
    for module in found["modules"]:
        if module not in sys.modules:
            import_module(module)
    return {"code": code, "stdout": out, "stderr": err, "names": found["names"], "seconds": seconds}


def _text(path: str) -> str:
    return Path(path).read_text(errors="backslashreplace") if os.path.exists(path) else ""


def _waited(child: int, limit_s: float) -> int | None:
    handle = os.pidfd_open(child)
    try:
        ended = bool(select.select([handle], [], [], limit_s)[0])
    finally:
        os.close(handle)
    # Its workers are in its group.
    if not ended:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _child(words: list[str], cwd: str, trace: bool, paths: list[str]) -> None:
    code = 99
    try:
        os.setsid()
        os.chdir(cwd)
        out, err, facts = paths
        streams = (os.devnull, out, err)
        for number, path in enumerate(streams):
            opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        names: set[str] = set()
        if trace:
            sys.addaudithook(lambda event, given: _note(names, event, given))
        if words[:2] == ["bookie", "start"]:
            threading.Thread(target=_stop_when_started, args=(out,), daemon=True).start()
        from bkctl.cli import run

        code = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
        if trace:
            found = {
                "names": sorted(names),
                "modules": [name for name in sys.modules if name != "__mp_main__"],
            }
            Path(facts).write_text(json.dumps(found))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        raise
    finally:
        os._exit(code & 0xFF)


def _note(names: set[str], event: str, given: tuple[Any, ...]) -> None:
    for number in _EVENTS.get(event, ()):
        if isinstance(given[number], str | bytes):
            names.add(os.path.abspath(os.fsdecode(given[number])))


def _stop_when_started(out: str) -> None:
    """A bookie prints one row when it serves."""
    while not os.path.getsize(out):
        time.sleep(0.02)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _serve()
