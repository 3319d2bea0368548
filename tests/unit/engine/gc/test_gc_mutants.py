"""Faults that BookKeeper has had, as mutants of ours: each of them does harm, and ours does none.

BK#4462 is in ``test_gc_bookie``, BK#1534 in ``tests/crash/test_gc_crash``, YBK#15 in ``test_gc_policy``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bkctl.codec.entry_log_metadata import EntryLogMetadata, encode_entry_log_metadata, encode_log_key
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.engine.gc import log_reading, settled_logs
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.policy import Request
from bkctl.errors import BkctlError, BookieIOError, ConnectionFailedError
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.scan.entrylog import EntryLogHead
from tests.support.storage_rig import DIRECTORY
from tests.unit.engine.gc.gc_rig import MAJOR, QUICK, GcRig, opened

# --- BK#2813: ledgers that were replicated away ----


class Replicas:
    """``elsewhere`` are ledgers that other bookies keep, ``busy`` those that somebody replicates."""

    def __init__(self, elsewhere: set[int]) -> None:
        self.elsewhere = elsewhere
        self.busy: set[int] = set()
        self.locks: list[int] = []
        self.before_lock: Callable[[], None] = lambda: None
        self.error: BkctlError | None = None

    def is_kept_elsewhere(self, ledger: int) -> bool:
        if self.error is not None:
            raise self.error
        return ledger in self.elsewhere

    @contextmanager
    def locked(self, ledger: int) -> Iterator[bool]:
        self.before_lock()
        self.locks.append(ledger)
        yield ledger not in self.busy


def surplus_rig(replicas: Replicas) -> GcRig:
    rig = opened(surplus_interval_ms=1000)
    rig.fill([1, 2, 3])
    rig.collector._ledgers._replicas = replicas
    rig.clock.advance(1)
    return rig


def test_2813_only_ledgers_whose_ensembles_name_others_go_and_only_they_are_locked() -> None:
    replicas = Replicas({2})
    rig = surplus_rig(replicas)
    assert rig.collect(MAJOR).surplus_ledgers == 1
    assert rig.deleted == replicas.locks == [2]
    rig.check(1)
    rig.check(3)
    # The next search is an interval away.
    replicas.elsewhere = {1}
    assert rig.collect().surplus_ledgers == 0
    rig.clock.advance(1)
    assert rig.collect().surplus_ledgers == 1


def test_2813_mutant_without_the_ensemble_check() -> None:
    replicas = Replicas({1, 2, 3})
    rig = surplus_rig(replicas)
    rig.collect()
    assert rig.deleted == [1, 2, 3]


def test_2813_a_ledger_that_comes_back_before_the_lock_is_held_stays() -> None:
    replicas = Replicas({2})
    replicas.before_lock = replicas.elsewhere.clear
    rig = surplus_rig(replicas)
    rig.collect()
    assert replicas.locks == [2]
    assert rig.deleted == []


def test_2813_a_ledger_that_is_being_replicated_stays() -> None:
    replicas = Replicas({2})
    replicas.busy = {2}
    rig = surplus_rig(replicas)
    rig.collect()
    assert rig.deleted == []


def test_2813_an_error_is_no_proof() -> None:
    replicas = Replicas({1, 2, 3})
    replicas.error = ConnectionFailedError("no answer")
    rig = surplus_rig(replicas)
    assert rig.collect().listing_failed
    assert rig.deleted == []


def test_2813_a_bookie_whose_every_ledger_seems_to_be_elsewhere_asks_first() -> None:
    replicas = Replicas({1, 2, 3})
    rig = surplus_rig(replicas)
    object.__setattr__(rig.gc, "deletions_ledgers_max", 2)
    try:
        assert rig.collect().held_deletions == 3
        assert rig.deleted == []
    finally:
        object.__setattr__(rig.gc, "deletions_ledgers_max", GcSettings().deletions_ledgers_max)


# --- BK#4607: map fields left over in a header ----


def with_a_stale_header(rig: GcRig) -> None:
    """Log 0 gets a map that is well-formed, counts right, and is of one small ledger that is gone."""
    rig.write(9, [0], size_bytes=100)
    rig.fill([1, 2], entries=12)
    rig.cluster.live.remove(9)
    content = rig.disk.files[f"{DIRECTORY}/0.log"]
    at = int.from_bytes(content[8:16], "big")
    stale = (36).to_bytes(4, "big") + content[at + 4 : at + 20]
    stale += (1).to_bytes(4, "big") + (9).to_bytes(8, "big") + (104).to_bytes(8, "big") + bytes(4)
    file = rig.disk.open_to_write(f"{DIRECTORY}/0.log")
    file.write_at(at, stale)
    file.write_at(16, (1).to_bytes(4, "big"))
    file.close()


def believing(head: EntryLogHead) -> dict[int, int] | None:
    """As Java: a map counts when its ledgers are as many as the header says."""
    return head.ledgers_map


def test_4607_a_map_that_leaves_records_out_costs_nothing() -> None:
    rig = opened()
    with_a_stale_header(rig)
    rig.collect(MAJOR)
    assert rig.deleted == [9]
    rig.check(1, 12)
    rig.check(2, 12)


def test_4607_the_mutant_that_believes_it_deletes_live_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "trusted_map", believing)
    monkeypatch.setattr(settled_logs, "rows_into", lambda *_: {})
    rig = opened()
    with_a_stale_header(rig)
    rig.collect()
    assert "0.log" not in rig.log_names()
    with pytest.raises(BookieIOError):
        rig.check(1, 12)


def test_4607_what_the_mutant_believes_the_index_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "trusted_map", believing)
    rig = opened()
    with_a_stale_header(rig)
    rig.collect()
    assert "0.log" in rig.log_names()
    rig.check(1, 12)


def test_4607_a_cached_row_made_of_such_a_map_is_passed_over() -> None:
    rows = MemoryStore(path="metadata-cache")
    rig = GcRig(QUICK, rows=rows)
    rig.open()
    rig.fill([1, 2], entries=12)
    row = EntryLogMetadata(0, 104, 104, ((9, 104),))
    rows.write([Put(encode_log_key(0), encode_entry_log_metadata(row))], sync=False)
    rig.collect(MAJOR)
    rig.check(1, 12)
    rig.check(2, 12)


def test_4607_a_header_is_written_before_any_byte_of_a_log_and_its_map_fields_are_zero() -> None:
    rig = opened()
    rig.fill([1], entries=2)
    content = rig.disk.files[f"{DIRECTORY}/{rig.log_names()[0]}"]
    assert content[8:HEADER_BYTES] == bytes(HEADER_BYTES - 8)


# --- BK#3998: a forced collection that does nothing ----


class DroppingCollector(Collector):
    """Takes no request while a pass runs, as a flag that is cleared at a pass's end does."""

    def request(self, request: Request) -> None:
        if self._running is None:
            super().request(request)


