"""Adds, fences and explicit LACs: who is let in, what waits for what, what is answered when nothing goes."""

from __future__ import annotations

import errno
import struct
import threading
from array import array
from collections.abc import Callable

import pytest

from bkctl import _kernels
from bkctl.codec import journal as journal_codec
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.journal import Journal
from bkctl.engine.read_stage import ReadStage
from bkctl.errors import (
    BadRequestError,
    BookieIOError,
    LedgerFencedError,
    NoEntryError,
    NoLedgerError,
    ReadOnlyBookieError,
    StorageError,
    TooManyRequestsError,
    UnauthorizedError,
)
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs.faulty import FaultRule, FileOperation
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    WAIT_S,
    Answers,
    EngineRig,
    Waiter,
    add_numbered,
    entry_body,
    small_settings,
)
from tests.support.packed_run import packed

#: A run as it comes without compiled kernels, and with them.
AS_RUN = pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])


def journal_bytes(rig: EngineRig) -> bytes:
    return b"".join(content for path, content in sorted(rig.memory.files.items()) if path.endswith(".txn"))


@pytest.fixture
def rig() -> EngineRig:
    made = EngineRig()
    made.start()
    return made


@pytest.fixture(autouse=True)
def _no_threads_left() -> object:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before + 12, "threads of a bookie are left"


def test_a_run_needs_every_ledger_open_under_its_key(rig: EngineRig) -> None:
    with rig:
        answers = Answers()
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 0)], answers))
        rig.add(5, 0)
        assert rig.bookie.writes.add_run(rig.run_of([(5, 1), (5, 2)], answers, "run"))
        answers.wait(1)
        assert answers.good == ["run"]
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 3), (6, 0)], answers))
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 3)], answers, key=OTHER_KEY))
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 3)


@AS_RUN
@pytest.mark.parametrize("directories", [1, 3])
def test_the_adds_of_each_ledger_are_counted(
    directories: int, as_run: Callable[[AddRun], AddRun | RecordRun]
) -> None:
    with EngineRig(small_settings(journals=1, directories=directories)) as rig:
        rig.start()
        for ledger in (5, 6):
            rig.add(ledger, 0)
        answers = Answers()
        for pairs in ([(5, 1), (6, 1), (5, 2), (5, 3)], [(6, 2), (6, 3)]):
            assert rig.bookie.writes.add_run(as_run(rig.run_of(pairs, answers, "run")))
        answers.wait(2)
        with pytest.raises(UnauthorizedError):
            rig.add(5, 9, key=OTHER_KEY)
        found = {each.ledger: (each.entries, each.bytes) for each in rig.bookie.writes.busiest_ledgers(9)}
        size_bytes = len(entry_body(5, 1))
        assert found == {5: (4, 4 * size_bytes), 6: (4, 4 * size_bytes)}
        assert len(rig.bookie.writes.busiest_ledgers(1)) == 1


def test_a_watch_gets_the_highest_lac_of_a_run_that_has_its_ledger_twice() -> None:
    """Two connections add to one ledger, and their adds go to the engine as one run."""
    with EngineRig(small_settings(journals=1, directories=1)) as rig:
        rig.start()
        rig.add(5, 0)
        seen: list[int] = []
        assert rig.bookie.reads.watch(5, -1, lambda lac, _: seen.append(lac)) is not None
        answers = Answers()
        one, other = (packed(rig.run_of([(5, entry)], answers, "run")) for entry in (1, 2))
        both = rig.run_of([(5, 1), (5, 2)], answers, "run")
        run = RecordRun(
            one.grants + other.grants,
            one.lacs + other.lacs,
            one.counts + other.counts,
            one.records + other.records,
            2,
            one.size_bytes + other.size_bytes,
            answers,
            "run",
            lambda: both,
        )
        assert rig.bookie.writes.add_run(run)
        answers.wait(1)
        lacs = array("q", run.lacs)
        assert seen == [max(lacs)]
        assert lacs[0] < lacs[1]


