"""Four of our bookies with ledgers on them, put back before each runbook to where they were.

They always stand in the same folder, for their cookies name it, and are called ``bookie-1:3181`` and so on
whatever their ports are, so that what a page shows about them holds on every machine.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.config.loader import load
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.any_disk import ANY_DISK
from tests.support.command_line import invoke

BOOKIES = ("bookie-1:3181", "bookie-2:3181", "bookie-3:3181", "bookie-4:3181")
#: The bookie that the page is about: ``bk_server.conf`` is its configuration, ``/data/bookie`` its folder.
SICK = "bookie-3:3181"
PAYLOADS = [b"%d" % number * 40 for number in range(40)]
#: Ledgers with a replica of each entry on bookies 1 to 3, and what Pulsar says that they are of.
CLOSED = (0, 1, 2)
#: A ledger whose writer is gone.
LEFT_OPEN = 3
_TOPIC = (
    ("application", b"pulsar"),
    ("component", b"managed-ledger"),
    ("pulsar/managed-ledger", b"shop/eu/persistent/orders"),
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_JOURNAL = re.compile(r"\b[0-9a-f]{11}\.txn\b")
_PAGE_JOURNALS = ("1a1fe14808f.txn", "1b000000000.txn")
_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "..."),
    (re.compile(r"\d{8}T\d{6}(\.\d+)?Z\d*"), "..."),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?"), "..."),
    (re.compile(r"\b1[67]\d{11}\b"), "..."),
    (re.compile(r"[\d.]+ GiB"), "... GiB"),
    (re.compile(r"\b\d+ s ago|\bnow$", re.MULTILINE), "... ago"),
    (re.compile(r"^seconds( +)[\d.]+", re.MULTILINE), r"seconds\1..."),
)


class RunbookCluster:
    """The cluster in ``home``; ``bookies`` are those that run now."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "c"
        self._kept = folder / "kept"
        #: Where commands run: the files that they name without a folder are here.
        self.here = folder / "here"
        self.bookies: dict[str, EmbeddedBookie] = {}
        #: The oldest journal of bookie 3, which the page calls by a name of its own.
        self.oldest_journal = ""
        #: Writers that a scene has at work.
        self.writers = ExitStack()

    @property
    def uri(self) -> str:
        return f"embedded://{self.home}/metadata.db"

    def folder(self, bookie: str = SICK) -> Path:
        """The folder of a bookie: ``journal`` and ``ledgers``."""
        return self.home / bookie.partition(":")[0]

    def current(self, bookie: str = SICK) -> Path:
        """The directory of logs and index of a bookie."""
        return self.folder(bookie) / "ledgers" / "current"

    def journal(self, bookie: str = SICK) -> Path:
        """The oldest journal of a bookie."""
        return min((self.folder(bookie) / "journal" / "current").glob("*.txn"))

    def configuration(self, bookie: str = SICK) -> Path:
        """The configuration of a bookie."""
        return self.here / ("bk_server.conf" if bookie == SICK else f"{bookie.partition(':')[0]}.conf")

    def make(self) -> None:
        """Make the bookies and their ledgers; they are stopped then."""
        self._write_configurations()
        self.start(*BOOKIES[:3])
        with BookKeeperSync(self.uri, ClientSettings()) as client:
            for number in CLOSED:
                metadata = _TOPIC if number else ()
                with client.create(3, 3, 2, custom_metadata=metadata) as ledger:
                    ledger.append_all(PAYLOADS)
            ledger = client.create(3, 3, 2)
            ledger.append_all(PAYLOADS[:5])
            # The writer goes without closing it.
        self.start(BOOKIES[3])
        self.stop()
        shutil.copytree(self.home, self._kept)

    def reset(self) -> None:
        """Put everything back to where it was: no bookie runs, nothing is damaged."""
        self.stop()
        for folder in (self.home, self.here):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._kept, self.home)
        self._write_configurations()
        self.oldest_journal = self.journal().name

    def start(self, *bookies: str) -> None:
        """Start bookies, all of them without a name; one that runs stays as it is."""
        for bookie in bookies or BOOKIES:
            if bookie in self.bookies:
                continue
            config, _ = load(str(self.configuration(bookie)), {}, {}, working_directory=str(self.here))
            started = EmbeddedBookie(config=config)
            started.start()
            self.bookies[bookie] = started

    def stop(self, *bookies: str) -> None:
        """Stop bookies, all of them without a name."""
        self.writers.close()
        for bookie in bookies or tuple(self.bookies):
            self.bookies.pop(bookie).stop()

    def run(self, *words: str, exit_code: int = 0) -> None:
        """Run a command of bkctl where the page's commands run."""
        done = invoke(words)
        assert done.exit_code == exit_code, done.output

    def words(self) -> Mapping[str, str]:
        """Words of the page and what stands for them now, longer ones first."""
        found = {
            "zk://zk1:2181/ledgers": self.uri,
            "/data/bookie": str(self.folder()),
            "1a1fe14808f.txn": self.oldest_journal,
            **{f"/data/{name.partition(':')[0]}": str(self.folder(name)) for name in BOOKIES if name != SICK},
            **{
                f"http://{name.partition(':')[0]}:8000": f"http://127.0.0.1:{bookie.http_port}"
                for name, bookie in self.bookies.items()
            },
        }
        return dict(sorted(found.items(), key=lambda item: -len(item[0])))

    def here_for(self, line: str) -> str:
        """Return a command line of the page as it is run here."""
        for word, meant in self.words().items():
            line = line.replace(word, meant)
        return line

    def for_page(self, text: str) -> str:
        """Return what a command printed in the words of the page."""
        text = _ANSI.sub("", text)
        # A plan names files by their absolute paths, also those that it was told by a relative one.
        text = _replaced(text, f"{self.here}/bk_server.conf", "/etc/bookkeeper/bk_server.conf")
        for word, meant in sorted(self.words().items(), key=lambda item: -len(item[1])):
            text = _replaced(text, meant, word)
        for name, bookie in self.bookies.items():
            text = _replaced(text, f"127.0.0.1:{bookie.port}", name.replace("bookie-", "10.0.0."))
        text = _JOURNAL.sub(lambda found: found[0] if found[0] in _PAGE_JOURNALS else "....txn", text)
        for pattern, put in _VOLATILE:
            text = pattern.sub(put, text)
        return text

    def _write_configurations(self) -> None:
        self.here.mkdir(parents=True, exist_ok=True)
        for bookie in BOOKIES:
            keys = {
                "bookieId": bookie,
                "bookiePort": "0",
                "allowEphemeralPorts": "true",
                "httpServerEnabled": "true",
                "httpServerPort": "0",
                "journalDirectories": f"{self.folder(bookie)}/journal",
                "ledgerDirectories": f"{self.folder(bookie)}/ledgers",
                "metadataServiceUri": self.uri,
                "journalPreAllocSizeMB": "1",
                "zkTimeout": "1000",
                **ANY_DISK,
            }
            text = "".join(f"{key}={value}\n" for key, value in keys.items())
            self.configuration(bookie).write_text(text)


def _replaced(text: str, old: str, new: str) -> str:
    """Put one word for another; what stands in columns behind it stays where it is."""
    gap = " " * (len(old) - len(new))
    text = re.sub(rf"{re.escape(old)}(\S*)  ", rf"{new}\1{gap}  ", text)
    return text.replace(old, new)


@contextmanager
def runbook_cluster(folder: Path) -> Iterator[RunbookCluster]:
    """The cluster, made below a folder; no bookie is left running."""
    cluster = RunbookCluster(folder)
    try:
        cluster.make()
        yield cluster
    finally:
        cluster.stop()
