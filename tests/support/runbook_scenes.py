"""The damage of each runbook of docs/runbooks.md, done to the cluster before the commands of the page run."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.metadata.uri import open_metadata_store
from bkctl.storage_kinds import INTERLEAVED_LEDGER_STORAGE
from tests.support.live_writer import live_writer
from tests.support.runbook_cluster import BOOKIES, CLOSED, LEFT_OPEN, PAYLOADS, SICK, RunbookCluster
from tests.support.transcript import DATA

#: The id of a journal that is not there.
_NO_JOURNAL = 0x1B000000000

Prepare = Callable[[RunbookCluster], None]
_OTHERS = tuple(bookie for bookie in BOOKIES if bookie != SICK)


def _all_run(cluster: RunbookCluster) -> None:
    cluster.start()


def _written_to(cluster: RunbookCluster) -> None:
    cluster.start()
    cluster.writers.enter_context(live_writer(cluster.uri, 3, 3, 2))


def _nothing(cluster: RunbookCluster) -> None:
    """Everything is stopped and whole."""


def _no_such_journals(cluster: RunbookCluster) -> None:
    path = cluster.configuration()
    path.write_text(path.read_text().replace("/bookie-3/journal", "/bookie-3/journals"))


def _ledgers_deleted(cluster: RunbookCluster) -> None:
    cluster.start(*_OTHERS)
    with BookKeeperSync(cluster.uri, ClientSettings()) as client:
        client.delete(1)


def _bookie_lost(cluster: RunbookCluster) -> None:
    _closed(cluster)
    cluster.stop(SICK)
    shutil.rmtree(cluster.folder())


def _closed(cluster: RunbookCluster) -> None:
    cluster.start()
    with BookKeeperSync(cluster.uri, ClientSettings()) as client:
        client.recover(LEFT_OPEN)


def _marked(cluster: RunbookCluster) -> None:
    _bookie_lost(cluster)
    with open_metadata_store(cluster.uri) as store:
        for ledger in CLOSED:
            store.underreplication.mark(ledger, [SICK], None)


def _index_lost(cluster: RunbookCluster) -> None:
    for path in (cluster.current() / "locations").glob("*.sst"):
        path.unlink()


def _log_damaged(cluster: RunbookCluster) -> None:
    log = cluster.current() / "0.log"
    data = bytearray(log.read_bytes())
    data[3000:3060] = b"\xee" * 60
    log.write_bytes(data)


def _replica_damaged(cluster: RunbookCluster) -> None:
    _log_damaged(cluster)
    cluster.start()


def _other_name(cluster: RunbookCluster) -> None:
    _closed(cluster)
    cluster.stop(SICK)
    path = cluster.configuration()
    path.write_text(path.read_text().replace("bookieId=bookie-3", "bookieId=bookie-9"))


def _power_cut(cluster: RunbookCluster) -> None:
    """Bookie 3 is stopped and has what a kill leaves: nothing flushed; the others run."""
    cluster.start()
    with BookKeeperSync(cluster.uri, ClientSettings()) as client, client.create(3, 3, 2) as ledger:
        ledger.append_all(PAYLOADS)
    before = cluster.home.parent / "power-cut"
    shutil.copytree(cluster.folder(), before)
    cluster.stop(SICK)
    shutil.rmtree(cluster.folder())
    before.rename(cluster.folder())


def _java_bookie(cluster: RunbookCluster) -> None:
    shutil.rmtree(cluster.folder())
    shutil.copytree(DATA / "demo" / "bookie1", cluster.folder())
    text = (cluster.folder() / "bk_server.conf").read_text()
    java = cluster.here / "java.conf"
    java.write_text(text.replace("/data/bookkeeper/bookie1", str(cluster.folder())))
    shutil.copy(DATA / "demo" / "zk.json", cluster.here / "zk.json")


def _journal_damaged(cluster: RunbookCluster) -> None:
    """A journal that a later one follows, none of which any mark has passed."""
    cluster.start(SICK)
    cluster.stop(SICK)
    journal = cluster.journal()
    mark = encode_last_mark(LastMark(int(journal.stem, 16), 0))
    (cluster.current() / "lastMark").write_bytes(mark)
    data = bytearray(journal.read_bytes())
    data[3036:3060] = b"\xee" * 24
    journal.write_bytes(data)


def _mark_of_no_journal(cluster: RunbookCluster) -> None:
    for path in cluster.folder().glob("*/current/lastMark"):
        path.write_bytes(encode_last_mark(LastMark(_NO_JOURNAL, 512)))


def _salvaged(cluster: RunbookCluster) -> None:
    _closed(cluster)
    cluster.stop(SICK)
    _log_damaged(cluster)
    log = cluster.current() / "0.log"
    cluster.run("entrylog", "salvage", str(log), "--losses", "losses.json", "--yes", exit_code=1)
    cluster.start(SICK)


def _mark_set(cluster: RunbookCluster) -> None:
    words = ("--journal", cluster.oldest_journal, "--offset", "0", "--yes")
    cluster.run("lastmark", "set", str(cluster.folder()), *words)


def _log_damaged_and_closed(cluster: RunbookCluster) -> None:
    _closed(cluster)
    cluster.stop(SICK)
    _log_damaged(cluster)


def _disk_lost(cluster: RunbookCluster) -> None:
    _closed(cluster)
    cluster.stop(SICK)
    cluster.journal().unlink()
    shutil.rmtree(cluster.folder() / "ledgers")
    (cluster.folder() / "ledgers").mkdir()


def _other_storage(cluster: RunbookCluster) -> None:
    path = cluster.configuration()
    path.write_text(f"{path.read_text()}ledgerStorageClass={INTERLEAVED_LEDGER_STORAGE}\n")


#: The sections of the page and what is wrong when they begin.
SCENES: dict[str, Prepare] = {
    "A bookie does not start": _no_such_journals,
    "A disk is full": _ledgers_deleted,
    "A bookie is lost for good": _bookie_lost,
    "A ledger is stuck in recovery": _all_run,
    "Adds are slow": _written_to,
    "The index is corrupt": _index_lost,
    "An entry log is damaged": _log_damaged,
    "An entry log must not be read for now": _nothing,
    "The cookie does not match, or the address has changed": _other_name,
    "Before an upgrade, or a change from Java to bkctl": _java_bookie,
    "Restart a bookie": _all_run,
    "After a power cut": _power_cut,
    "Take a bookie out of service": _closed,
    "Who uses the space": _nothing,
    "Ledgers lack replicas": _marked,
    "Read one entry from the files": _all_run,
    "An entry is damaged on one replica": _replica_damaged,
    "Check a backup": _nothing,
    "Verify everything before a migration": _nothing,
    "Several things are wrong with a bookie": _log_damaged_and_closed,
    "The last mark is wrong": _mark_of_no_journal,
    "A journal is damaged": _journal_damaged,
    "Ledgers are in limbo after a repair": _salvaged,
    "A disk of a bookie is lost": _disk_lost,
    "The ledger storage is to change": _other_storage,
    "A repair is to be undone": _mark_set,
}