def passes_of(kind: type[Collector]) -> list[Request | None]:
    """The requests that passes were made for: one alone, then one that comes during its pass."""
    rig = opened(wait_ms=3_600_000)
    rig.collector.__class__ = kind
    begun, go_on = threading.Event(), threading.Event()
    seen: list[Request | None] = []

    def watched(request: Request | None = None) -> None:
        seen.append(request)
        begun.set()
        assert go_on.wait(20)

    rig.collector.collect = watched  # type: ignore[assignment,method-assign]
    rig.collector.start()
    try:
        rig.collector.request(Request())
        assert begun.wait(20)
        begun.clear()
        rig.collector.request(MAJOR)
        waiting = rig.collector._request is not None
        go_on.set()
        if waiting:
            assert begun.wait(20)
    finally:
        rig.collector.stop()
    return seen


def test_3998_a_request_during_a_pass_has_its_own() -> None:
    assert passes_of(Collector) == [Request(), MAJOR]


def test_3998_the_mutant_loses_it() -> None:
    assert passes_of(DroppingCollector) == [Request()]


def test_3998_a_request_that_compacts_nothing_says_why() -> None:
    rig = opened(major=CompactionSettings(0.0, 0), minor=CompactionSettings(0.2, 0))
    reason = rig.collect(MAJOR).compaction_reason
    assert reason == "major is off by its threshold, minor is off by its interval"