@AS_RUN
@pytest.mark.parametrize("journals", [1, 2])
def test_a_run_over_several_journals_and_directories_is_answered_once(
    journals: int, as_run: Callable[[AddRun], AddRun | RecordRun]
) -> None:
    with EngineRig(small_settings(journals=journals, directories=3)) as rig:
        rig.start()
        for ledger in range(6):
            rig.add(ledger, 0)
        answers = Answers()
        pairs = [(ledger, number) for number in (1, 2, 3) for ledger in range(6)]
        assert rig.bookie.writes.add_run(as_run(rig.run_of(pairs, answers, "all")))
        answers.wait(1)
        assert answers.good == ["all"]
        assert [rig.bookie.reads.read(*pair) for pair in pairs] == [entry_body(*pair) for pair in pairs]
        for ledger in range(6):
            for number in range(journals):
                holder = f"/journal{number}/current"
                content = b"".join(data for path, data in rig.memory.files.items() if path.startswith(holder))
                assert (entry_body(ledger, 3) in content) == (number == ledger % journals)
            for number, storage in enumerate(rig.bookie.storages):
                is_home = number == ledger % 3
                assert (storage.cached(entry_body(ledger, 3)[:16]) is not None) == is_home
                assert storage.has_unflushed(ledger) == is_home


@pytest.mark.skipif(_kernels.IMPL != "native", reason="only the compiled twin gives back what it was given")
def test_entries_of_a_run_that_all_go_to_one_journal_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with EngineRig(small_settings(journals=2, directories=2)) as rig:
        rig.start()
        for ledger in (4, 6, 8):
            rig.add(ledger, 0)
        appended: list[JournalBatch] = []
        original = Journal.append

        def seen(journal: Journal, batch: JournalBatch, *, borrows: bool = False) -> None:
            appended.append(batch)
            assert len(batch.pieces) == 1
            assert batch.pieces[0] is run.records
            original(journal, batch, borrows=borrows)

        monkeypatch.setattr(Journal, "append", seen)
        answers = Answers()
        run = packed(rig.run_of([(4, 1), (6, 1), (8, 1)], answers, "run"))
        assert rig.bookie.writes.add_run(run)
        answers.wait(1)
        assert [(batch.sink, batch.context) for batch in appended] == [(answers, "run")]


@AS_RUN
def test_a_run_of_which_one_journal_fails_is_answered_once_and_not_as_good(
    as_run: Callable[[AddRun], AddRun | RecordRun],
) -> None:
    with EngineRig(small_settings(journals=2, directories=2)) as rig:
        rig.start()
        for ledger in (4, 5):
            rig.add(ledger, 0)
        rig.system.inject(FaultRule("sync", path=lambda path: path.startswith("/journal1/")))
        answers = Answers()
        assert rig.bookie.writes.add_run(as_run(rig.run_of([(4, 1), (5, 1)], answers, "run")))
        answers.wait(1)
        assert [context for context, _ in answers.bad] == ["run"]
        assert not answers.good


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(entry_body(5, 0)[:23], id="too short for a LAC"),
        pytest.param(struct.pack(">qqq", 5, -0x1000, -1), id="reserved entry id"),
        pytest.param(struct.pack(">qqq", 5, -1, -1), id="entry -1"),
        pytest.param(struct.pack(">qqq", -5, 0, -1), id="negative ledger"),
    ],
)
def test_what_would_hurt_a_replay_never_reaches_the_journal(rig: EngineRig, body: bytes) -> None:
    """Java takes entry -0x1000 and cannot start again (protocol.md 9.3)."""
    with rig:
        before = journal_bytes(rig)
        with pytest.raises(BadRequestError):
            rig.bookie.writes.add(SingleAdd(body, KEY, Answers(), None))
        assert journal_bytes(rig) == before


