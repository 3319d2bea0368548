"""Every audit, over sets with which something is wrong: what the files themselves say, or ``unexamined``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import NotFoundError
from bkctl.pipeline import set_inputs
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.choice import read_cluster
from bkctl.pipeline.sets.collection import CollectRequest, collect
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.tables.options import TableOptions
from bkctl.reporting import Advance, nobody
from bkctl.vfs import PosixFileSystem
from tests.support.grades import is_thorough
from tests.support.sets import DEMO, ZK, collected, ran

#: Words of a verdict that say what is wrong with sets.
WRONG = re.compile("sets_.*|logs_gone|unread_indexes|.*_not_read")


class Scene:
    """A bookie, and the store where its sets are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bookie = Path(shutil.copytree(DEMO, folder / "bookie"))
        self.sets = folder / "sets"
        self.files = [self.bookie]

    def largest_log(self, bookie: Path | None = None) -> Path:
        logs = (bookie or self.bookie).glob("ledgers/current/*.log")
        return max(logs, key=lambda path: path.stat().st_size)


def two_sets_of_one_bookie(scene: Scene) -> None:
    """Yesterday's whole, and one of a copy elsewhere that lacks a log."""
    collected(scene.bookie, scene.sets)
    copy = Path(shutil.copytree(DEMO, scene.folder / "copy"))
    scene.largest_log(copy).unlink()
    collected(copy, scene.sets)
    collected(scene.bookie, scene.sets, full=True)
    scene.files = [scene.bookie, copy]


def a_newer_set_that_lacks_a_log(scene: Scene) -> None:
    """What the newest set does not have is not taken from the one before."""
    collected(scene.bookie, scene.sets)
    scene.largest_log().unlink()
    collected(scene.bookie, scene.sets)


def a_set_of_another_cluster(scene: Scene) -> None:
    """The only set of the bookie."""
    for cookie in scene.bookie.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace('instanceId: "', 'instanceId: "0'))
    collected(scene.bookie, scene.sets)


def a_set_cut_short(scene: Scene) -> None:
    """A whole one, then a loss, then one whose manifest was never written."""
    collected(scene.bookie, scene.sets)
    scene.largest_log().unlink()
    one = collected(scene.bookie, scene.sets)
    (Path(one.complete.location.path) / "manifest.json").unlink()


def a_set_whose_table_is_cut_short(scene: Scene) -> None:
    """A whole one, then a loss, then one of which a file was not written to its end."""
    collected(scene.bookie, scene.sets)
    scene.largest_log().unlink()
    one = collected(scene.bookie, scene.sets)
    table = Path(next(file for file in one.complete.files("runs")))
    table.write_bytes(table.read_bytes()[:-1])


def a_log_that_goes_while_it_is_read(scene: Scene) -> None:
    """As a compaction removes it."""

    @contextmanager
    def compacted(_: str, __: int) -> Iterator[Advance]:
        scene.largest_log().unlink()
        yield nobody

    options = TableOptions(damage="rows", metadata=str(ZK))
    request = CollectRequest((str(scene.bookie),), options)
    collect(PosixFileSystem(), SetStore(located(str(scene.sets))), request, compacted)


def an_unreadable_index(scene: Scene) -> None:
    """Its database cannot be opened."""
    (scene.bookie / "ledgers" / "current" / "locations" / "CURRENT").write_text("MANIFEST-x\n")
    collected(scene.bookie, scene.sets)


SCENES = [
    two_sets_of_one_bookie,
    a_newer_set_that_lacks_a_log,
    a_set_of_another_cluster,
    a_set_cut_short,
    a_set_whose_table_is_cut_short,
    a_log_that_goes_while_it_is_read,
    an_unreadable_index,
]


@pytest.mark.parametrize("make", SCENES, ids=lambda make: make.__name__)
def test_over_sets_the_verdict_is_that_of_the_files_or_unexamined(
    make: Callable[[Scene], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the demo's three bookies one is at hand: that the others lack sets is not what is asked here.
    monkeypatch.setattr(
        set_inputs, "read_cluster", lambda *given: replace(read_cluster(*given), bookies=None)
    )
    scene = Scene(tmp_path)
    make(scene)
    jobs = list(JOBS)
    # A third of them in each run, others of each scene.
    for job in jobs if is_thorough() else jobs[SCENES.index(make) % 3 :: 3]:
        over = None
        with suppress(NotFoundError):  # no complete set: nothing is said, and the exit code is not 0
            over = ran(job, [scene.sets], tmp_path / "over" / job)
        if over is None:
            assert make is a_set_of_another_cluster
            continue
        direct = ran(job, scene.files, tmp_path / "direct" / job)
        assert over.verdict in (direct.verdict, "unexamined"), (job, direct.found, over.found)
        lacking = set(direct.found) - set(over.found)
        assert not lacking or any(WRONG.fullmatch(word) for word in over.found), (job, lacking, over.found)
