"""Errors that nobody foresaw, on the thread that writes a group and answers it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine import run_appender, write_stage
from bkctl.engine.add_run import AddRun, RecordRun
from bkctl.engine.journal import force_write
from bkctl.engine.journal.force_write import ForceWriteStage
from bkctl.engine.journal.journal import Journal
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.errors import BkctlError
from tests.support.engine_rig import Answers, EngineRig, small_settings
from tests.support.journal_rig import RecordingSink, batch_of, body, memory, running
from tests.support.packed_run import packed
from tests.support.waiting import until


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError("once")


@contextmanager
def lending(journals: int) -> Iterator[tuple[EngineRig, AddRun, Answers]]:
    """A bookie that lends its turns, and a run with an entry for each journal."""
    settings = JournalSettings(preallocation_bytes=0, flush_when_queue_empty=True)
    with EngineRig(small_settings(journals=journals, journal=settings)) as rig:
        rig.start()
        ledgers = range(4, 4 + journals)
        for ledger in ledgers:
            rig.add(ledger, 0)
        for journal in rig.bookie.journals:
            journal._force_write.sync_s = 0.0
            until(journal._queue._is_at_rest)
        answers = Answers()
        yield rig, rig.run_of([(ledger, 1) for ledger in ledgers], answers, "run"), answers


def assert_goes_on(rig: EngineRig) -> None:
    """Adds of all journals are answered, of other threads too, and the bookie stops."""
    for journal in rig.bookie.journals:
        assert journal._queue._lent_to is None
        rig.add(4 + journal.index, 2)
    rig.bookie.stop()
    assert not rig.failures


@pytest.mark.parametrize(
    ("owner", "part"),
    [
        (Journal, "write_lent"),
        (Journal, "_write_lent"),
        (Journal, "return_turn"),
        (JournalQueue, "give_back"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
@pytest.mark.parametrize("as_run", [lambda run: run, packed], ids=["lists", "packed"])
def test_a_turn_that_an_error_kept_from_being_used_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
    as_run: Callable[[AddRun], AddRun | RecordRun],
    owner: type[object],
    part: str,
) -> None:
    """Else the journal's own thread would wait for it, and the bookie's stop for that."""
    works = getattr(owner, part)
    calls: list[str] = []

    def once(*arguments: object) -> object:
        calls.append(part)
        if len(calls) == 1:
            raise MemoryError("once")
        return works(*arguments)

    with lending(1) as (rig, run, answers):
        monkeypatch.setattr(owner, part, once)
        assert rig.bookie.writes.add_run(as_run(run))
        assert calls
        answers.wait(1)
        assert (answers.good, answers.bad) == (["run"], [])
        assert_goes_on(rig)


def test_a_turn_is_given_back_where_the_rest_of_the_run_cannot_be_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor that be noted: the run is the caller's then."""
    with lending(2) as (rig, run, answers):
        with monkeypatch.context() as patch:
            patch.setattr(rig.bookie.journals[1], "append", no_memory)
            patch.setattr(run_appender, "logged_failure", no_memory)
            with pytest.raises(MemoryError):
                rig.bookie.writes.add_run(run)
        assert (answers.good, answers.bad) == ([], [])
        assert_goes_on(rig)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_turn_is_given_back_by_a_write_stage_that_ends(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Also where it can give no answer, twice in a row: the bookie learns of it, and its stop ends."""
    calls: list[str] = []
    works = write_stage.call_all

    def call_all(what: str, actions: Iterable[Callable[[], object]]) -> None:
        actions = list(actions)
        if len(calls) < failing and threading.current_thread().name == "bookie-write-stage":
            calls.append(what)
            raise MemoryError(f"time {len(calls)}")
        works(what, actions)

    with lending(1) as (rig, run, answers):
        writes, (journal,) = rig.bookie.writes, rig.bookie.journals
        monkeypatch.setattr(write_stage, "call_all", call_all)
        with writes._lock:
            assert writes._hold(writes._held_run(run))
        rig.wait_failure()
        until(lambda: journal._queue._lent_to is None)
        answers.wait(1)
        assert (len(calls), answers.good, answers.bad) == (failing, ["run"], [])


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize(
    ("owner", "part"),
    [(ForceWriteStage, "_failed_before"), (JournalQueue, "forced"), (force_write, "Outcome")],
    ids=["before the sync", "counted", "behind the sync"],
)
def test_a_group_that_its_writer_cannot_answer_is_answered_as_failed(
    monkeypatch: pytest.MonkeyPatch, owner: object, part: str, lent: bool
) -> None:
    """It is synced by the thread that writes it, and in no other one's hands."""
    sink = RecordingSink()
    failures: list[BkctlError] = []
    settings = JournalSettings(preallocation_bytes=0, flush_when_queue_empty=lent)
    with running(memory(), settings, on_failure=failures.append) as journal:
        journal._force_write.sync_s = 0.0
        until(journal._queue._is_at_rest)
        works = getattr(owner, part)

        def once(*arguments: Any, **named: Any) -> object:
            monkeypatch.setattr(owner, part, works)
            raise MemoryError("once")

        monkeypatch.setattr(owner, part, once)
        journal.append(batch_of([body(1, 0)], sink, "group"), borrows=lent)
        assert journal._queue.is_lent_here == lent
        journal.write_lent()
        sink.wait_for(1)
        until(lambda: bool(failures))
        journal.stop()
        assert sink.failed_contexts == ["group"]