def test_another_master_key_is_refused(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        with pytest.raises(UnauthorizedError):
            rig.add(5, 1, key=OTHER_KEY)
        with pytest.raises(UnauthorizedError):
            rig.bookie.fencing.fence(5, OTHER_KEY, Waiter())
        with pytest.raises(UnauthorizedError):
            rig.bookie.explicit_lacs.write(struct.pack(">qq", 5, 0), OTHER_KEY, Waiter())
        rig.add(5, 1)


def test_an_entry_that_comes_again_is_acknowledged_again_and_the_last_one_counts(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0, payload=b"first")
        rig.add(5, 0, payload=b"second")
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"second")
        rig.bookie.checkpoint()
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"second")


def test_a_fenced_ledger_takes_recovery_adds_alone(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        assert rig.fence(5) is None
        with pytest.raises(LedgerFencedError):
            rig.add(5, 1)
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 1)], Answers()))
        answers = Answers()
        rig.bookie.writes.add(SingleAdd(entry_body(5, 1), KEY, answers, "recovery", recovery=True))
        answers.wait(1)
        assert answers.good == ["recovery"]
        assert rig.fence(5) is None
        assert rig.write_lac(5, 0) is None


def test_the_fence_stands_behind_every_add_that_was_accepted_before_it(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        answers = Answers()
        assert rig.bookie.writes.add_run(rig.run_of([(5, 1), (5, 2)], answers))
        assert rig.fence(5) is None
        # The fence's answer means that the adds before it were answered, or are about to be.
        answers.wait(1)
        content = journal_bytes(rig)
        fence = journal_codec.encode_record(journal_codec.fence_record(5))
        assert content.find(entry_body(5, 2)) < content.find(fence)


def test_a_fence_waits_for_its_record_also_for_those_who_find_it_on_its_way() -> None:
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        held = threading.Event()
        rig.system.inject(FaultRule("sync", path=".txn", latency_s=1.0, error_number=None, count=1))
        first, second = Waiter(), Waiter()
        rig.bookie.fencing.fence(5, KEY, first)
        rig.bookie.fencing.fence(5, KEY, second)
        assert not second.is_done
        assert first.wait() is None
        assert second.wait() is None
        held.set()


def test_a_failed_fsync_answers_nothing_as_done_and_ends_the_bookie(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", path=".txn"))
        answers, fence = Answers(), Waiter()
        rig.bookie.writes.add(SingleAdd(entry_body(5, 1), KEY, answers, 1))
        answers.wait(1)
        assert not answers.good
        rig.wait_failure()
        assert len(rig.failures) == 1
        with pytest.raises((StorageError, ReadOnlyBookieError)):
            rig.add(5, 2)
        with pytest.raises(StorageError):
            rig.bookie.fencing.fence(5, KEY, fence)
        assert rig.bookie.failure is not None


def test_read_only_refuses_adds_and_lacs_and_nothing_else(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        rig.bookie.set_read_only(True)
        assert rig.modes == [True]
        for refused in (SingleAdd(entry_body(5, 1), KEY, Answers(), 1, recovery=True),):
            with pytest.raises(ReadOnlyBookieError):
                rig.bookie.writes.add(refused)
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 1)], Answers()))
        with pytest.raises(ReadOnlyBookieError):
            rig.bookie.explicit_lacs.write(struct.pack(">qq", 5, 0), KEY, Waiter())
        answers = Answers()
        rig.bookie.writes.add(
            SingleAdd(entry_body(5, 1), KEY, answers, "high", recovery=True, high_priority=True)
        )
        answers.wait(1)
        assert rig.fence(5) is None
        assert rig.bookie.reads.read(5, 1) == entry_body(5, 1)
        forced = Waiter()
        rig.bookie.force_ledger(5, forced)
        assert forced.wait() is None
        rig.bookie.set_read_only(False)
        assert rig.modes == [True, False]
        rig.add(6, 0)


