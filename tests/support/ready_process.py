"""Processes of ``bkctl`` that start at once: forked from one that has imported what a bookie needs.

A start of a bookie takes 0.6 s of a processor, of which imports are 0.5. :func:`start` stands for
``subprocess.Popen``: the process has a pid, an environment, a working directory and standard streams of its
own, and a signal ends it as it ends any other. Threads and databases come after the fork, as the process
begins with ``bkctl.cli.main`` and ends with the interpreter. Its parent is the process that runs this module,
which lives as long as the tests and reports how each ended.

What a start as such does (imports, closed streams, other interpreters) is tested with ``subprocess``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

BKCTL = [sys.executable, "-m", "bkctl"]
REPOSITORY = Path(__file__).resolve().parents[2]
#: What a bookie and autorecovery load on their way, none of which begins a thread.
_IMPORTS = (
    "bkctl.commands.frame.root",
    "bkctl.commands.bookie.app",
    "bkctl.commands.autorecovery",
    "bkctl.server.life.foreground",
    "bkctl.server.life.bookie_service",
    "bkctl.server.life.autorecovery",
    "bkctl.server.life.foreign_lines",
    "bkctl.server.life.log_lines",
    "bkctl.server.http.admin",
    "bkctl.config.loader",
    "bkctl.codec.proto.bookkeeper_pb2",
    "bkctl.metadata.store",
    "bkctl.metadata.embedded.tree",
    "bkctl.metadata.zookeeper.tree",
    "bkctl.kvstore.rocksdb_store",
    "aiohttp.web",
    "uvloop",
)
#: The largest request: an environment, and words.
_REQUEST_BYTES_MAX = 1 << 20
#: Chosen by the environment when it is imported, so that each choice has a process that has imported it.
_KERNELS = "BKCTL_KERNELS"


class ReadyProcess:
    """As much of ``subprocess.Popen`` as tests of bookies use."""

    def __init__(self, pid: int, reports: IO[bytes], stdout: IO[Any] | None, stderr: IO[Any] | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._reports = reports

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["bkctl"], timeout or 0)
            self.returncode = int(self._reports.readline())
            self._reports.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        # Its parent waits for it only at once with the report, which poll() finds.
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[Any] | ReadyProcess


def start(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    text: bool = False,
) -> Process:
    """Start ``command``, which ``subprocess`` does where it is no plain ``python -m bkctl``."""
    if list(command[:3]) != BKCTL:
        return subprocess.Popen(command, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, text=text)
    assert stdin == subprocess.DEVNULL
    with contextlib.ExitStack() as ours:
        null = ours.enter_context(Path(os.devnull).open("r+b", buffering=0)).fileno()
        pipes: list[IO[Any] | None] = []
        handles = [null]
        for stream in (stdout, stderr):
            if stream == subprocess.PIPE:
                reading, writing = os.pipe()
                ours.callback(os.close, writing)
                pipes.append(os.fdopen(reading, "r" if text else "rb"))
                handles.append(writing)
            else:
                pipes.append(None)
                handles.append(null if isinstance(stream, int) else stream.fileno())
        reading, writing = os.pipe()
        ours.callback(os.close, writing)
        request = {"words": list(command[3:]), "cwd": str(cwd or Path.cwd()), "environment": dict(os.environ)}
        _server(os.environ.get(_KERNELS)).ask(request, [*handles, writing])
    reports = os.fdopen(reading, "rb", buffering=0)
    return ReadyProcess(int(reports.readline()), reports, *pipes)


# --- the process that they are forked from ------------------------------------------------------------------


class _Server:
    """The process that runs this module, behind a socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.support.ready_process", str(theirs.fileno())],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: dict[str, Any], handles: list[int]) -> None:
        """Have a process forked; the last handle is where its pid and its end are reported."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], handles)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(30)


@functools.cache
def _server(kernels: str | None) -> _Server:
    """``kernels`` is what the server's environment says of them."""
    server = _Server()
    atexit.register(server.close)
    return server


def _serve(asked: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns in the new processes, with the request."""
    children: dict[int, tuple[int, int]] = {}  # by the handle of the process: its pid, and where to report
    while True:
        ready, _, _ = select.select([asked, *children], [], [])
        for handle in ready:
            if handle is not asked:
                _report(handle, *children.pop(handle))
                continue
            message, handles, _, _ = socket.recv_fds(asked, _REQUEST_BYTES_MAX, 4)
            if not message:
                os._exit(0)
            *streams, reports = handles
            child = os.fork()
            if not child:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(3, 4096)
                request: dict[str, Any] = json.loads(message)
                return request
            for stream in set(streams):
                os.close(stream)
            children[os.pidfd_open(child)] = child, reports
            os.write(reports, b"%d\n" % child)


def _report(handle: int, child: int, reports: int) -> None:
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(reports, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(handle)
    os.close(reports)


def _become(request: dict[str, Any]) -> None:
    """Be what ``python -m bkctl`` with these words is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    # Those of the parent know whether its own could be sought in.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = os.fdopen(number, "w" if number else "r", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["bkctl", *request["words"]]
    from bkctl.cli import main

    main()


def _run() -> None:
    # Ctrl-C ends the tests; this process ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _IMPORTS:
        import_module(module)
    gc.collect()
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    _run()
