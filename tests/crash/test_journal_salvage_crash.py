"""``journal salvage`` stopped at every step: a whole copy or none, and its losses are in limbo."""

from __future__ import annotations

import random

import pytest

from bkctl.admin.journals.salvage import plan_salvage, salvage_in_place, salvage_journals
from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
from bkctl.admin.repairs.repair_undo import settle_unfinished
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.errors import BkctlError
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import TruthfulBookie

OUT = "/fresh"
DIRECTORIES = [f"{ROOT}/{name}/current" for name in ("l0", "l1", "j")]
STEPS_MAX = 300


@pytest.fixture(scope="module", params=["db", "idx"])
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BookieInMemory:
    made = TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", request.param, 2)
    path = next(
        path for path in reversed(made.journals()) if any(JournalScan(PosixFileSystem(), str(path)).batches())
    )
    with JournalScan(PosixFileSystem(), str(path)) as scan:
        offset = [batch.offset(len(batch) // 2) for batch in scan.batches()][-1]
    data = bytearray(path.read_bytes())
    data[offset : offset + 40] = b"\xee" * 40
    path.write_bytes(data)
    return BookieInMemory.copy_of(made.root)


def salvage(bookie: BookieInMemory) -> set[int]:
    """Salvage the journals; the ledgers that lose something."""
    settle_unfinished(bookie.files, DIRECTORIES)
    found = find_stopped_bookie(bookie.files, [ROOT])
    plan = plan_salvage(bookie.files, found, found.journals[0], DigestBook(), bookie.databases)
    salvage_journals(bookie.files, found, plan, bookie.databases, OUT, ManualClock())
    return {loss.ledger for loss in plan.losses.losses}


def test_a_stop_at_any_step(damaged: BookieInMemory) -> None:
    finished = damaged.again()
    lost = salvage(finished)
    assert lost
    whole = fresh(finished)
    for step in steps(STEPS_MAX):
        stopped = damaged.again(crash_after=step)
        try:
            salvage(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        files = left.disk.files
        journals = {path: data for path, data in files.items() if path.startswith(f"{ROOT}/j/")}
        assert journals.items() <= damaged.disk.files.items()
        if f"{OUT}/current/VERSION" in files:
            assert fresh(left) == whole
        if any(path.startswith(OUT) for path in files):
            assert all((row := left.row(ledger)) is not None and row.limbo for ledger in lost)
        settle_unfinished(left.files, DIRECTORIES)
        assert (left.content, fresh(left)) in ((damaged.content, {}), (finished.content, whole))
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10


def replace(bookie: BookieInMemory) -> set[int]:
    """Salvage the journals in place; the ledgers that lose something."""
    settle_unfinished(bookie.files, DIRECTORIES)
    found = find_stopped_bookie(bookie.files, [ROOT])
    plan = plan_salvage(bookie.files, found, found.journals[0], DigestBook(), bookie.databases)
    salvage_in_place(bookie.files, found, plan, bookie.databases, ManualClock())
    return {loss.ledger for loss in plan.losses.losses}


def journals(bookie: BookieInMemory) -> dict[str, bytes]:
    """The journals that a start would replay."""
    return {path: data for path, data in bookie.disk.files.items() if path.endswith(".txn")}


def test_a_stop_at_any_step_in_place(damaged: BookieInMemory) -> None:
    """A journal is the old one or its whole copy, and then its losses are in limbo."""
    finished = damaged.again()
    lost = replace(finished)
    assert lost
    assert journals(finished) != journals(damaged)
    for step in steps(STEPS_MAX):
        stopped = damaged.again(crash_after=step)
        try:
            replace(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        assert journals(left) in (journals(damaged), journals(finished))
        if journals(left) == journals(finished):
            assert all((row := left.row(ledger)) is not None and row.limbo for ledger in lost)
        settle_unfinished(left.files, DIRECTORIES)
        assert left.content in (damaged.content, finished.content)
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10


@pytest.fixture(
    scope="module",
    params=["a journal is gone", "the mark names no journal", "the mark is beyond", "no journal is left"],
)
def without(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BookieInMemory:
    """A bookie with a journal, or a last mark, that says nothing of what the logs have."""
    root = tmp_path_factory.mktemp("made") / "bookie"
    root.mkdir()
    made = TruthfulBookie.make(root, "db", 2)
    journals = made.journals()
    if request.param == "a journal is gone":
        assert len(journals) > 2
        for path in root.glob("l*/current/lastMark"):
            path.write_bytes(encode_last_mark(LastMark(int(journals[0].stem, 16), 0)))
        journals[1].unlink()
    elif request.param == "no journal is left":
        for path in journals:
            path.unlink()
    else:
        newest, offset = int(journals[-1].stem, 16), 1 << 30
        beyond = LastMark(newest, offset) if "beyond" in request.param else LastMark(newest + 9, 0)
        for path in root.glob("l*/current/lastMark"):
            path.write_bytes(encode_last_mark(beyond))
    return BookieInMemory.copy_of(root)


def test_a_stop_at_any_step_where_the_mark_and_the_journals_do_not_fit(without: BookieInMemory) -> None:
    """Every ledger is in limbo before a journal is made, or the mark changes."""
    finished = without.again()
    lost = replace(finished)
    assert lost
    assert starts(finished) != starts(without)
    assert replace(finished) == set(), "a second one finds nothing to do"
    finished = without.again()
    replace(finished)
    for step in steps(STEPS_MAX):
        stopped = without.again(crash_after=step)
        try:
            replace(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        if starts(left) != starts(without):
            assert all((row := left.row(ledger)) is not None and row.limbo for ledger in lost)
        settle_unfinished(left.files, DIRECTORIES)
        assert left.content in (without.content, finished.content)
        if not stopped.files.crashed:
            break
    else:
        pytest.fail("it never ends")
    assert step > 10


def starts(bookie: BookieInMemory) -> dict[str, bytes]:
    """The files that say what a start replays."""
    files = bookie.disk.files
    return {path: data for path, data in files.items() if path.endswith((".txn", "lastMark"))}


def fresh(bookie: BookieInMemory) -> dict[str, bytes]:
    """The files of the copy."""
    found = {path: data for path, data in bookie.disk.files.items() if path.startswith(OUT)}
    return {path: data for path, data in found.items() if not path.endswith(".tmp")}