def test_deferred_sync_is_answered_before_and_forced_after_the_sync(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", path=".txn", latency_s=0.5, error_number=None))
        answers, forced = Answers(), Waiter()
        rig.bookie.writes.add(SingleAdd(entry_body(5, 1), KEY, answers, "deferred", deferred_sync=True))
        rig.bookie.force_ledger(5, forced)
        answers.wait(1)
        assert answers.good == ["deferred"]
        assert not forced.is_done
        assert forced.wait() is None
        rig.system.heal()


def test_a_recovery_add_is_answered_when_it_is_durable_whatever_it_asks_for(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        rig.system.inject(FaultRule("sync", path=".txn", latency_s=0.5, error_number=None, count=1))
        answers = Answers()
        rig.bookie.writes.add(
            SingleAdd(entry_body(5, 1), KEY, answers, "recovery", recovery=True, deferred_sync=True)
        )
        mark = rig.bookie.journals[0].mark
        # Time for an answer that does not wait for the sync.
        threading.Event().wait(0.1)
        answered, still = list(answers.good), rig.bookie.journals[0].mark == mark
        assert not (answered and still)
        answers.wait(1)
        assert rig.bookie.journals[0].mark > mark


def test_force_needs_no_ledger_and_refuses_negative_ids(rig: EngineRig) -> None:
    with rig:
        forced = Waiter()
        rig.bookie.force_ledger(123_456, forced)
        assert forced.wait() is None
        with pytest.raises(BadRequestError):
            rig.bookie.force_ledger(-1, Waiter())


def full_bookie(*, throttle_ms_max: int = 10_000, **writes: int) -> EngineRig:
    """A bookie whose flush waits, with both write caches full."""
    settings = small_settings(
        write_cache_bytes=16 << 10, writes=HeldAddsSettings(**writes), throttle_ms_max=throttle_ms_max
    )
    rig = EngineRig(settings)
    rig.start()
    rig.add(5, 0)
    rig.system.inject(FaultRule("sync", path=".log", latency_s=1.5, error_number=None, count=1))
    answers = Answers()
    number = 1
    while not rig.bookie.writes.meter.length:
        rig.bookie.writes.add(SingleAdd(entry_body(5, number, bytes(1000)), KEY, answers, number))
        number += 1
    return rig


def test_adds_are_held_while_both_caches_are_full_and_go_on_in_their_order() -> None:
    with full_bookie() as rig:
        answers = Answers()
        assert rig.bookie.writes.add_run(rig.run_of([(5, 1000), (5, 1001)], answers, "run"))
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1000)
        answers.wait(1)
        assert answers.good == ["run"]
        assert rig.bookie.reads.read(5, 1001) == entry_body(5, 1001)
        assert rig.bookie.writes.meter.length == 0


def test_a_full_write_stage_answers_too_many_requests_at_once() -> None:
    with full_bookie(held_entries_max=2) as rig:
        rig.bookie.writes.add(SingleAdd(entry_body(5, 2000), KEY, Answers(), 2000))
        with pytest.raises(TooManyRequestsError):
            rig.bookie.writes.add(SingleAdd(entry_body(5, 2001), KEY, Answers(), 2001))
        answers = Answers()
        assert rig.bookie.writes.add_run(rig.run_of([(5, 3000)] * 3, answers, "run"))
        answers.wait(1)
        assert isinstance(answers.bad[0][1], TooManyRequestsError)


def test_an_add_that_would_be_refused_does_not_wait_behind_those_that_are_held() -> None:
    with full_bookie() as rig:
        answers = Answers()
        with pytest.raises(UnauthorizedError):
            rig.bookie.writes.add(SingleAdd(entry_body(5, 7000), OTHER_KEY, answers, "refused"))
        assert not answers.good
        assert not answers.bad


def test_an_add_held_too_long_is_rejected() -> None:
    with full_bookie(throttle_ms_max=100) as rig:
        answers = Answers()
        rig.bookie.writes.add(SingleAdd(entry_body(5, 4000), KEY, answers, "late"))
        rig.clock.advance(0.2)
        rig.bookie.writes.poke()
        answers.wait(1)
        assert isinstance(answers.bad[0][1], TooManyRequestsError)


def test_a_held_run_of_a_ledger_that_is_fenced_meanwhile_is_given_back() -> None:
    with full_bookie() as rig:
        answers = Answers()
        assert rig.bookie.writes.add_run(rig.run_of([(5, 5000)], answers, "run"))
        assert rig.fence(5) is None
        answers.wait(1)
        assert [run.context for run in answers.again] == ["run"]
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 5000)


