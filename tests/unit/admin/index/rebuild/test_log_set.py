"""What a rebuild holds of very many logs, and what it takes from their manifests."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.index.rebuild.id_set import IdSet
from bkctl.admin.index.rebuild.log_set import LogSet
from bkctl.admin.index.rebuild.options import ROW_BYTES_AT_PEAK, ROWS_MIN, RebuildOptions
from bkctl.admin.index.rebuild.state import LogManifest, WorkDirectory
from bkctl.admin.index.rows.location_runs import Run
from bkctl.codec.digest import Digester
from bkctl.errors import StorageError
from bkctl.scan.directory import LogFile
from bkctl.types import DigestType

LOGS, LEDGERS = 400, 500
CRC32, CRC32C, MAC = DigestType.CRC32.value, DigestType.CRC32C.value, DigestType.MAC.value


class Watched(LogManifest):
    """A manifest whose end can be watched: it has no slots of its own."""


def log_files(count: int) -> list[LogFile]:
    return [LogFile(f"/d/{log_id:x}.log", log_id, 1 << 30) for log_id in range(count)]


def manifest(work: WorkDirectory, log_id: int, ledgers: range, **more: object) -> Watched:
    learnt = tuple((ledger, CRC32C) for ledger in ledgers)
    run = Run(work.run_path(log_id, 0), 1000 + log_id, 7)
    values = {"learnt": learnt, **more}
    return Watched(log_id, 1 << 30, log_id, "auto", 1000, 0, tuple(ledgers), (run,), **values)  # type: ignore[arg-type]


def test_manifests_are_not_held(tmp_path: Path) -> None:
    work = WorkDirectory(str(tmp_path))
    found = LogSet(log_files(LOGS), work, "auto")
    watched = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for log_id in range(LOGS):
            lost = {} if log_id % 10 else {"damage": ("a hole",), "lost": (log_id,)}
            each = manifest(work, log_id, range(log_id, log_id + LEDGERS), **lost)
            watched.append(weakref.ref(each))
            found.take(each)
            del each
            assert sum(ref() is not None for ref in watched) == 0
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # 200,000 pairs of log and ledger; what is held is of 400 logs and of 899 ledgers, and ids that wait.
    assert held < found.held_bytes + 2 * 8 * (1 << 16)
    assert found.ledgers == frozenset(range(LOGS + LEDGERS - 1))
    assert [run.rows for run in found.runs] == [1000 + log_id for log_id in range(LOGS)]
    assert [run.path for run in found.runs] == [work.run_path(log_id, 0) for log_id in range(LOGS)]
    assert [each.log_id for each in found.damaged] == list(range(0, LOGS, 10))
    assert all(each.ledgers == each.runs == each.learnt == () for each in found.damaged)
    assert found.lost([]) == set(range(0, LOGS, 10))


KEYED = Digester(DigestType.MAC, bytes(20))


def test_what_one_log_tells_of_a_ledger_settles_others(tmp_path: Path) -> None:
    work = WorkDirectory(str(tmp_path))
    work.prepare("logs")
    found = LogSet(log_files(4), work, "auto")
    first = manifest(
        work,
        0,
        range(1, 4),
        learnt=((1, CRC32), (2, CRC32C)),
        unsettled=(3,),
    )
    second = manifest(work, 1, range(3, 6), learnt=((3, MAC),), unsettled=(4, 5))
    third = manifest(work, 2, range(7, 9), learnt=((7, CRC32), (8, CRC32)))
    strange = manifest(work, 3, range(90, 93), learnt=(), unsettled=(2, 90, 91, 92))
    for each in (first, second, third, strange):
        work.keep(each)
        found.take(each)
    asked = []

    def ask(ledgers: Collection[int]) -> dict[int, Digester]:
        asked.append(tuple(ledgers))
        return {3: KEYED} if 3 in ledgers else {}

    told = found.settle(ask)
    assert told == {0: {3: KEYED}, 3: {2: Digester(DigestType.CRC32C)}}
    assert asked == [(3, 4, 5, 90, 91, 92)], "each once; that an entry has a MAC is of no use without the key"
    # What is read again counts as it is then: 90 to 92 were damaged ids.
    found.take_again(manifest(work, 0, range(1, 4)))
    found.take_again(manifest(work, 3, range(2, 3), damage=("bad",), lost=(2,), missing=("ledger 2",)))
    assert found.ledgers == {1, 2, 3, 4, 5, 7, 8}
    assert [each.log_id for each in found.damaged] == [3]
    assert found.lost([1, 2, 3]) == {2}
    assert found.damaged[0].missing == ("ledger 2",)


def test_a_manifest_that_is_gone_is_an_error(tmp_path: Path) -> None:
    work = WorkDirectory(str(tmp_path))
    found = LogSet(log_files(1), work, "auto")
    found.take(manifest(work, 0, range(3), unsettled=(1,)))
    with pytest.raises(StorageError, match=r"0\.json: is gone"):
        found.settle(lambda _: {})


def test_ids_are_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.admin.index.rebuild.id_set._WAITING_MIN", 4)
    ids = IdSet()
    added: set[int] = set()
    for part in ((5, 3), (), (2**63 - 1, 0, 3), range(10, 40, 3), (1,), {7, 8}):
        ids.add(part)
        added.update(part)
        assert ids.column().tolist() == sorted(added)


def test_what_is_held_counts_against_the_memory_that_rows_get() -> None:
    options = RebuildOptions(memory_bytes=1 << 30, jobs=2)
    assert options.rows_beside(0) == options.rows_max
    held_bytes = 200 << 20
    assert options.rows_max - options.rows_beside(held_bytes) == held_bytes // 2 // ROW_BYTES_AT_PEAK
    known = dict.fromkeys(range(10_000), Digester(DigestType.CRC32C))
    taken = options.rows_max - replace(options, digesters=known).rows_max
    assert taken >= 10_000 * 64 // 2 // ROW_BYTES_AT_PEAK
    assert options.rows_beside(2 << 30) == ROWS_MIN
