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
from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.pipeline_tables import rows_of, write_tables
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


def test_what_a_stripe_has_in_front_of_a_fragment_counts_for_nothing(tmp_path: Path) -> None:
    """The bookie should have the even entries and has every third of them, which is one stripe. The second
    fragment begins between two of its steps, with an entry that is missing."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    current = bookie / "ledgers" / "current"
    for path in current.glob("*.log"):
        path.unlink()
    log = EntryLogBuilder()
    for entry in range(0, 30, 6):
        log.add(entry_body(77, entry))
    (current / "0.log").write_bytes(log.roll().data)
    collected(bookie, tmp_path / "sets")
    (name,) = SetStore(located(str(tmp_path / "sets"))).bookies()
    fragments = [
        {
            "ledger": 77,
            "first_entry": first,
            "last_entry": last,
            "slot": slot,
            "bookie": member,
            "ensemble_size": 2,
            "write_quorum": 1,
            "ack_quorum": 1,
            "state": "CLOSED",
        }
        for first, last, other in ((0, 9, "b"), (10, 29, "c"))
        for slot, member in enumerate((name, other))
    ]
    metadata = write_tables(tmp_path / "t", ledgers=[{"ledger": 77, "state": "CLOSED"}], fragments=fragments)
    outcome = ran("replication-audit", [tmp_path / "sets"], tmp_path / "o", metadata=str(metadata))
    assert set(rows_of(outcome, "audit", "bookie", "first_entry", "expected", "held")) >= {
        (name, 0, 5, 2),
        (name, 10, 10, 3),
    }
    gaps = rows_of(outcome, "missing", "first_entry", "first_missing", "last_missing", "missing")
    assert gaps == [
        (0, 2, 4, 2),
        (0, 8, 8, 1),
        (10, 10, 10, 1),
        (10, 14, 16, 2),
        (10, 20, 22, 2),
        (10, 26, 28, 2),
    ]
