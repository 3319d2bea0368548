"""Recordings: what is written is read, in pieces, after kills, by other versions, within its bound."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.admin.top import recording as recording_module
from bkctl.admin.top.recording import Recording, RecordingSource
from bkctl.admin.top.sample import BookieSample, ClusterSample, EntryLogState, Mode, Stage
from bkctl.admin.top.sample_json import as_values, decode_sample, encode_sample
from bkctl.admin.top.source import Replay, SampleSource
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from tests.support.top_samples import bookie_sample


def sample(number: int) -> ClusterSample:
    return ClusterSample(
        taken_at_ms=1000 * number,
        interval_s=1.0,
        bookies=(bookie_sample("a", number), BookieSample(bookie="b", error="no answer within 3 s")),
    )


class Numbers:
    """A source of samples 0, 1, 2, …"""

    title = "numbers"

    def __init__(self) -> None:
        self.given = 0
        self.closed = 0

    async def sample(self) -> ClusterSample:
        self.given += 1
        return sample(self.given - 1)

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        return (EntryLogState(log_id=1, bytes=2, live_bytes=None, live_ratio=None, ledgers=None),)

    async def close(self) -> None:
        self.closed += 1


def record(path: Path, count: int, bytes_max: int = 1 << 30) -> list[ClusterSample]:
    async def run() -> list[ClusterSample]:
        source = RecordingSource(Numbers(), str(path), bytes_max)
        found = [await source.sample() for _ in range(count)]
        await source.close()
        return found

    return asyncio.run(run())


def play(path: Path) -> list[ClusterSample]:
    found = Recording(str(path))
    samples = [found.step(1) for _ in range(found.count)]
    asyncio.run(found.close())
    return samples


def test_what_is_recorded_is_played(tmp_path: Path) -> None:
    recorded = record(tmp_path / "r", 3)
    assert recorded == [sample(0), sample(1), sample(2)]
    assert play(tmp_path / "r") == recorded


def test_both_are_sources() -> None:
    source: SampleSource = Numbers()
    assert not isinstance(source, Replay)


def test_a_recording_can_be_moved_in(tmp_path: Path) -> None:
    record(tmp_path / "r", 5)
    found = Recording(str(tmp_path / "r"))
    assert isinstance(found, Replay)
    assert (found.count, found.position, found.at_end, found.title) == (5, -1, False, str(tmp_path / "r"))
    assert asyncio.run(found.sample()).taken_at_ms == 0
    assert found.step(2).taken_at_ms == 2000
    assert found.step(-1).taken_at_ms == 1000
    assert found.step(-9).taken_at_ms == 0
    assert found.seek(99).taken_at_ms == 4000
    assert (found.position, found.at_end) == (4, True)
    assert asyncio.run(found.sample()).taken_at_ms == 4000, "the last one again"
    with pytest.raises(RefusedError, match="entry logs"):
        asyncio.run(found.logs("a", "/d"))
    asyncio.run(found.close())
    asyncio.run(found.close())


def test_a_recording_is_appended_to(tmp_path: Path) -> None:
    record(tmp_path / "r", 2)
    record(tmp_path / "r", 1)
    assert [each.taken_at_ms for each in play(tmp_path / "r")] == [0, 1000, 0]


def test_every_line_is_there_when_the_sample_is_given(tmp_path: Path) -> None:
    source = RecordingSource(Numbers(), str(tmp_path / "r"), 1 << 30)
    asyncio.run(source.sample())
    assert decode_sample((tmp_path / "r").read_bytes()) == sample(0)
    asyncio.run(source.close())


@pytest.mark.parametrize("kept", [1, 2, 50, -2, -1])
def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "r"
    record(path, 1)
    line = path.read_bytes()
    path.write_bytes(line + line[:kept])
    whole = 2 if kept == -1 else 1  # without its newline it is whole all the same
    assert len(play(path)) == whole
    record(path, 1)
    assert len(play(path)) == 2
    record(path, 1)
    assert play(path)[-1] == sample(0)


def test_a_line_cut_short_behind_a_brace_is_no_sample_either(tmp_path: Path) -> None:
    """What is left ends as a sample does."""
    path = tmp_path / "r"
    record(path, 1)
    line = path.read_bytes()
    cut = line.index(b"}") + 1
    path.write_bytes(line[:cut])
    record(path, 1)
    assert play(path) == [sample(0)]


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"taken_at_ms": 1'], ids=["empty", "lines", "cut"])
def test_a_file_without_a_sample_is_no_recording(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="samples, a line each"):
        Recording(str(path))


def test_damage_names_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "r"
    record(path, 1)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"nothing of the kind\n")
    with pytest.raises(CorruptionError, match=rf"r: recording at offset {size}: .*no JSON object"):
        Recording(str(path))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{}", "no bookies"),
        ('{"taken_at_ms":1,"interval_s":1,"bookies":{}}', "expected a list"),
        ('{"taken_at_ms":"1","interval_s":1,"bookies":[]}', "taken_at_ms: expected int"),
        ('{"taken_at_ms":true,"interval_s":1,"bookies":[]}', "taken_at_ms: expected int"),
        ('{"taken_at_ms":1,"interval_s":1,"bookies":[7]}', r"bookies\[0\]: expected an object"),
        ('{"taken_at_ms":1,"interval_s":1,"bookies":[{"bookie":"b","mode":"x"}]}', "no mode"),
        ('{"taken_at_ms":1,"interval_s":1,"bookies":[{"bookie":"b","queues":[{}]}]}', "no name"),
        ('{"a":' * 100_000 + "}" * 100_000, "nested too deeply"),
        ("{'a': 1}", "line 1 column 2"),
    ],
    ids=lambda text: text[:30],
)
def test_a_line_that_is_no_sample_says_where(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "r"
    record(path, 1)
    with path.open("a") as file:
        file.write(f"{line}\n")
    found = Recording(str(path))
    found.step(1)
    with pytest.raises(CorruptionError, match=what):
        found.step(1)
    assert found.position == 0
    asyncio.run(found.close())


def test_a_recording_of_another_version_is_played(tmp_path: Path) -> None:
    """Keys that are not known are passed over, those that are missing have their defaults."""
    line = {
        "taken_at_ms": 5,
        "interval_s": 2,
        "weather": "fine",
        "bookies": [{"bookie": "b", "mode": "ro", "tide": [1, {}], "disks": [], "adds_per_s": 3}],
    }
    (tmp_path / "r").write_text(json.dumps(line))
    (found,) = play(tmp_path / "r")
    (bookie,) = found.bookies
    assert (found.interval_s, bookie.mode, bookie.adds_per_s) == (2.0, Mode.READ_ONLY, 3.0)
    assert bookie.bottleneck.stage is Stage.UNKNOWN


def test_it_ends_at_its_bound_and_the_samples_go_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    record(path, 1)
    line_bytes = path.stat().st_size
    found = record(path, 4, bytes_max=3 * line_bytes + line_bytes // 2)
    assert [each.notice is None for each in found] == [True, True, False, False]
    assert "has ended" in str(found[-1].notice)
    assert found[-1].bookies == sample(3).bookies
    assert len(play(path)) == 3


def test_a_full_disk_ends_the_recording_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "r"
    record(path, 1)
    monkeypatch.setattr(recording_module.os, "write", full)
    found = record(path, 2)
    assert "No space left" in str(found[-1].notice)
    monkeypatch.undo()
    assert len(play(path)) == 1


def test_part_of_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[: len(data) // 2])

    path = tmp_path / "r"
    record(path, 1)
    monkeypatch.setattr(recording_module.os, "write", half)
    found = record(path, 2)
    assert "part of a sample" in str(found[0].notice)
    monkeypatch.undo()
    assert play(path) == [sample(0)]


def test_where_nothing_can_be_recorded_or_played(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot record there"):
        RecordingSource(Numbers(), str(tmp_path / "no" / "r"), 1)
    with pytest.raises(StorageError, match="cannot record there"):
        RecordingSource(Numbers(), str(tmp_path), 1)
    with pytest.raises(NotFoundError, match="no such recording"):
        Recording(str(tmp_path / "no"))
    with pytest.raises(StorageError):
        Recording(str(tmp_path))


@pytest.mark.parametrize("content", [b"zkServers=localhost", b"\x7fELF", b"[1]\n"])
def test_nothing_is_appended_to_another_kind_of_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(RefusedError, match="not a recording"):
        RecordingSource(Numbers(), str(tmp_path / "r"), 1 << 20)
    assert (tmp_path / "r").read_bytes() == content


def test_a_line_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "LINE_BYTES_MAX", 100)
    (tmp_path / "r").write_bytes(b"{" + b" " * 200)
    with pytest.raises(CorruptionError, match="more than 100 bytes"):
        Recording(str(tmp_path / "r"))


def test_a_recording_source_passes_everything_else_on(tmp_path: Path) -> None:
    inner = Numbers()
    source = RecordingSource(inner, str(tmp_path / "r"), 1 << 20)
    assert source.title == "numbers"
    assert asyncio.run(source.logs("a", "/d"))[0].log_id == 1
    asyncio.run(source.close())
    asyncio.run(source.close())
    assert inner.closed == 2


numbers = st.floats(0, 1e12, allow_nan=False) | st.none()


@settings(max_examples=50)
@given(
    taken=st.integers(0, 2**53),
    adds=numbers,
    error=st.none() | st.text(),
    name=st.text(min_size=1),
    mode=st.none() | st.sampled_from(list(Mode)),
)
def test_a_sample_goes_there_and_back(
    taken: int, adds: float | None, error: str | None, name: str, mode: Mode | None
) -> None:
    bookie = dataclasses.replace(bookie_sample("x", 3), bookie=name, error=error, mode=mode, adds_per_s=adds)
    made = ClusterSample(taken_at_ms=taken, interval_s=1.0, bookies=(bookie,))
    line = encode_sample(made)
    assert "\n" not in line
    assert decode_sample(line) == made
    values: Any = as_values(made)
    assert json.loads(line) == values
