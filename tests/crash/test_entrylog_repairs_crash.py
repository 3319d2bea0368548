"""``entrylog salvage`` and ``quarantine`` stopped at every step: what is proved is served, or is unknown."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.entrylogs.log_place import find_log
from bkctl.admin.entrylogs.quarantine import plan_quarantine, plan_release, quarantine_log, release_log
from bkctl.admin.entrylogs.salvage import plan_salvage, salvage_log
from bkctl.admin.repairs.repair_undo import settle_unfinished
from bkctl.codec.entrylog import log_name
from bkctl.engine.db_storage import entry_locations
from bkctl.errors import BkctlError
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import QUARANTINE_NAME
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.bookie_in_memory import ROOT, BookieInMemory
from tests.support.grades import steps
from tests.support.manual_clock import ManualClock
from tests.support.truthful_bookie import Entry, TruthfulBookie

CURRENT = f"{ROOT}/l0/current"
LOG_ID = 0
STEPS_MAX = 400
Do = Callable[[BookieInMemory], object]


class Made:
    """A bookie with a damaged log; ``bodies`` are what was written, ``lost`` is the entry that is damaged."""

    def __init__(self, root: Path, storage: str) -> None:
        made = TruthfulBookie.make(root, storage, 1)
        self.bodies = made.truth.bodies
        path = made.current() / log_name(LOG_ID)
        whole = BookieInMemory.copy_of(root)
        with EntryLogScan(PosixFileSystem(), str(path)) as scan:
            places = {
                (batch.ledgers[index], batch.entries[index]): batch.offset(index)
                for batch in scan.batches()
                for index in range(len(batch))
            }
        self.named = [entry for entry in places if whole.location(*entry) is not None]
        self.lost = self.named[len(self.named) // 2]
        data = bytearray(path.read_bytes())
        offset = places[self.lost]
        data[offset : offset + 40] = b"\xee" * 40
        path.write_bytes(data)
        self.bookie = BookieInMemory.copy_of(root)


@pytest.fixture(scope="module", params=["db", "idx"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("made") / "bookie"
    root.mkdir()
    return Made(root, request.param)


def salvage(bookie: BookieInMemory) -> object:
    settle_unfinished(bookie.files, [CURRENT])
    place, book = find_log(bookie.files, [CURRENT], LOG_ID), DigestBook()
    plan = plan_salvage(bookie.files, place, book, bookie.databases)
    salvage_log(bookie.files, ManualClock(), plan, book, bookie.databases)
    return plan


def quarantine(bookie: BookieInMemory) -> None:
    settle_unfinished(bookie.files, [CURRENT])
    place = find_log(bookie.files, [CURRENT], LOG_ID, in_quarantine=False)
    quarantine_log(bookie.files, ManualClock(), plan_quarantine(bookie.files, place), "bad sectors")


def release(bookie: BookieInMemory) -> None:
    settle_unfinished(bookie.files, [CURRENT])
    place = find_log(bookie.files, [CURRENT], LOG_ID, in_quarantine=True)
    release_log(bookie.files, ManualClock(), plan_release(bookie.files, place))


def record(bookie: BookieInMemory, entry: Entry, *, anywhere: bool) -> bytes | None:
    """What the index finds of an entry; ``anywhere``: also in quarantine. None: the log is not there."""
    place = bookie.location(*entry)
    assert place is not None, entry
    files = bookie.disk.files
    folders = (CURRENT, f"{CURRENT}/{QUARANTINE_NAME}") if anywhere else (CURRENT,)
    log = next(
        (files[path] for each in folders if (path := f"{each}/{log_name(place.log_id)}") in files), None
    )
    if log is None:
        return None
    size = int.from_bytes(log[place.offset - 4 : place.offset], "big", signed=True)
    return log[place.offset : place.offset + max(size, 0)]


@pytest.mark.parametrize("in_quarantine", [False, True])
def test_a_salvage_that_is_stopped_serves_what_is_proved(made: Made, in_quarantine: bool) -> None:
    before = made.bookie.again()
    if in_quarantine:
        quarantine(before)
    finished = before.again()
    salvage(finished)
    for entry in made.named:
        kept = record(finished, entry, anywhere=False)
        assert kept == (None if entry == made.lost else made.bodies[entry])
    row = finished.row(made.lost[0])
    assert row is not None
    assert row.limbo

    def holds(left: BookieInMemory) -> None:
        for entry in made.named:
            if entry != made.lost:
                assert record(left, entry, anywhere=in_quarantine) == made.bodies[entry]
        if not any(path == f"{CURRENT}/{log_name(LOG_ID)}" for path in left.disk.files) and not in_quarantine:
            row = left.row(made.lost[0])
            assert row is not None
            assert row.limbo

    stopped_at(before, finished, salvage, holds, steps(STEPS_MAX))


def test_a_salvage_stopped_between_two_batches_of_rows_serves_what_is_proved(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows move in bounded batches: some name the copy already while others still name the source.
    monkeypatch.setattr(entry_locations, "OPERATIONS_MAX", len(made.named) // 5)
    before = made.bookie.again()
    finished = before.again()
    salvage(finished)
    proved = [entry for entry in made.named if entry != made.lost]
    moved: set[int] = set()

    def holds(left: BookieInMemory) -> None:
        for entry in proved:
            assert record(left, entry, anywhere=False) == made.bodies[entry]
        places = [left.location(*entry) for entry in proved]
        count = sum(place is not None and place.log_id != LOG_ID for place in places)
        assert count == len(proved) or f"{CURRENT}/{log_name(LOG_ID)}" in left.disk.files
        moved.add(count)

    stopped_at(before, finished, salvage, holds, range(STEPS_MAX))
    assert len(moved - {0, len(proved)}) >= 3


@pytest.mark.parametrize("verb", [quarantine, release])
def test_a_move_that_is_stopped_loses_nothing(made: Made, verb: Do) -> None:
    before = made.bookie.again()
    if verb is release:
        quarantine(before)
    finished = before.again()
    verb(finished)

    def holds(left: BookieInMemory) -> None:
        for entry in made.named:
            if entry != made.lost:
                assert record(left, entry, anywhere=True) == made.bodies[entry]

    stopped_at(before, finished, verb, holds, steps(STEPS_MAX))


def stopped_at(
    before: BookieInMemory,
    finished: BookieInMemory,
    do: Do,
    holds: Callable[[BookieInMemory], None],
    at: range,
) -> None:
    """Stop it at steps; what is left holds, is taken back or finished, and can be done again."""
    for step in at:
        stopped = before.again(crash_after=step)
        try:
            do(stopped)
        except BkctlError:
            assert stopped.files.crashed
        left = stopped.after_power_cut(random.Random(step))
        holds(left)
        settle_unfinished(left.files, [CURRENT])
        assert left.content in (before.content, finished.content)
        if not stopped.files.crashed:
            break
        if left.content == before.content and step % 5 == 0:
            do(left)
            assert left.content == finished.content
    else:
        pytest.fail("it never ends")
    assert step > 10


@pytest.mark.parametrize("noted", [b"", b"0\n", b"30\n"])
def test_a_log_that_goes_away_counts_and_hides_no_later_one(made: Made, noted: bytes) -> None:
    """A Java bookie believes the file, sees no quarantine, and would come to 2f again."""
    before = made.bookie.again()
    content = {
        f"{CURRENT}/lastId": noted,
        f"{CURRENT}/30.log": before.disk.files[f"{CURRENT}/{log_name(LOG_ID)}"],
        f"{CURRENT}/{QUARANTINE_NAME}/2f.log": b"",
    }
    bookie = BookieInMemory(MemoryFileSystem(before.disk.files | content))
    quarantine(bookie)
    assert bookie.disk.files[f"{CURRENT}/lastId"] == b"30\n"
