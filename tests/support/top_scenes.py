"""What ``bkctl top`` looks at: a loaded bookie of ours, a Java bookie, a cluster of three processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.bookie_process import BookieProcess
from tests.support.java_cluster import THEIRS, free_port, new_cluster
from tests.support.java_cluster import BookieProcess as RegisteredBookie
from tests.support.java_http import http_conf
from tests.support.slow_bookie import Load
from tests.support.tmux_terminal import TmuxTerminal
from tests.support.zookeeper import ZooKeeperServer

TOP = (sys.executable, "-m", "bkctl", "top")
REPOSITORY = Path(__file__).resolve().parents[2]
#: Longer than anybody looks; the load ends with the scene.
LOAD_S = "600"

#: Caches that fill and are flushed within seconds.
LIVELY = {
    "httpServerEnabled": "true",
    "httpServerPort": "0",
    "journalMaxSizeMB": "64",
    "journalPreAllocSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "logSizeLimit": str(32 << 20),
    "flushInterval": "5000",
    "zkTimeout": "2000",
}


@dataclass(slots=True)
class Scene:
    """Bookies under load, and the words that follow ``bkctl top`` to see them."""

    words: list[str]
    bookies: dict[str, BookieProcess] = field(default_factory=dict)

    def top(
        self,
        size: tuple[int, int],
        *words: str,
        environment: Mapping[str, str] | None = None,
    ) -> TmuxTerminal:
        """``bkctl top`` on a terminal of this size."""
        return TmuxTerminal([*TOP, *self.words, *words], size, folder=REPOSITORY, environment=environment)


@contextlib.contextmanager
def loaded_bookie(folder: Path, rate: int = 2_000) -> Iterator[Scene]:
    """A bookie of ours that takes ``rate`` adds a second, and half as many reads of what it took before."""
    with BookieProcess(folder, {**LIVELY, "bookieId": "bookie-1"}) as bookie:
        row = bookie.start()
        with _adding(str(row["port"]), rate), _reading(str(row["port"]), rate // 2):
            yield Scene(["--url", f"http://127.0.0.1:{row['http_port']}"], {"bookie-1": bookie})


@contextlib.contextmanager
def cluster_of_three(folder: Path, rate: int = 600) -> Iterator[Scene]:
    """Three bookies of ours, registered in one metadata store; each has less to do than the one before."""
    uri = f"embedded://{folder}/metadata.db"
    bookies: dict[str, BookieProcess] = {}
    with contextlib.ExitStack() as stack:
        for number in (1, 2, 3):
            name = f"bookie-{number}"
            home = folder / name
            home.mkdir()
            bookie = BookieProcess(home, {**LIVELY, "bookieId": name, "metadataServiceUri": uri})
            stack.enter_context(bookie)
            row = bookie.start()
            bookies[name] = bookie
            stack.enter_context(_adding(str(row["port"]), rate // number))
        yield Scene(["--metadata", uri], bookies)


@contextlib.contextmanager
def java_bookie(folder: Path, server: ZooKeeperServer, rate: int = 600) -> Iterator[Scene]:
    """A released Java bookie that takes adds, asked at its HTTP port."""
    port = free_port()
    conf = {**http_conf(port), "prometheusStatsLatencyRolloverSeconds": "2"}
    with RegisteredBookie(folder / "java", new_cluster(server), conf=conf) as bookie:
        bookie.start(THEIRS)
        with _adding(bookie.bookie_id.rpartition(":")[2], rate):
            yield Scene(["--url", f"http://127.0.0.1:{port}"])


def _reading(port: str, rate: int) -> Load:
    """Reads of ledgers that are written first, within a second or two."""
    address = f"127.0.0.1:{port}"
    which = ("--connections", "2", "--first-ledger", "400000000")
    with Load("add", address, *which, "--window", "64", "--seconds", "1") as adds:
        entries = adds.report()["entries_per_ledger"]
    return Load("read", address, *which, "--entries", str(entries), "--rate", str(rate), "--seconds", LOAD_S)


def _adding(port: str, rate: int) -> Load:
    return Load(
        "add",
        f"127.0.0.1:{port}",
        *("--connections", "2", "--window", "64", "--rate", str(rate), "--seconds", LOAD_S),
    )
