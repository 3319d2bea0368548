"""Bookies as processes that can be killed, Java's and ours, registered in a ZooKeeper.

A :class:`BookieProcess` runs what a released bookie runs (``org.apache.bookkeeper.server.Main``,
DbLedgerStorage) or ``bkctl bookie start``, on the very same configuration file, so that directories go from
one to the other and back. :func:`new_cluster` makes the metadata that bookies of both kinds share,
:func:`our_bookies` bookies inside this process.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from bkctl.codec.bookie_service_info import decode_bookie_service_info
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import NodeMissingError
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support import ready_process
from tests.support.any_disk import ANY_DISK
from tests.support.java_bookkeeper import require_jars
from tests.support.ports import is_listening
from tests.support.zookeeper import ZooKeeperServer

OURS, THEIRS = "ours", "theirs"

_MAIN = "org.apache.bookkeeper.server.Main"
_START_SECONDS = 120
_STOP_SECONDS = 60
_LAST_WORDS = 3000

#: Of processes whose session's end is waited for.
SHORT_SESSION_MS = 2_000
#: The longest that the server grants: on a busy machine a bookie may get no processor for a second or two,
#: and one without a session is no bookie that a client can choose.
SESSION_TIMEOUT_MS = 10_000
SETTINGS = MetadataSettings(session_timeout_ms=SESSION_TIMEOUT_MS)

OUR_CONF = {
    **ANY_DISK,
    "minUsableSizeForHighPriorityWrites": "0",
    "zkTimeout": str(SESSION_TIMEOUT_MS),
}

#: As above, with small caches, for bookies of both kinds.
PROCESS_CONF = {
    **OUR_CONF,
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "enableStatistics": "false",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": str(32 << 20),
    "minUsableSizeForEntryLogCreation": "0",
    "minUsableSizeForIndexFileCreation": "0",
    "journalPreAllocSizeMB": "4",
}


def new_cluster(server: ZooKeeperServer) -> str:
    """The metadata URI of a new, initialised cluster."""
    uri = f"zk+hierarchical://{server.address}/ledgers-{uuid.uuid4().hex[:12]}"
    with contextlib.closing(open_metadata_store(uri, SETTINGS)) as store:
        store.layout.initialise_cluster()
    return uri


def end_registration(metadata_uri: str, bookie: str) -> None:
    """Remove the registration of a bookie that was killed, as the end of its session would."""
    with contextlib.closing(open_metadata_store(metadata_uri, SETTINGS)) as store:
        assert isinstance(store, TreeMetadataStore)
        for folder in ("available", "available/readonly"):
            with contextlib.suppress(NodeMissingError):
                store._tree.delete(f"{store.root}/{folder}/{bookie}")


@contextlib.contextmanager
def our_bookies(
    folder: Path, metadata_uri: str, count: int, **overrides: str
) -> Iterator[dict[str, EmbeddedBookie]]:
    """Bookies of ours in this process, by their ids; each may be stopped and started in between.

    They have ports of their own, so that the usual id (``127.0.0.1:port``) outlives a restart.
    """
    bookies: dict[str, EmbeddedBookie] = {}
    with contextlib.ExitStack() as stack:
        for number in range(count):
            bookie = EmbeddedBookie(
                folder / f"bookie{number}",
                metadata_uri=metadata_uri,
                overrides={**OUR_CONF, "bookiePort": str(free_port()), **overrides},
            )
            stack.callback(bookie.stop)
            bookie.start()
            bookies[bookie.bookie_id] = bookie
        yield bookies


class BookieProcess:
    """One bookie, everything of it below ``folder``; a context manager that kills it."""

    def __init__(
        self,
        folder: Path,
        metadata_uri: str,
        bookie_id: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """``bookie_id`` None is the address and port; ``conf`` may name more directories below ``folder``."""
        port = free_port()
        self.bookie_id = bookie_id or f"127.0.0.1:{port}"
        self.folder = folder
        self.metadata_uri = metadata_uri
        self._port = port
        self._process: ready_process.Process | None = None
        self._conf = {
            **PROCESS_CONF,
            "metadataServiceUri": metadata_uri,
            "bookiePort": str(port),
            "journalDirectories": str(folder / "journal"),
            "ledgerDirectories": str(folder / "ledgers"),
            **({} if bookie_id is None else {"bookieId": bookie_id}),
            **(conf or {}),
        }

    def __enter__(self) -> BookieProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, kind: str, **conf: str) -> None:
        """Start Java's (``THEIRS``) or ours and wait until it is registered and its ports are open.

        ``conf`` counts for this start. Fails with the bookie's last words.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_conf(**conf)
        command = self.command(kind)
        with (self.folder / "bookie.log").open("ab") as log:
            log.write(f"--- {kind}\n".encode())
            log.flush()
            self._process = ready_process.start(command, stdout=log, stderr=log)
        try:
            with contextlib.closing(open_metadata_store(self.metadata_uri, SETTINGS)) as store:
                self._wait(store, {**self._conf, **conf})
        except BaseException:
            self.kill()
            raise

    def command(self, kind: str) -> list[str]:
        """What starts a bookie of this kind."""
        if kind == THEIRS:
            words = (_MAIN, "--conf", str(self.conf_path))
            return require_jars().quick_command(*words, log_level="WARN")
        return [*ready_process.BKCTL, "bookie", "start", "--conf", str(self.conf_path)]

    def write_conf(self, **conf: str) -> None:
        """Write the configuration file."""
        keys = {**self._conf, **conf}
        self.conf_path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    @property
    def conf_path(self) -> Path:
        """The configuration file, which a start writes."""
        return self.folder / "bk_server.conf"

    def _wait(self, store: MetadataStore, conf: Mapping[str, str]) -> None:
        until = time.monotonic() + _START_SECONDS
        assert self._process is not None
        ports = [self._port]
        if conf["httpServerEnabled"] == "true":
            # Java's opens it behind the registration.
            ports.append(int(conf["httpServerPort"]))
        while not (all(map(is_listening, ports)) and _registered_at(store, self.bookie_id, self._port)):
            failed = self._process.poll() is not None or time.monotonic() > until
            assert not failed, f"the bookie did not start: {self.last_words()}"
            time.sleep(0.05)

    def wait_for_a_log(self, seconds: float = 20) -> None:
        """Until something was flushed to an entry log."""
        until = time.monotonic() + seconds
        while not any(path.stat().st_size for path in self.folder.rglob("current/*.log")):
            assert time.monotonic() < until, f"no entry log after {seconds:.0f} s: {self.last_words()}"
            time.sleep(0.02)

    def stop(self) -> None:
        """An orderly end (SIGTERM); fails when it does not come."""
        process, self._process = self._process, None
        assert process is not None, "the bookie does not run"
        process.terminate()
        try:
            code = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the bookie did not stop: {self.last_words()}") from None
        assert code in (0, 143), f"the bookie ended with {code}: {self.last_words()}"  # Java's says 143

    def kill(self) -> None:
        """SIGKILL, also when it does not run; its registration is gone then."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            end_registration(self.metadata_uri, self.bookie_id)

    def pause(self) -> None:
        """SIGSTOP: it answers nothing, and what is sent to it waits in its sockets."""
        assert self._process is not None, "the bookie does not run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "the bookie does not run"
        self._process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of the log."""
        log = self.folder / "bookie.log"
        return log.read_text(errors="replace")[-_LAST_WORDS:] if log.exists() else "without a word"


def _registered_at(store: MetadataStore, bookie: str, port: int) -> bool:
    found = store.registration.registration(bookie)
    if found is None:
        return False
    endpoints = decode_bookie_service_info(found.service_info).endpoints
    return any(endpoint.port == port for endpoint in endpoints)


#: Ports below those of outgoing connections, one of which might take a port before its server does.
_PORTS = range(10_000, 32_000)
#: A random start for each process, so that two that run at the same time hardly ever choose the same.
_next_port = itertools.count(random.SystemRandom().randrange(len(_PORTS)))


def free_port() -> int:
    """Return a port of the loopback that nobody has, and that this process has not returned before."""
    for number in itertools.islice(_next_port, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port of the loopback is taken")
