"""Every screen of ``bkctl top`` as text, compared with ``screens/*.txt``.

After a change that is meant ``BKCTL_WRITE_SCREENS=1 .venv/bin/pytest tests/tui/test_top_screens_as_text.py``
writes them anew; then read the difference.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.top.sample import AutorecoveryState, ClusterSample, RecoveryWorker
from bkctl.tui.glyphs import ASCII, UNICODE, Glyphs
from tests.support.top_samples import (
    FakeReplay,
    FakeSource,
    bookie_sample,
    cluster_sample,
    java_sample,
)
from tests.support.top_screen import Operator, operating, run

SCREENS = Path(__file__).with_name("screens")
SMALL = (80, 24)
LARGE = (160, 50)
SAMPLES = 60

pytestmark = pytest.mark.usefixtures("utc")


class ManyBookies(FakeSource):
    """Forty of them."""

    def at(self, moment: int) -> ClusterSample:
        return cluster_sample(
            moment,
            *(bookie_sample(f"rack-{n % 4}-bookie-{n:02}.storage.example:3181", moment) for n in range(40)),
        )


class JavaBookie(FakeSource):
    """One, and one of ours."""

    def at(self, moment: int) -> ClusterSample:
        return cluster_sample(moment, java_sample("java-1:3181", moment), bookie_sample("ours:3181", moment))


class Recovering(FakeSource):
    """A cluster whose autorecovery has come to work, or what is told of it."""

    state: AutorecoveryState | None = AutorecoveryState(
        enabled=True,
        auditor="bookie-2:3181",
        ledgers=412,
        ledgers_done_per_s=3.5,
        workers=(RecoveryWorker(host="worker-a", ledgers=4), RecoveryWorker(host="worker-b", ledgers=2)),
    )

    def at(self, moment: int) -> ClusterSample:
        sample = super().at(moment)
        first, *rest = sample.bookies
        bookies = (replace(first, replicated_mb_per_s=35.2), *rest)
        return replace(sample, bookies=bookies, autorecovery=self.state)


class ManyDirectories(FakeSource):
    """A bookie with three ledger directories and two journals, of long names and with characters to fear."""

    def at(self, moment: int) -> ClusterSample:
        bookie = bookie_sample("wide:3181", moment)
        names = [f"/srv/storage/volumes/of/the/cluster/\x1b[31mred/数据/disk-{n}" for n in range(3)]
        return cluster_sample(
            moment,
            replace(
                bookie,
                write_cache=tuple(replace(half, dir=name) for name in names for half in bookie.write_cache),
                read_cache=tuple(replace(bookie.read_cache[0], dir=name) for name in names),
                ledger_dirs=tuple(replace(bookie.ledger_dirs[0], dir=name) for name in names),
                gc=tuple(replace(bookie.gc[0], dir=name, phase="idle") for name in names),
                disks=tuple(replace(bookie.disks[0], dir=name) for name in names),
                journals=tuple(
                    replace(bookie.journals[0], dir=f"/srv/journals/journal-{n}") for n in range(2)
                ),
            ),
            bookie_sample("zone:3181", moment),
        )


async def show_help(operator: Operator) -> None:
    await operator.press("question_mark")


def same(name: str, text: str) -> None:
    """Whether the screen is the one that was kept."""
    path = SCREENS / f"{name}.txt"
    if os.environ.get("BKCTL_WRITE_SCREENS"):
        path.write_text(text + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text + "\n"


def nothing_is_cut_off(operator: Operator, size: tuple[int, int]) -> None:
    assert len(operator.rows) == size[1]
    assert all(len(row) <= size[0] for row in operator.rows)


SCENES: list[tuple[str, tuple[str, ...]]] = [
    ("cluster", ()),
    ("cluster-sorted", ("s", "s", "down")),
    ("bookie", ("enter",)),
    ("queues", ("enter", "2")),
    ("caches", ("enter", "3")),
    ("journals", ("enter", "4")),
    ("entry-logs", ("enter", "5")),
    ("gc", ("enter", "6")),
    ("directories", ("enter", "7")),
    ("journal", ("enter", "7", "enter")),
    ("ledger-directory", ("enter", "7", "down", "enter")),
    ("log", ("enter", "7", "down", "enter", "down", "enter")),
    ("ledgers", ("l", "down")),
    ("help", ("question_mark",)),
    ("filter", ("slash", "r", "o")),
    ("paused", ("p",)),
]
#: Each screen in one size in each run, every other one in the other.
SIZED = [
    pytest.param(
        scene,
        keys,
        size,
        id=f"{scene}-keys{number}-{size[0]}x{size[1]}",
        marks=[pytest.mark.thorough("the same screen in another size")] if (number + turn) % 2 else [],
    )
    for number, (scene, keys) in enumerate(SCENES)
    for turn, size in enumerate((SMALL, LARGE))
]


@pytest.mark.parametrize(("scene", "keys", "size"), SIZED)
def test_screen(scene: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async def test() -> None:
        async with operating(FakeSource(), size=size) as operator:
            await operator.sample(SAMPLES)
            await operator.press(*keys)
            nothing_is_cut_off(operator, size)
            same(f"{scene}-{size[0]}x{size[1]}", operator.text)

    run(test)


@pytest.mark.parametrize(
    ("scene", "source", "keys", "glyphs"),
    [
        ("many-bookies", ManyBookies, ("end",), UNICODE),
        ("java", JavaBookie, (), UNICODE),
        ("java-bookie", JavaBookie, ("enter",), UNICODE),
        ("recovery", Recovering, (), UNICODE),
        ("many-directories", ManyDirectories, ("enter",), UNICODE),
        ("many-directories-table", ManyDirectories, ("enter", "7"), UNICODE),
        ("ascii-cluster", FakeSource, (), ASCII),
        ("ascii-bookie", FakeSource, ("enter",), ASCII),
    ],
)
def test_other_bookies(scene: str, source: type[FakeSource], keys: tuple[str, ...], glyphs: Glyphs) -> None:
    async def test() -> None:
        async with operating(source(), glyphs=glyphs) as operator:
            await operator.sample(SAMPLES)
            await operator.press(*keys)
            assert len(operator.rows) == SMALL[1]
            assert "\x1b" not in operator.text
            if glyphs is ASCII:
                assert operator.text.isascii()
            same(f"{scene}-80x24", operator.text)

    run(test)


def test_recovery_comes_stands_still_is_switched_off_and_goes() -> None:
    """A line stands there only while there is something to say."""

    async def test() -> None:
        source = Recovering()
        working = source.state
        assert working is not None
        source.state = None
        async with operating(source, size=LARGE) as operator:
            await operator.sample(3)
            assert " recovery " not in operator.text
            source.state = replace(working, ledgers=1_000, more_ledgers=True, ledgers_done_per_s=None)
            await operator.sample(2)
            assert (
                "1,000+ ledgers lack replicas, 35.2 MB/s, copied by worker-a (4), worker-b (2)"
                in operator.text
            )
            assert "worker-b (2), auditor bookie-2:3181" in operator.text
            source.state = replace(working, ledgers=1, workers=(), auditor=None)
            await operator.sample(2)
            assert "1 ledger lacks replicas, " in operator.text
            assert "nobody copies, no auditor" in operator.text
            source.state = replace(working, ledgers=0, workers=(), enabled=False)
            await operator.sample(2)
            assert "switched OFF" in operator.text
            source.state = replace(working, ledgers=0, workers=(), maintenance="ops@here")
            await operator.sample(2)
            assert "a maintenance of ops@here is on" in operator.text
            source.state = replace(working, ledgers=0, workers=())
            await operator.sample(2)
            assert " recovery " not in operator.text

    run(test)


@pytest.mark.parametrize(("scene", "keys"), [("lost", ()), ("lost-bookie", ("enter",))])
def test_lost_bookie(scene: str, keys: tuple[str, ...]) -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            await operator.sample(40)
            source.lose("bookie-1:3181")
            await operator.sample(20)
            await operator.press(*keys)
            same(f"{scene}-80x24", operator.text)

    run(test)


def test_metadata_store_that_does_not_answer() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            source.discovery_error = "ZooKeeper zk1:2181 does not answer: connection refused"
            await operator.sample(5)
            same("discovery-error-80x24", operator.text)

    run(test)


def test_before_the_first_answer() -> None:
    async def test() -> None:
        class Silent(FakeSource):
            async def sample(self) -> ClusterSample:
                await asyncio.Event().wait()
                raise AssertionError

        async with operating(Silent(), first=False) as operator:
            await operator.until(lambda: "q Quit" in operator.text)
            same("waiting-80x24", operator.text)

    run(test)


def test_recording() -> None:
    async def test() -> None:
        async with operating(FakeReplay()) as operator:
            await operator.press("p", "greater_than_sign", "full_stop", "full_stop")
            same("replay-80x24", operator.text)

    run(test)
