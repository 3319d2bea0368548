"""A pass over very many ledgers: nothing that it makes, grows, goes through or frees in one call is large.

The interpreter lets no other thread run within a call of C code, and an object is freed within one. So every
call on a container and every local name of the collector's code is looked at, which a slow machine does not
change; ``bench/pass_calls.py`` has the times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import bkctl
from bkctl.codec.entrylog import EntryLogHeader, encode_map_update
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.entrylog import log_writer
from bkctl.engine.gc import ledger_sweep, log_usage
from bkctl.engine.gc.policy import LEDGER_MAX
from bkctl.scan import records
from tests.unit.engine.gc.gc_rig import QUICK, Cluster, GcRig, Range

PACKAGE = Path(bkctl.__file__).parent
#: The twins of disk and store have what they hold in one piece.
TWINS = ("vfs/", "kvstore/")
#: What a call may take of the ledgers here. Batches of a map, windows of a log and pages of a listing are
#: small of themselves, here smaller still.
MEMBERS_MAX = 1500
COUNT = 2000
BATCH = 500
ROW = LedgerData(fenced=False, master_key=b"key")


class Pages(Cluster):
    """A cluster that is listed page by page."""

    def ranges(self) -> Iterator[Range]:
        for first in range(0, 2 * COUNT, BATCH):
            page = range(first, first + BATCH)
            yield Range(first, page[-1], [each for each in page if each in self.live])
        yield Range(2 * COUNT, LEDGER_MAX, [])


class LargeContainers:
    """Notes containers with many members in code of the package, while it is entered."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.looks = 0

    def __enter__(self) -> LargeContainers:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        code = frame.f_code
        path = code.co_filename.removeprefix(f"{PACKAGE}/")
        if path == code.co_filename or path.startswith(TWINS):
            return
        if event == "c_call":
            self._look(getattr(called, "__self__", None), f"{path} {code.co_name}: {called.__name__}")
        elif event == "return":
            for name, value in frame.f_locals.items():
                self._look(value, f"{path} {code.co_name}: {name}")

    def _look(self, value: object, where: str) -> None:
        if isinstance(value, dict | set | frozenset | list | tuple):
            self.looks += 1
            if len(value) > MEMBERS_MAX:
                self.found.add(where)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> GcRig:
    """Every ledger has entries in two logs; the header of one of them does not name its map."""
    monkeypatch.setattr(records, "WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(log_writer, "MAP_BATCH_LEDGERS_MAX", BATCH)
    monkeypatch.setattr(log_usage, "_PIECE_PAIRS", BATCH)
    monkeypatch.setattr(ledger_sweep, "FLUSH_LEDGERS", BATCH)
    rig = GcRig(replace(QUICK, deletions_share_max=1.0), cluster=Pages(range(COUNT)), log_bytes_max=1 << 30)
    rig.open()
    for entry, count in enumerate((COUNT, COUNT, 1)):
        for ledger in range(count):
            if not entry:
                rig.storage.ledgers.set(ledger, ROW)
            rig.put(ledger, entry, "", 100)
            if ledger % BATCH == BATCH - 1:
                rig.storage.flush()
        rig.storage.entry_logger.begin_new_logs()
        rig.storage.flush()
    settled = rig.storage.entry_logger.settled_log_ids()
    assert len(settled) == 2
    log = rig.disk.open_to_write(rig.storage.entry_logger.path(settled[0]))
    log.write_at(*encode_map_update(EntryLogHeader(map_offset=0, ledgers=0)))
    log.close()
    return rig


def test_nothing_that_a_pass_holds_is_large(rig: GcRig) -> None:
    with LargeContainers() as large:
        report = rig.collect()
    assert report.failure is None
    assert (report.ledgers, report.logs_read, report.deleted_ledgers) == (COUNT, 2, 0)
    assert large.looks > COUNT
    assert not large.found


def test_nothing_that_a_pass_deletes_by_is_large(rig: GcRig) -> None:
    rig.collect()
    rig.cluster.live = set(range(0, COUNT, 100))
    with LargeContainers() as large:
        report = rig.collect()
    assert report.failure is None
    assert not report.listing_failed
    assert report.deleted_ledgers == COUNT - COUNT // 100
    assert not large.found


def test_a_large_container_is_seen() -> None:
    with LargeContainers() as large:
        ledger_sweep.LedgerSet(dict.fromkeys(range(MEMBERS_MAX + 1)))
    assert any("ledgers" in each for each in large.found)
