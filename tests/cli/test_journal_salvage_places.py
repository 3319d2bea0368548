"""``bkctl journal salvage`` where records cannot keep their places, or the mark is at no record's end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import RecordKind, journal_name
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.errors import BkctlError, LedgerLimboError, RefusedError
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import DELETED, Entry, TruthfulBookie, started

Run = Callable[..., Any]
DIRECTORIES = 2
ways = pytest.mark.parametrize("way", ["in place", "out"])


@pytest.fixture(scope="module", params=[4, 6])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    """A stopped bookie whose journals are of a format without padding, or of one with it."""
    root = tmp_path_factory.mktemp("made") / "bookie"
    return TruthfulBookie.make(root, "db", DIRECTORIES, journal_version=request.param)


def version_of(bookie: TruthfulBookie) -> int:
    return bookie.journals()[0].read_bytes()[7]


def marked(bookie: TruthfulBookie) -> tuple[Path, int]:
    """The journal that the last mark names, and the mark's offset in it."""
    mark = max(decode_last_mark(path.read_bytes()) for path in bookie.root.glob("l*/current/lastMark"))
    return bookie.journal / journal_name(mark.journal_id), mark.offset


def entries_in(path: Path) -> dict[Entry, tuple[int, int]]:
    """Where each entry's record begins and ends."""
    found = {}
    with JournalScan(PosixFileSystem(), str(path)) as scan:
        for item in scan:
            if isinstance(item, EntryBatch):
                for index, size in enumerate(item.sizes):
                    entry = item.ledgers[index], item.entries[index]
                    found[entry] = (item.offset(index), item.offset(index) + 4 + size)
    return found


def overwrite(path: Path, start: int, stop: int) -> None:
    content = bytearray(path.read_bytes())
    content[start:stop] = b"\xee" * (stop - start)
    path.write_bytes(content)


def set_marks(bookie: TruthfulBookie, mark: LastMark) -> None:
    for path in bookie.root.glob("l*/current/lastMark"):
        path.write_bytes(encode_last_mark(mark))


def salvage(
    run_cli: Run, bookie: TruthfulBookie, way: str, *, is_refused: bool = True
) -> tuple[int, list[dict[str, Any]]]:
    """Salvage the journals, for which a start is refused; the exit code and the rows.

    The copy is in their place then.
    """
    fresh = bookie.root.parent / "fresh"
    words = ("--in-place",) if way == "in place" else ("--out", fresh)
    if is_refused:
        with pytest.raises(RefusedError), started(bookie.root, bookie.directories):
            pass
    done = run_cli("journal", "salvage", bookie.root, *words, "--yes")
    assert done.exit_code in (0, 1), done.stderr
    if way == "out":
        (bookie.root / "j").rename(bookie.root.parent / "old")
        fresh.rename(bookie.root / "j")
    assert run_cli("doctor", bookie.root, "--only", "marks,journals").exit_code == 0
    return done.exit_code, from_ndjson(done.stdout)


def not_served(bookie: TruthfulBookie) -> set[Entry]:
    """Start it; the acknowledged entries that are answered as unknown. All others are served."""
    unknown = set()
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if ledger == DELETED:
                continue
            try:
                assert running.reads.read(ledger, entry) == body
            except LedgerLimboError:
                unknown.add((ledger, entry))
    return unknown


@ways
@pytest.mark.parametrize("is_behind", [False, True], ids=["in front of the mark", "behind the mark"])
def test_damage_anywhere(run_cli: Run, bookie: TruthfulBookie, way: str, is_behind: bool) -> None:
    """Formats before 5 have no padding: the records behind the damage move, and the mark with them."""
    path, offset = marked(bookie)
    begin = (max if is_behind else min)(
        begin for begin, _ in entries_in(path).values() if (begin > offset) == is_behind
    )
    overwrite(path, begin, begin + 40)
    code, rows = salvage(run_cli, bookie, way, is_refused=is_behind)
    assert [row["offset"] for row in rows if row["kind"] == "damage"] == [begin]
    moves = version_of(bookie) == 4 and not is_behind
    assert any(row["kind"] == "mark" for row in rows) == moves
    assert code == (1 if is_behind or moves else 0)
    assert len(not_served(bookie)) <= 1


