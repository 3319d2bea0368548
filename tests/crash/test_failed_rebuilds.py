"""Rebuilds that fail at any of their steps: nothing of the bookie is held afterwards, and the next one works.

A step is a call of the system that changes, opens or lists something, or a call of RocksDB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.rebuild import rebuild_index
from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.directories.placement import find_placement
from bkctl.errors import StorageError
from bkctl.kvstore import rocksdb, rocksdb_store
from bkctl.kvstore.rocksdb_rows import RocksRows
from bkctl.kvstore.rocksdb_store import RocksStore, SstFile
from bkctl.storage_kinds import kind_named
from bkctl.vfs import PosixFileSystem
from tests.support.failing_steps import Steps
from tests.support.grades import times
from tests.support.own_handles import own_handles
from tests.support.truthful_bookie import TruthfulBookie, started

DIRECTORIES = 2
#: Of all steps every so-manieth is one that fails.
STRIDE = times(400, 97)
SYSTEM_CALLS = (
    "open",
    "fsync",
    "fdatasync",
    "rename",
    "replace",
    "link",
    "symlink",
    "unlink",
    "remove",
    "mkdir",
)


@pytest.fixture(scope="module", params=["db", "idx"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("killed") / "bookie", request.param, DIRECTORIES)


@contextmanager
def steps_of(steps: Steps, root: Path) -> Iterator[None]:
    """Make every call one of the steps that has to do with the directory."""

    def stepping(name: str, call: Callable[..., Any], *, system: bool = False) -> Callable[..., Any]:
        @wraps(call)
        def stepped(*given: Any, **named: Any) -> Any:
            if not system or any(str(root) in str(each) for each in given):
                steps.step(name)
            return call(*given, **named)

        return stepped

    with pytest.MonkeyPatch.context() as patch:
        for name in SYSTEM_CALLS:
            patch.setattr(os, name, stepping(f"os.{name}", getattr(os, name), system=True))
        for owner, names in (
            (PosixFileSystem, ("open", "names", "status", "create", "open_to_write")),
            (RocksRows, ("get", "batches", "tables")),
            (RocksStore, ("write", "flush", "note_synced", "ingest")),
            (SstFile, ("put_many", "put_columns", "finish")),
            (rocksdb, ("_state", "_read", "_open_farm")),
            (rocksdb_store, ("check_synced", "write_note", "_sync_directory")),
        ):
            for name in names:
                patch.setattr(owner, name, stepping(name, getattr(owner, name)))
        yield


def rebuild(root: Path, kind: str, steps: Steps) -> BaseException | None:
    """The error of the rebuild, kept: what it refers to is not freed by chance."""
    with steps_of(steps, root):
        try:
            placement = find_placement(PosixFileSystem(), str(root), kind=kind_named(kind))
            rebuild_index(placement, RebuildOptions(accept_loss=True), 1)
        except Exception as error:  # noqa: BLE001 - any error ends a rebuild
            return error
    return None


def test_a_rebuild_that_fails_at_any_step_holds_nothing(killed: TruthfulBookie, tmp_path: Path) -> None:
    counted, kind = Steps(), killed.storage
    assert rebuild(killed.copy(tmp_path / "counted").root, kind, counted) is None
    assert counted.taken > 50
    failures = 0
    # At twelve steps at least; of index files a rebuild takes few, and needs not all of them.
    for number in range(1, counted.taken + 1, min(STRIDE, counted.taken // 12)):
        bookie = killed.copy(tmp_path / f"{number}")
        failed = rebuild(bookie.root, kind, Steps(number))
        failures += failed is not None
        assert own_handles(bookie.root) == [], (number, failed)
        assert rebuild(bookie.root, kind, Steps()) is None, (number, failed)
        assert own_handles(bookie.root) == [], number
        if kind == "db":
            with started(bookie.root, DIRECTORIES) as engine:
                for (ledger, entry), body in killed.truth.bodies.items():
                    if ledger != 3:
                        assert engine.reads.read(ledger, entry) == body, number
    assert failures > 2, counted.taken


def test_a_stop_between_the_work_directories_of_an_idx_rebuild_is_made_good(
    killed: TruthfulBookie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is removed, the other one still says that its files are in place."""
    root = killed.copy(tmp_path / "bookie").root
    drop, dropped = WorkDirectory.drop, []

    def dropping(work: WorkDirectory) -> None:
        if dropped:
            raise StorageError("stopped")
        dropped.append(work.path)
        drop(work)

    with monkeypatch.context() as patch:
        patch.setattr(WorkDirectory, "drop", dropping)
        assert isinstance(rebuild(root, killed.storage, Steps()), StorageError)
    assert len(dropped) == 1
    assert rebuild(root, killed.storage, Steps()) is None
    assert not list(root.glob("*/current/*bkctl-rebuild*"))