@pytest.mark.parametrize("part", ["storages", "journals"])
def test_a_single_add_waits_for_room_in_cache_and_journal(
    part: str, monkeypatch: pytest.MonkeyPatch, rig: EngineRig
) -> None:
    with rig:
        rig.add(5, 0)
        answers = Answers()
        with monkeypatch.context() as patched:
            patched.setattr(getattr(rig.bookie, part)[0], "has_room", lambda *_: False)
            rig.bookie.writes.add(SingleAdd(entry_body(5, 1), KEY, answers, 1))
            assert rig.bookie.writes.meter.length == 1
            with pytest.raises(NoEntryError):
                rig.bookie.reads.read(5, 1)
        rig.bookie.writes.poke()
        answers.wait(1)
        assert answers.good == [1]


@AS_RUN
@pytest.mark.parametrize("part", ["storages", "journals"])
def test_a_run_over_several_parts_waits_as_a_whole_for_the_one_without_room(
    part: str, as_run: Callable[[AddRun], AddRun | RecordRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineRig(small_settings(journals=2, directories=2)) as rig:
        rig.start()
        keys = [(ledger, 1) for ledger in range(4)]
        for ledger, _ in keys:
            rig.add(ledger, 0)
        answers = Answers()
        with monkeypatch.context() as patched:
            for full in getattr(rig.bookie, part)[1:]:
                patched.setattr(full, "has_room", lambda *_: False)
            assert rig.bookie.writes.add_run(as_run(rig.run_of(keys, answers, "run")))
            assert rig.bookie.writes.meter.length == 4
            for ledger, entry in keys:
                with pytest.raises(NoEntryError):
                    rig.bookie.reads.read(ledger, entry)
        rig.bookie.writes.poke()
        answers.wait(1)
        assert answers.good == ["run"]
        for ledger, entry in keys:
            assert rig.bookie.reads.read(ledger, entry) == entry_body(ledger, entry)


def test_a_stop_fails_what_is_held() -> None:
    rig = full_bookie()
    answers = Answers()
    assert rig.bookie.writes.add_run(rig.run_of([(5, 6000)], answers, "run"))
    rig.bookie.writes.stop()
    answers.wait(1)
    assert answers.good or isinstance(answers.bad[0][1], BookieIOError)
    rig.stop()


def logs_with_maps(rig: EngineRig) -> dict[str, bool]:
    """Return of each entry log whether its header names its map of ledgers."""
    logs = {}
    for path, content in rig.memory.files.items():
        if path.endswith(".log"):
            with EntryLogScan(rig.memory, path) as scan:
                assert not scan.head.damage, path
                logs[path] = scan.head.ledgers_map is not None
            assert content
    return logs


@pytest.mark.parametrize("directories", [1, 2])
def test_a_stop_ends_the_current_logs_with_their_maps(directories: int) -> None:
    """A collector of the next run need not read them, and a compaction not the index for them."""
    rig = EngineRig(small_settings(directories=directories))
    rig.start()
    bodies = add_numbered(rig.bookie, [1, 2, 3, 4], range(5))
    rig.bookie.checkpointer.checkpoint()
    assert not any(logs_with_maps(rig).values())
    rig.stop()
    found = logs_with_maps(rig)
    assert (len(found), all(found.values())) == (directories, True)
    with rig.reopen() as again:
        again.start()
        for (ledger, entry), body in bodies.items():
            assert again.bookie.reads.read(ledger, entry) == body


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_log_that_cannot_get_its_map_at_the_stop_costs_nothing(
    operation: FileOperation, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = EngineRig()
    rig.start()
    bodies = add_numbered(rig.bookie, [1], range(5))
    rig.bookie.checkpointer.checkpoint()
    rig.system.inject(FaultRule(operation, path=".log", error_number=number))
    rig.stop()
    assert "map" in caplog.text
    assert not any(logs_with_maps(rig).values())
    with rig.reopen() as again:
        again.start()
        for (ledger, entry), body in bodies.items():
            assert again.bookie.reads.read(ledger, entry) == body


def test_a_watch_is_told_when_the_lac_moves_and_when_the_ledger_is_fenced(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        told: list[tuple[int, int | None]] = []
        done = threading.Event()

        def notify(lac: int, changed_ms: int | None) -> None:
            told.append((lac, changed_ms))
            done.set()

        assert rig.bookie.reads.last_add_confirmed(5) == -1
        assert rig.bookie.reads.watch(5, -2, notify) is None
        assert rig.bookie.reads.watch(5, -1, notify) is not None
        rig.add(5, 1)
        assert done.wait(WAIT_S)
        assert told == [(0, rig.clock.time_ms())]
        done.clear()
        assert rig.bookie.reads.watch(5, 0, notify) is not None
        rig.write_lac(5, 1)
        assert done.wait(WAIT_S)
        assert told[1][0] == 1
        done.clear()
        assert rig.bookie.reads.watch(5, 1, notify) is not None
        rig.fence(5)
        assert done.wait(WAIT_S)
        assert told[2] == (1, None)
        watch = rig.bookie.reads.watch(5, 9, notify)
        assert watch is not None
        assert rig.bookie.reads.unwatch(5, watch)
        assert not rig.bookie.reads.unwatch(5, watch)


def test_a_deleted_ledger_is_unknown_at_once_and_may_be_made_again(rig: EngineRig) -> None:
    with rig:
        rig.add(5, 0)
        rig.bookie.delete_ledger(5)
        with pytest.raises(NoLedgerError):
            rig.bookie.reads.read(5, 0)
        rig.add(5, 1, key=OTHER_KEY)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 0)
        rig.bookie.checkpoint()
        assert rig.bookie.reads.read(5, 1) == entry_body(5, 1)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 0)


def test_a_ledger_made_again_has_no_lac_of_the_deleted_one(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for who has read the newest entry in front of the deletion, and notes its LAC behind it."""
    read = ReadStage.read

    def read_and_made_again(stage: ReadStage, ledger: int, entry: int) -> bytes:
        body = read(stage, ledger, entry)
        rig.bookie.delete_ledger(5)
        rig.add(5, 0, key=OTHER_KEY)
        return body

    with rig:
        rig.add(5, 8)
        rig.bookie.table.forget(5)
        with monkeypatch.context() as patch:
            patch.setattr(ReadStage, "read", read_and_made_again)
            assert rig.bookie.reads.last_add_confirmed(5) == -1
        assert rig.bookie.reads.last_add_confirmed(5) == -1


def test_descriptors_are_bounded_and_a_forgotten_one_loses_nothing() -> None:
    from dataclasses import replace

    with EngineRig(replace(small_settings(), descriptors_max=4)) as rig:
        rig.start()
        for ledger in range(12):
            rig.add(ledger, 0)
            rig.add(ledger, 1)
        assert rig.fence(3) is None
        for ledger in range(12):
            rig.add(ledger + 20, 0)
        assert len(rig.bookie.table) <= 5
        with pytest.raises(LedgerFencedError):
            rig.add(3, 2)
        assert rig.bookie.reads.last_add_confirmed(4) == 0


def test_a_look_at_the_disks_does_not_take_a_failure_back(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread fails the bookie while the mode is being set."""
    bookie = rig.bookie
    plain, failing = bookie.writes.set_read_only, list[threading.Thread]()

    def set_read_only(read_only: bool, *, high_priority_too: bool = False) -> None:
        if not failing:
            failing.append(threading.Thread(target=bookie.fail, args=(StorageError("a disk is gone"),)))
            failing[0].start()
            failing[0].join(0.2)
        plain(read_only, high_priority_too=high_priority_too)

    with rig:
        monkeypatch.setattr(bookie.writes, "set_read_only", set_read_only)
        bookie.disks.check()
        failing[0].join()
        assert (bookie.read_only, bookie.takes_high_priority_adds) == (True, False)
