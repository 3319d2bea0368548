"""Runs of reads that wait: read together from memory, and side by side from a disk."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkctl.clock import SystemClock
from bkctl.errors import TooManyRequestsError
from bkctl.server.wire import read_queue
from bkctl.server.wire.answers import Answer
from bkctl.server.wire.read_pace import ReadPace
from bkctl.server.wire.read_queue import ReadQueue
from bkctl.server.wire.stage_pool import StagePool
from tests.support.journal_rig import Gate
from tests.support.storage_rig import entry_of, key_of
from tests.support.waiting import WAIT_S, until

THREADS = 5


class Run:
    """A run of two entries of a ledger.

    ``got`` is what it was answered with, None where it read by itself.
    """

    def __init__(self, ledger: int, read: Callable[[], object] = lambda: None) -> None:
        self.ledger = ledger
        self.requests = 2
        self.got: list[bytes | None] = []
        self._read = read

    def next_keys(self) -> bytes:
        return key_of(self.ledger, 0) + key_of(self.ledger, 1)

    def answer(self, records: bytes, count: int, worked_s: float) -> Answer | None:
        answer: Any = (self, records, count)
        return answer  # type: ignore[no-any-return]

    def read(self) -> None:
        self._read()
        self.got.append(None)


class Rig:
    """A queue over reads of this process; ``calls`` are the keys of each call that read several runs."""

    def __init__(self, threads: int = THREADS, requests_max: int = 100) -> None:
        self.stage = StagePool("read", SystemClock(), threads=threads, requests_max=requests_max)
        self.loop = asyncio.new_event_loop()
        self.pace = ReadPace()
        for _ in range(50):
            self.pace.note(100, 0.0001, 10_000)
        self.calls: list[bytes] = []
        self.readable = 1000
        self.queue = ReadQueue(
            self,  # type: ignore[arg-type]
            self.stage,
            self.pace,
            self,  # type: ignore[arg-type]
            self.loop,
            time.monotonic,
            threads=threads,
        )

    def read_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        self.calls.append(keys)
        ids = [keys[at : at + 16] for at in range(0, len(keys), 16)][: self.readable]
        bodies = [key + entry_of(0, 0, size_bytes=10 + key[15])[16:] for key in ids]
        return b"".join([len(body).to_bytes(4, "big") + body for body in bodies]), len(bodies)

    def post(self, answers: list[Any]) -> None:
        for run, records, _ in answers:
            run.got.append(records)

    def look(self, seconds: float = 0.05) -> None:
        """Run the loop's timers for some time."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def until_idle(self) -> None:
        until(lambda: self.stage.meter.length == 0 and self.queue._working == 0, "reads are in progress")


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.queue.stop()
    rig.stage.stop()
    rig.loop.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the blocks that were read from the disk so far, for tests to change."""
    blocks = [0]
    monkeypatch.setattr(read_queue, "_blocks_read", lambda: blocks[0])
    return blocks


@pytest.mark.parametrize("readable", [1000, 3, 0])
def test_runs_that_wait_are_read_in_one_step(rig: Rig, disk: list[int], readable: int) -> None:
    gate = Gate()
    rig.readable = readable
    first = Run(1, lambda: gate(1))
    rig.queue.add(first)
    gate.await_reached()
    others = [Run(ledger) for ledger in (5, 3, 4)]
    for run in others:
        rig.queue.add(run)
    assert rig.stage.meter.length == 8
    gate.opened.set()
    rig.until_idle()
    assert rig.calls == [b"".join([run.next_keys() for run in others])]
    whole = {run.ledger: rig.read_records(run.next_keys(), 0) for run in others}
    if readable == 1000:
        assert [run.got for run in others] == [[(whole[run.ledger] or (b"", 0))[0]] for run in others]
    elif readable == 3:
        (one,) = others[1].got
        assert one is not None
        assert one[4:20] == key_of(3, 0)
        assert others[2].got == [None], "it reads by itself"
    else:
        assert [run.got for run in others] == [[None]] * 3
    assert (rig.stage.meter.done, rig.stage.meter.rejected) == (8, 0)


def test_a_step_is_no_longer_than_the_pace_allows(rig: Rig, disk: list[int]) -> None:
    gate = Gate()
    for _ in range(50):
        rig.pace.note(10, 0.005, 1000)
    assert rig.pace.together_max(1 << 20) in (3, 4)
    rig.queue.add(Run(0, lambda: gate(1)))
    gate.await_reached()
    runs = [Run(ledger) for ledger in range(1, 6)]
    for run in runs:
        rig.queue.add(run)
    gate.opened.set()
    rig.until_idle()
    assert max([len(keys) // 16 for keys in rig.calls], default=2) <= 4
    assert all(len(run.got) == 1 for run in runs)


@pytest.mark.parametrize("what", ["read_records", "post"])
def test_what_failed_together_is_read_run_by_run(
    rig: Rig, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    monkeypatch.setattr(rig, what, lambda *_: 1 // 0)
    rig.queue.add(Run(0, lambda: gate(1)))
    gate.await_reached()
    runs = [Run(ledger) for ledger in (1, 2)]
    for run in runs:
        rig.queue.add(run)
    gate.opened.set()
    rig.until_idle()
    assert [run.got for run in runs] == [[None]] * 2
    assert "reading several runs together" in caplog.text


def test_one_thread_reads_from_memory(rig: Rig, disk: list[int]) -> None:
    gates = [Gate() for _ in range(2)]
    rig.queue.add(Run(0, lambda: gates[0](1)))
    gates[0].await_reached()
    rig.queue.add(Run(1, lambda: gates[1](1)))
    assert not gates[1].reached.wait(0.05)
    gates[1].opened.set()
    gates[0].opened.set()
    rig.until_idle()


def test_a_batch_from_the_disk_opens_all_threads_but_one(rig: Rig, disk: list[int]) -> None:
    def from_disk() -> None:
        disk[0] += 8

    rig.queue.add(Run(0, from_disk))
    rig.until_idle()
    gates = [Gate() for _ in range(THREADS)]
    for gate in gates:
        rig.queue.add(Run(1, lambda gate=gate: gate(1)))  # type: ignore[misc]
    for gate in gates[:-1]:
        gate.await_reached()
    assert not gates[-1].reached.wait(0.05), "one is left for other requests"
    done = threading.Event()
    rig.stage.submit(done.set)
    assert done.wait(WAIT_S)
    for gate in gates:
        gate.opened.set()
    rig.until_idle()
    for _ in range(THREADS):
        rig.queue.add(Run(1))
        rig.until_idle()
    assert rig.queue._open == 1, "batches from memory close the threads one by one"


def test_threads_are_opened_while_a_batch_does_not_end(rig: Rig, disk: list[int]) -> None:
    """Nothing else begins while a disk hangs: the system says what was read when it was read."""
    hangs, later = Gate(), threading.Event()
    rig.queue.add(Run(0, lambda: hangs(1)))
    hangs.await_reached()
    rig.queue.add(Run(1, later.set))
    rig.look()
    assert later.wait(WAIT_S)
    hangs.opened.set()
    rig.until_idle()


def test_a_full_stage_refuses_a_run(disk: list[int]) -> None:
    rig = Rig(requests_max=3)
    gate = Gate()
    rig.queue.add(Run(0, lambda: gate(1)))
    gate.await_reached()
    with pytest.raises(TooManyRequestsError):
        rig.queue.add(Run(1))
    gate.opened.set()
    rig.until_idle()
    rig.stage.stop()
    refused = Run(2)
    with pytest.raises(TooManyRequestsError):
        rig.queue.add(refused)
    assert (rig.stage.meter.length, rig.queue._working, len(rig.queue._waiting)) == (0, 0, 0)
    rig.loop.close()


def test_a_run_that_cannot_wait_is_not_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.queue, "_put", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        rig.queue.add(Run(0))
    assert rig.stage.meter.length == 0


def test_a_thread_that_cannot_begin_leaves_its_run_to_those_that_work(
    rig: Rig, disk: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate, run = Gate(), Run(1)
    rig.queue.add(Run(0, lambda: gate(1)))
    gate.await_reached()
    rig.queue.add(run)
    with monkeypatch.context() as patch:
        patch.setattr(rig.stage, "begin", lambda _: 1 // 0)
        rig.queue._open_all()
        assert rig.queue._working == 1
        rig.queue.add(Run(2))
    gate.opened.set()
    rig.until_idle()
    assert len(run.got) == 1


def test_a_thread_gives_others_their_turn(disk: list[int]) -> None:
    """Runs that come all the time keep no other request from the only thread."""
    rig = Rig(threads=1)
    done = threading.Event()

    def again() -> None:
        if not done.is_set():
            rig.queue.add(Run(0, again))

    rig.queue.add(Run(0, again))
    rig.stage.submit(done.set)
    assert done.wait(WAIT_S)
    rig.until_idle()
    rig.stage.stop()
    rig.loop.close()


def test_a_stop_drops_what_waits(rig: Rig, disk: list[int]) -> None:
    gate, run = Gate(), Run(1)
    rig.queue.add(Run(0, lambda: gate(1)))
    gate.await_reached()
    rig.queue.add(run)
    rig.queue.stop()
    gate.opened.set()
    rig.until_idle()
    assert run.got == []


@pytest.mark.parametrize("seed", range(6))
def test_every_run_is_answered_once_whatever_happens(
    seed: int, disk: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory and from the disk, with failures of the reading, of the answers and of new threads."""
    chance = random.Random(seed)
    rig = Rig(threads=1 + seed % 5, requests_max=1_000_000)
    begin, read, post = rig.stage.begin, rig.read_records, rig.post

    def at_times(call: Callable[..., Any], share: float) -> Callable[..., Any]:
        def one(*arguments: Any) -> Any:
            if chance.random() < share:
                raise MemoryError
            if chance.random() < 0.1:
                disk[0] += 1
            if chance.random() < 0.1:
                time.sleep(0.001)
            rig.readable = chance.randrange(12)
            return call(*arguments)

        return one

    monkeypatch.setattr(read_queue, "report", lambda *_: None)
    monkeypatch.setattr(rig.stage, "begin", at_times(begin, 0.2))
    monkeypatch.setattr(rig, "read_records", at_times(read, 0.2))
    monkeypatch.setattr(rig, "post", at_times(post, 0.2))
    runs, refused = [Run(number) for number in range(600)], []
    for run in runs:
        try:
            rig.queue.add(run)
        except MemoryError:
            refused.append(run)
        if chance.random() < 0.02:
            rig.look(0.006)
    rig.until_idle()
    assert {len(run.got) for run in runs if run not in refused} == {1}
    assert not any(run.got for run in refused)
    assert not rig.queue._waiting
    rig.stage.stop()
    rig.loop.close()