@ways
def test_a_mark_within_a_record_is_set_back(run_cli: Run, bookie: TruthfulBookie, way: str) -> None:
    path, _ = marked(bookie)
    begin, _ = sorted(entries_in(path).values())[-1]
    set_marks(bookie, LastMark(int(path.stem, 16), begin + 6))
    found = run_cli("doctor", bookie.root, "--only", "marks", "-o", "ndjson")
    assert [row["kind"] for row in from_ndjson(found.stdout)] == ["mark_within_record"]
    code, rows = salvage(run_cli, bookie, way)
    assert code == 0
    assert {row["path"] for row in rows if row["kind"] == "mark"} == {
        str(path) for path in bookie.root.glob("l*/current/lastMark")
    }
    assert not_served(bookie) == set()


@ways
def test_bytes_that_are_gone_in_front_of_the_mark(run_cli: Run, bookie: TruthfulBookie, way: str) -> None:
    """The mark is within a record since: what stood behind it is replayed all the same."""
    path, offset = marked(bookie)
    begin = max(begin for begin, end in entries_in(path).values() if end < offset - 700)
    content = path.read_bytes()
    path.write_bytes(content[: begin + 20] + content[begin + 27 :] + bytes(7))
    salvage(run_cli, bookie, way)
    assert len(not_served(bookie)) <= 1


@ways
@pytest.mark.parametrize("made", [6], indirect=True)
@pytest.mark.parametrize("within", [1, 3, 4, 7])
def test_a_mark_within_the_head_of_padding(
    run_cli: Run, bookie: TruthfulBookie, way: str, within: int
) -> None:
    """The record around the mark is damaged, and too near to its beginning for padding to end at the mark."""
    path, offset = marked(bookie)
    begin = min(begin for begin, _ in entries_in(path).values() if begin > offset)
    overwrite(path, begin, begin + 40)
    set_marks(bookie, LastMark(int(path.stem, 16), begin + within))
    _, rows = salvage(run_cli, bookie, way)
    assert any(row["kind"] == "mark" for row in rows)
    assert len(not_served(bookie)) <= 1


@ways
@pytest.mark.parametrize("made", [6], indirect=True)
@pytest.mark.parametrize("within", [3, 16])
def test_a_mark_within_padding_is_set_back(
    run_cli: Run, bookie: TruthfulBookie, way: str, within: int
) -> None:
    """Nothing is damaged: a replay that begins there takes the rest of the padding for the journal's end."""
    path, offset = marked(bookie)
    with JournalScan(PosixFileSystem(), str(path)) as scan:
        (begin,) = [
            item.offset
            for item in scan
            if isinstance(item, MarkedRecord) and item.kind is RecordKind.PADDING and item.end == offset
        ]
    set_marks(bookie, LastMark(int(path.stem, 16), begin + within))
    found = run_cli("doctor", bookie.root, "--only", "marks", "-o", "ndjson")
    assert [row["kind"] for row in from_ndjson(found.stdout)] == ["mark_within_record"]
    code, rows = salvage(run_cli, bookie, way)
    assert code == 0
    assert any(row["kind"] == "mark" for row in rows)
    assert not_served(bookie) == set()


@ways
def test_a_mark_beyond_the_end_of_a_cut_journal(run_cli: Run, bookie: TruthfulBookie, way: str) -> None:
    path, offset = marked(bookie)
    path.write_bytes(path.read_bytes()[: offset - 1000])
    code, _ = salvage(run_cli, bookie, way)
    assert code == 1
    with started(bookie.root, bookie.directories) as running, pytest.raises(BkctlError):
        running.reads.read(1, 10_000)


@ways
@pytest.mark.parametrize("made", [6], indirect=True)
@pytest.mark.parametrize("version", [2, 4])
def test_one_flipped_bit_of_the_version(run_cli: Run, bookie: TruthfulBookie, way: str, version: int) -> None:
    """The header is padded, so that it is of a version with padding."""
    path, _ = marked(bookie)
    content = bytearray(path.read_bytes())
    content[7] = version
    path.write_bytes(content)
    code, rows = salvage(run_cli, bookie, way)
    assert code == 0
    assert [(row["offset"], row["bytes"]) for row in rows if row["kind"] == "damage"] == [(4, 4)]
    assert not_served(bookie) == set()
