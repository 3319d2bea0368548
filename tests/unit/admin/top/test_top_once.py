"""Samples without a screen."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from bkctl.admin.top.once import sample_once, samples
from bkctl.admin.top.recording import Recording
from bkctl.admin.top.sample import BookieSample, ClusterSample, EntryLogState
from bkctl.admin.top.sample_json import encode_sample
from bkctl.errors import ConnectionFailedError


def numbered(number: int, *bookies: str) -> ClusterSample:
    return ClusterSample(
        taken_at_ms=number, interval_s=1.0, bookies=tuple(BookieSample(bookie=bookie) for bookie in bookies)
    )


class Source:
    """Samples with these bookies, and how often it was asked."""

    title = "source"

    def __init__(self, *bookies: str, error: str | None = None) -> None:
        self.bookies = bookies
        self.error = error
        self.asked = 0
        self.closed = False

    async def sample(self) -> ClusterSample:
        self.asked += 1
        found = numbered(self.asked, *self.bookies)
        return ClusterSample(
            taken_at_ms=found.taken_at_ms, interval_s=1.0, bookies=found.bookies, discovery_error=self.error
        )

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        return ()

    async def close(self) -> None:
        self.closed = True


def recording(path: Path) -> Recording:
    path.write_text("".join(f"{encode_sample(numbered(number, 'b'))}\n" for number in range(3)))
    return Recording(str(path))


def test_once_is_the_second_of_two_looks() -> None:
    source = Source("b")
    assert asyncio.run(sample_once(source, 0.001)).taken_at_ms == 2
    assert (source.asked, source.closed) == (2, True)


def test_once_of_a_recording_is_its_last_sample(tmp_path: Path) -> None:
    assert asyncio.run(sample_once(recording(tmp_path / "r"), 60)).taken_at_ms == 2


@pytest.mark.parametrize("error", [None, "zk://a: no connection"])
def test_nobody_to_watch(error: str | None) -> None:
    source = Source(error=error)
    with pytest.raises(ConnectionFailedError, match=error or "no bookie is registered"):
        asyncio.run(sample_once(source, 60))
    assert (source.asked, source.closed) == (1, True)

    async def first() -> None:
        async with contextlib.aclosing(samples(source, 60)) as found:
            await anext(found)

    with pytest.raises(ConnectionFailedError):
        asyncio.run(first())


def test_a_stream_begins_with_the_first_rates() -> None:
    source = Source("b")

    async def three() -> list[int]:
        async with contextlib.aclosing(samples(source, 0.001)) as found:
            return [(await anext(found)).taken_at_ms for _ in range(3)]

    assert asyncio.run(three()) == [2, 3, 4]


def test_a_recording_streams_at_once_and_ends(tmp_path: Path) -> None:
    async def everything() -> list[int]:
        return [sample.taken_at_ms async for sample in samples(recording(tmp_path / "r"), 60)]

    assert asyncio.run(everything()) == [0, 1, 2]
