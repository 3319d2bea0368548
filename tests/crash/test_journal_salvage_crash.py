"""``journal salvage`` stopped at every step: a copy with a cookie is whole, and its losses are in limbo."""

from __future__ import annotations

import random

import pytest

from bkctl.admin.journals.salvage import copy_journals, plan_salvage, put_in_limbo
from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.errors import BkctlError
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.truthful_bookie import TruthfulBookie

OUT = "/fresh"
STEPS_MAX = 300


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> BookieInMemory:
    root = tmp_path_factory.mktemp("made") / "bookie"
    root.mkdir()
    made = TruthfulBookie.make(root, "db", 2)
    path = next(
        path for path in reversed(made.journals()) if any(JournalScan(PosixFileSystem(), str(path)).batches())
    )
    with JournalScan(PosixFileSystem(), str(path)) as scan:
        offset = [batch.offset(len(batch) // 2) for batch in scan.batches()][-1]
    data = bytearray(path.read_bytes())
    data[offset : offset + 40] = b"\xee" * 40
    path.write_bytes(data)
    return BookieInMemory.copy_of(root)


def salvage(bookie: BookieInMemory) -> set[int]:
    """Salvage the journals; the ledgers that lose something."""
    found = find_stopped_bookie(bookie.files, [ROOT])
    plan = plan_salvage(bookie.files, found, found.journals[0], DigestBook(), bookie.databases)
    put_in_limbo(bookie.files, found, plan, bookie.databases)
    copy_journals(bookie.files, plan, OUT)
    return {loss.ledger for loss in plan.losses.losses}


def test_a_stop_at_any_step(damaged: BookieInMemory) -> None:
    finished = damaged.again()
    lost = salvage(finished)
    assert lost
    whole = {path: data for path, data in finished.disk.files.items() if path.startswith(OUT)}
    source = {path: data for path, data in damaged.disk.files.items() if path.startswith(ROOT)}
    for step in range(STEPS_MAX):
        stopped = damaged.again(crash_after=step)
        try:
            salvage(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        files = left.disk.files
        assert {path: data for path, data in files.items() if path.startswith(ROOT)} == source
        if f"{OUT}/current/VERSION" in files:
            kept = {path: data for path, data in files.items() if path.startswith(OUT)}
            assert {path: data for path, data in kept.items() if not path.endswith(".tmp")} == whole
        if any(path.startswith(OUT) for path in files):
            assert all((row := left.row(ledger)) is not None and row.limbo for ledger in lost)
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10
