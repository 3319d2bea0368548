"""``gc run`` over ``.idx`` files of several directories: what lives stays, and all of them are to be seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bkctl.admin.gc.explain import explain
from bkctl.admin.gc.plan import COMPACT, REMOVE
from bkctl.admin.gc.run import RunOptions, perform, prepare
from bkctl.admin.gc.run_rows import RunRow
from bkctl.admin.ledgers.known_ledgers import Cluster, NoCluster
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.errors import RefusedError
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.files.paths import directories
from bkctl.storage_kinds import IDX
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import CrashPointReached, FaultyFileSystem
from tests.support.convertible_bookie import ConvertibleBookie
from tests.support.grades import times
from tests.unit.admin.gc.stopped_bookie import CLOCK, cluster_of

FILES = PosixFileSystem()
ALL = RunOptions(threshold=1.0)


def stopped(root: Path, *, apart: bool) -> ConvertibleBookie:
    """A bookie with three ledger directories, stopped in order; ledger 3 was deleted."""
    made = ConvertibleBookie.make(root, IDX, 3, apart=apart)
    with made.started(IDX):
        pass
    return made


def space_of(*paths: Path) -> IndexSpace:
    (space,) = index_spaces(FILES, directories(FILES, map(str, paths)))
    return space


def run(
    *paths: Path, files: WritableFileSystem = FILES, cluster: Cluster | None = None, options: RunOptions = ALL
) -> list[RunRow]:
    space = space_of(*paths)
    with DirectoryLock(*dict.fromkeys((*space.log_dirs, *space.index_dirs))) as lock:
        work = prepare(FILES, space, cluster or NoCluster(), CLOCK, options)
        return list(perform(files, work, CLOCK, lock))


def logs(made: ConvertibleBookie) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in made.root.rglob("*.log")}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("given", ["", "l1"])
def test_garbage_goes_and_everything_that_lives_is_served(tmp_path: Path, apart: bool, given: str) -> None:
    made = stopped(tmp_path, apart=apart)
    before = sum(map(len, logs(made).values()))
    rows = run(tmp_path / given)
    assert {row.action for row in rows} <= {REMOVE, COMPACT}
    assert all(row.done for row in rows)
    freed = sum(row.freed_bytes for row in rows)
    # Beside the records that were copied a log has a header and a map of its ledgers.
    assert 0 < before - sum(map(len, logs(made).values())) <= freed
    made.check(IDX)


@pytest.mark.parametrize("apart", [False, True])
def test_what_only_the_journals_have_is_replayed_after_a_run(tmp_path: Path, apart: bool) -> None:
    made = ConvertibleBookie.make(tmp_path, IDX, 3, apart=apart)
    run(tmp_path)
    made.check(IDX)


def take_away(made: ConvertibleBookie, name: str) -> Callable[[], object]:
    hidden = made.root.parent / "hidden"
    shutil.move(made.root / name, hidden)
    return lambda: shutil.move(hidden, made.root / name)


@pytest.mark.parametrize(
    ("apart", "name"), [(True, "i0"), (True, "i1"), (True, "l0"), (True, "l2"), (False, "l1")]
)
def test_without_one_of_the_directories_nothing_is_removed(tmp_path: Path, apart: bool, name: str) -> None:
    """Without one of the index directories its ledgers look deleted, and their logs would go."""
    made = stopped(tmp_path / "b", apart=apart)
    bring_back = take_away(made, name)
    before = logs(made)
    with pytest.raises(RefusedError, match=f"{name} of its bookie's directories is not found"):
        run(made.root)
    rows = list(explain(FILES, [space_of(made.root)], NoCluster(), CLOCK))
    assert {row.eligible for row in rows} == {"no"}
    assert logs(made) == before
    bring_back()
    run(made.root)
    made.check(IDX)


def emptied(made: ConvertibleBookie, name: str) -> None:
    for path in (made.root / name / "current").iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def test_an_index_directory_that_was_emptied_is_no_proof(tmp_path: Path) -> None:
    """Its cookie is there, and no file nor any folder: as after a disk was replaced."""
    made = stopped(tmp_path, apart=True)
    emptied(made, "i1")
    with pytest.raises(RefusedError, match=r"no index file was ever in .*/i1"):
        run(tmp_path)
    with open_metadata_store("memory://gc-emptied-index") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, {ledger for ledger, _ in made.bodies}, "bookie:3181")
        cluster.instance_id = "one"
        run(tmp_path, cluster=cluster)
    # The metadata know the ledgers whose files are gone, so that their entries stay where they are.
    kept = b"".join(logs(made).values())
    assert all(body in kept for body in made.bodies.values())


def test_without_a_cookie_nothing_is_removed(tmp_path: Path) -> None:
    """Nothing says then that there is no other index directory."""
    made = stopped(tmp_path, apart=True)
    for path in tmp_path.glob("*/current/VERSION"):
        path.unlink()
    before = logs(made)
    with pytest.raises(RefusedError, match="no cookie says which directories"):
        run(tmp_path / "l0", tmp_path / "i0")
    assert logs(made) == before


@pytest.mark.slow
def test_a_stop_at_any_step_loses_nothing(tmp_path: Path) -> None:
    source = stopped(tmp_path / "made", apart=True)
    point = 0
    while True:
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        source.root.rename(tmp_path / "kept")
        shutil.copytree(tmp_path / "kept", source.root)
        faulty = FaultyFileSystem(PosixFileSystem(), crash_after=point)
        with suppress(CrashPointReached):
            run(source.root, files=faulty)
        run(source.root)
        source.check(IDX)
        shutil.rmtree(source.root)
        (tmp_path / "kept").rename(source.root)
        if not faulty.stopped.is_set():
            break
        point += times(8, 2)
    assert point > 10
