"""Auditors as processes that can be stopped and killed: Java's ``AutoRecoveryMain``, and ours.

``bkctl autorecovery start``, our auditor with our worker, is :func:`our_autorecovery`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import ready_process
from tests.support.java_bookkeeper import require_jars
from tests.support.java_cluster import OURS, SHORT_SESSION_MS, THEIRS

_MAIN = "org.apache.bookkeeper.replication.AutoRecoveryMain"
_LAST_WORDS = 3000

#: Our auditor without a worker: the metadata URI, its name and the session's timeout are told.
_OUR_AUDITOR = """
import asyncio, logging, sys
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.auditor import Auditor
logging.basicConfig(level=logging.INFO)
uri, name, timeout_ms = sys.argv[1:]
store = open_metadata_store(uri, MetadataSettings(session_timeout_ms=int(timeout_ms)))
asyncio.run(Auditor(store, name).run())
"""


_OUR_KEYS = {
    "bookieId": "recoverer:3181",
    "httpServerEnabled": "false",
    "auditorPeriodicCheckInterval": "0",
    "lostBookieRecoveryDelay": "0",
    "openLedgerRereplicationGracePeriod": "1000",
    "zkTimeout": str(SHORT_SESSION_MS),
}


@contextlib.contextmanager
def our_autorecovery(folder: Path, metadata_uri: str, bytes_per_s: int) -> Iterator[ready_process.Process]:
    """``bkctl autorecovery start``, which copies no more than so many bytes a second; SIGKILL at the end.

    What it says is added to ``autorecovery.log`` in the folder.
    """
    command = [*ready_process.BKCTL, "autorecovery", "start", "-o", "ndjson"]
    command += ["--metadata-uri", metadata_uri]
    for key, value in (_OUR_KEYS | {"replicationRateByBytes": str(bytes_per_s)}).items():
        command += ["-X", f"{key}={value}"]
    with (folder / "autorecovery.log").open("ab") as log:
        process = ready_process.start(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class AuditorProcess:
    """One process; a context manager that kills it. Java's has a replication worker beside the auditor."""

    def __init__(
        self, kind: str, folder: Path, metadata_uri: str, name: str, conf: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "auditor.log"
        if kind == THEIRS:
            jars = require_jars()
            settings = {
                "metadataServiceUri": metadata_uri,
                "zkTimeout": str(SHORT_SESSION_MS),
                "bookieId": name,
                "httpServerEnabled": "false",
                "enableStatistics": "false",
                "auditorPeriodicCheckInterval": "0",
                **(conf or {}),
            }
            path = folder / "autorecovery.conf"
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = jars.quick_command(_MAIN, "-c", str(path), log_level="INFO")
        else:
            assert kind == OURS
            command = [sys.executable, "-c", _OUR_AUDITOR, metadata_uri, name, str(SHORT_SESSION_MS)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL, also when it does not run any more."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: its session ends, and it does not know."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of that."""
        return self.log()[-_LAST_WORDS:]
