"""Conversions both ways, with one to three ledger directories: a bookie of the other storage has it all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.conversion import conversion, switch
from bkctl.admin.conversion.bookie_places import kind_here
from bkctl.admin.conversion.conversion import (
    ConversionOptions,
    ConvertedDirectory,
    convert_bookie,
)
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_records import find_repairs
from bkctl.admin.repairs.repair_undo import undo, why_not
from bkctl.directories.half_converted import is_half_converted
from bkctl.engine.accepted_losses import ACCEPTED_NAME
from bkctl.errors import BkctlError, CorruptionError, RefusedError, StorageError
from bkctl.scan.directory import CONVERSION_NAME, NOT_PROVED_NAME, OLD_INDEX_PREFIX, inspect_directory
from bkctl.scan.kept_doubts import kept_doubts
from bkctl.storage_kinds import DB, IDX, StorageKind
from bkctl.vfs import DiskSpace, PosixFileSystem
from tests.support.convertible_bookie import LOG_BYTES, ConvertibleBookie
from tests.support.failing_steps import SteppedFileSystem, Steps
from tests.support.grades import one_kept, times

FILES = PosixFileSystem()
OPTIONS = ConversionOptions(LOG_BYTES, RebuildOptions())
DRY = ConversionOptions(LOG_BYTES, RebuildOptions(), dry_run=True)
WAYS = [pytest.param(*way, id=f"{way[0].name}-to-{way[1].name}") for way in permutations((DB, IDX))]

Make = Callable[[StorageKind, int], ConvertibleBookie]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda kind, count: ConvertibleBookie.make(tmp_path / "bookie", kind, count)


def convert(
    bookie: ConvertibleBookie, target: StorageKind, options: ConversionOptions = OPTIONS
) -> list[ConvertedDirectory]:
    return convert_bookie(FILES, bookie.places(), target, options)


def content(bookie: ConvertibleBookie) -> dict[str, bytes]:
    return {
        str(path.relative_to(bookie.root)): path.read_bytes()
        for path in sorted(bookie.root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("count", one_kept("as with more directories", 3, 1, 2))
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_killed_bookie_is_converted_and_the_other_storage_has_everything(
    make: Make, source: StorageKind, target: StorageKind, count: int
) -> None:
    """What only the journal has is replayed into the new index."""
    bookie = make(source, count)
    rows = convert(bookie, target)
    assert [row.state for row in rows] == ["converted"] * count
    assert sum(row.ledgers for row in rows) == 7
    assert sum(row.limbo for row in rows) == 1
    for number in range(count):
        names = [path.name for path in bookie.current(number).iterdir()]
        assert CONVERSION_NAME not in names
        assert len([name for name in names if name.startswith(OLD_INDEX_PREFIX)]) == 1
        found = inspect_directory(FILES, str(bookie.current(number)))
        assert not source.is_in(found.indexes)
        assert found.has_cookie
    bookie.check(target)


@pytest.mark.parametrize("count", one_kept("as with more directories", 3, 1))
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_the_way_back_is_the_other_conversion_also_when_a_bookie_has_run(
    make: Make, source: StorageKind, target: StorageKind, count: int
) -> None:
    bookie = make(source, count)
    convert(bookie, target)
    with bookie.started(target) as running:
        bookie.add(running, (1, 40, 41, 42), range(50, 60))
    convert(bookie, source)
    bookie.check(source)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_index_directories_apart_from_the_ledger_directories(
    tmp_path: Path, source: StorageKind, target: StorageKind
) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", source, 2, apart=True)
    (bookie.current(1) / "metadata-cache").mkdir()
    rows = convert(bookie, target)
    assert [row.dir for row in rows] == [f"{path}/current" for path in bookie.indexes()]
    assert not (bookie.current(1) / "metadata-cache").exists()
    with bookie.started(target) as running:
        bookie.add(running, (1, 40, 41), range(50, 60))
    convert(bookie, source)
    bookie.check(source)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_what_a_rebuild_could_not_prove_stays_in_doubt(
    make: Make, source: StorageKind, target: StorageKind
) -> None:
    bookie = make(source, 2)
    kept = bookie.current(1) / NOT_PROVED_NAME
    kept.write_text('{"doubts": ["lastId is not there"]}')
    convert(bookie, target)
    assert kept_doubts(FILES, [str(bookie.current(number)) for number in range(2)]) == ["lastId is not there"]


@pytest.mark.parametrize("entry", [1 << 61, (1 << 63) - 1])
def test_an_entry_without_a_slot_is_refused(make: Make, entry: int) -> None:
    bookie = make(DB, 1)
    with bookie.started(DB) as running:
        bookie.add(running, (70,), range(entry, entry + 1))
    refused(bookie, IDX, f"ledger 70 entry {entry}: an index file has no slot")


def test_logs_of_equal_ids_get_new_ones_and_keep_their_order(make: Make) -> None:
    bookie = make(DB, 2)
    before = [sorted(path.name for path in bookie.current(n).glob("*.log")) for n in range(2)]
    assert set(before[0]) & set(before[1])
    rows = convert(bookie, IDX)
    after = [sorted(path.name for path in bookie.current(n).glob("*.log")) for n in range(2)]
    assert after[0] == before[0]
    assert not set(after[0]) & set(after[1])
    assert [row.renamed for row in rows] == [0, len(before[1])]
    largest = max(int(name.removesuffix(".log"), 16) for name in after[1])
    assert int((bookie.current(1) / "lastId").read_text(), 16) >= largest


def test_entries_in_logs_of_other_directories_are_copied_home(make: Make) -> None:
    bookie = make(IDX, 2)
    rehearsed = convert(bookie, DB, DRY)
    rows = convert(bookie, DB)
    assert sum(row.copied for row in rows) > 0
    assert [row.copied for row in rehearsed] == [row.copied for row in rows]
    assert [row.rows for row in rehearsed] == [row.rows for row in rows]


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_rows_that_do_not_fit_into_memory_are_merged_from_disk(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: StorageKind, target: StorageKind
) -> None:
    bookie = make(source, 2)
    monkeypatch.setattr(RebuildOptions, "rows_max", property(lambda _: 16))
    monkeypatch.setattr(conversion, "_ROWS_MIN", 4)
    monkeypatch.setattr(conversion, "RUNS_MAX", 3)
    convert(bookie, target)
    monkeypatch.undo()
    bookie.check(target)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_disk_that_fails_at_any_step_leaves_what_was_there_or_what_goes_on(
    make: Make, tmp_path: Path, source: StorageKind, target: StorageKind
) -> None:
    bookie = make(source, 2)
    before = content(bookie)
    pristine = shutil.copytree(bookie.root, tmp_path / "pristine")
    for step in range(1, 2_000, times(150, 47)):
        steps = Steps(step, for_good=True)
        system = SteppedFileSystem(FILES, steps)
        try:
            convert_bookie(system, bookie.places(), target, OPTIONS)
        except BkctlError:
            assert steps.failed
        if not any(is_half_converted(FILES, path) for path in bookie.places().every):
            if not steps.failed:
                break
            has_begun = kind_here(FILES, bookie.places()) == target
            left = {name: data for name, data in content(bookie).items() if CONVERSION_NAME not in name}
            assert has_begun or left == before, step
        convert(bookie, target)
        shutil.rmtree(bookie.root)
        shutil.copytree(pristine, bookie.root)
    assert step > 20
    bookie.check(target)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_dry_run_changes_nothing(make: Make, source: StorageKind, target: StorageKind) -> None:
    bookie = make(source, 2)
    before = content(bookie)
    assert {row.state for row in convert(bookie, target, DRY)} == {"planned"}
    assert content(bookie) == before


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_second_conversion_changes_nothing(make: Make, source: StorageKind, target: StorageKind) -> None:
    bookie = make(source, 2)
    convert(bookie, target)
    before = content(bookie)
    assert {row.state for row in convert(bookie, target)} == {"unchanged"}
    assert content(bookie) == before


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_caches_and_kept_indexes_go_with_the_old_index(
    make: Make, source: StorageKind, target: StorageKind
) -> None:
    """A cache of the collector knows logs by their old ids; kept databases would look like an index."""
    bookie = make(source, 1)
    names = (
        "metadata-cache",
        "idx.BACKUP-20260101T000000.000000Z",
        "locations.BACKUP-20260101T000000.000000Z",
    )
    for name in names:
        (bookie.current() / name).mkdir()
    convert(bookie, target)
    kept = next(bookie.current().glob(f"{OLD_INDEX_PREFIX}*"))
    assert set(names) <= {path.name for path in kept.iterdir()}
    assert not any((bookie.current() / name).exists() for name in names)
    assert not any(kind.has_trace_in([kept.name]) for kind in (DB, IDX))
    bookie.check(target)


def test_two_indexes_are_refused(make: Make) -> None:
    bookie = make(IDX, 1)
    other = ConvertibleBookie.make(bookie.root / "other", DB, 1).current()
    for name in ("ledgers", "locations"):
        shutil.copytree(other / name, bookie.current() / name)
    refused(bookie, DB, "indexes of two ledger storages")


def cut_off(
    bookie: ConvertibleBookie, target: StorageKind, monkeypatch: pytest.MonkeyPatch, *, moves: int
) -> None:
    """Convert up to some change of a name, the power gone with it."""
    moved = switch._move
    left = [moves]

    def move(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise StorageError("the power went")
        moved(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(switch, "_move", move)
        with pytest.raises(StorageError):
            convert(bookie, target)


def test_a_cookie_that_somebody_brought_back_does_not_end_what_was_cut_off(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in the work directories would be thrown away as that of a run that had not begun."""
    bookie = make(DB, 2)
    cookie = (bookie.current() / "VERSION").read_bytes()
    cut_off(bookie, IDX, monkeypatch, moves=5)
    for number in range(2):
        (bookie.current(number) / "VERSION").write_bytes(cookie)
    assert {row.state for row in convert(bookie, IDX)} == {"resumed"}
    bookie.check(IDX)


def refused(bookie: ConvertibleBookie, target: StorageKind, words: str) -> None:
    before = content(bookie)
    with pytest.raises((RefusedError, CorruptionError), match=words):
        convert(bookie, target)
    assert content(bookie) == before


@pytest.mark.parametrize(("lost", "way"), [("tree", IDX), ("ledgers", DB), ("*.log", IDX), ("*.log", DB)])
def test_one_that_was_cut_off_does_not_end_without_what_was_lost_since(
    make: Make, monkeypatch: pytest.MonkeyPatch, lost: str, way: StorageKind
) -> None:
    """The old index and the new one have names enough, some of which are nowhere any more."""
    bookie = make(DB, 2)
    cut_off(bookie, IDX, monkeypatch, moves=5)
    for path in [*bookie.current(1).rglob(lost)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused(bookie, way, "is gone, and is not at")
    if lost != "*.log":
        other = IDX if way == DB else DB
        assert {row.state for row in convert(bookie, other)} == {"resumed" if other == IDX else "rolled_back"}
        bookie.check(other)


def test_a_cut_compaction_is_refused(make: Make) -> None:
    bookie = make(DB, 1)
    log = next(bookie.current().glob("*.log"))
    shutil.copyfile(log, bookie.current() / "77.log.compacting")
    refused(bookie, IDX, "a compaction was cut off")


def test_a_missing_log_is_refused_by_its_name(make: Make) -> None:
    bookie = make(IDX, 1)
    next(iter(sorted(bookie.current().glob("*.log")))).unlink()
    refused(bookie, DB, "no such log")


def test_a_record_that_is_not_there_is_refused(make: Make) -> None:
    bookie = make(DB, 1)
    log = min(bookie.current().glob("*.log"), key=lambda path: int(path.stem, 16))
    data = bytearray(log.read_bytes())
    data[1024 + 4 : 1024 + 12] = b"\x07" * 8
    log.write_bytes(data)
    refused(bookie, IDX, "another record")


def test_a_missing_cookie_is_refused(make: Make) -> None:
    bookie = make(DB, 2)
    (bookie.current(1) / "VERSION").unlink()
    refused(bookie, IDX, "no cookie")


def test_a_rebuild_that_was_cut_off_is_refused(make: Make) -> None:
    bookie = make(DB, 1)
    (bookie.current() / "locations.bkctl-rebuild").mkdir()
    refused(bookie, IDX, "an index rebuild was cut off")


def lose_rows(current: Path) -> None:
    shutil.rmtree(current / "ledgers")


def lose_locations_and_logs(current: Path) -> None:
    shutil.rmtree(current / "locations")
    for log in current.glob("*.log"):
        log.unlink()


def lose_files(current: Path) -> None:
    for folder in current.glob("?"):
        shutil.rmtree(folder)


def accept_a_loss(current: Path) -> None:
    """As a start does that is killed before all rows are in limbo."""
    (current / ACCEPTED_NAME).write_text("gone ledgers\n")


@pytest.mark.parametrize(
    ("source", "lose", "words"),
    [
        (DB, lose_rows, "ledgers is gone"),
        (DB, lose_locations_and_logs, "locations is gone"),
        (DB, accept_a_loss, "was interrupted"),
        (IDX, lose_files, "has no trace of an index file"),
    ],
)
def test_an_index_that_is_lost_in_one_directory_is_refused(
    make: Make, source: StorageKind, lose: Callable[[Path], None], words: str
) -> None:
    """No start over the other storage would see that it was lost."""
    bookie = make(source, 2)
    lose(bookie.current(1))
    refused(bookie, IDX if source == DB else DB, words)


class FullDisks(PosixFileSystem):
    """Disks with so many bytes left."""

    free_bytes = 0

    def disk_space(self, path: str) -> DiskSpace:
        return replace(super().disk_space(path), free_bytes=self.free_bytes)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_what_has_no_room_is_refused_before_anything_is_written(
    make: Make, source: StorageKind, target: StorageKind
) -> None:
    bookie, disks = make(source, 2), FullDisks()
    before = content(bookie)
    needed = sum(row.needed_bytes for row in convert(bookie, target, DRY))
    disks.free_bytes = needed - 1
    for options in (DRY, OPTIONS):
        with pytest.raises(RefusedError, match=f"about {needed} bytes are written there, and {needed - 1}"):
            convert_bookie(disks, bookie.places(), target, options)
        assert content(bookie) == before
    disks.free_bytes = needed
    convert_bookie(disks, bookie.places(), target, OPTIONS)
    written = {path: data for path, data in content(bookie).items() if path not in before}
    renamed = set(before.values())
    new_bytes = sum(
        len(data)
        for path, data in written.items()
        if data not in renamed and OLD_INDEX_PREFIX not in path and "bkctl-repairs" not in path
    )
    assert 0 < new_bytes <= needed
    bookie.check(target)


@pytest.mark.parametrize("count", one_kept("as with more directories", 2, 1))
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_an_undo_takes_it_back_byte_for_byte(
    make: Make, source: StorageKind, target: StorageKind, count: int
) -> None:
    bookie = make(source, count)
    before = content(bookie)
    convert(bookie, target)
    assert content(bookie) != before
    found = last_repair(FILES, bookie.places().locked)
    assert (found.record.made_by, why_not(FILES, found)) == ("bookie convert", None)
    undo(FILES, found)
    assert content(bookie) == before
    bookie.check(source)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_an_undo_that_is_killed_at_any_step_goes_on(
    make: Make, source: StorageKind, target: StorageKind
) -> None:
    bookie = make(source, 2)
    before = content(bookie)
    convert(bookie, target)
    places = bookie.places()
    for killed_at in range(1, 2000, 11):
        steps = Steps(killed_at, for_good=True)
        if not find_repairs(FILES, places.locked):
            break
        with suppress(StorageError):
            undo(SteppedFileSystem(FILES, steps), last_repair(FILES, places.locked))
    assert killed_at > 30
    assert content(bookie) == before


@pytest.mark.parametrize(("source", "target"), WAYS)
@pytest.mark.parametrize("killed_at", [2, 7])
def test_one_that_was_killed_and_gone_on_with_is_undone_as_well(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: StorageKind, target: StorageKind, killed_at: int
) -> None:
    bookie = make(source, 2)
    before = content(bookie)
    cut_off(bookie, target, monkeypatch, moves=killed_at)
    assert {row.state for row in convert(bookie, target)} == {"resumed"}
    found = last_repair(FILES, bookie.places().locked)
    assert why_not(FILES, found) is None
    undo(FILES, found)
    assert content(bookie) == before
    bookie.check(source)


@pytest.mark.parametrize("runs_again", [False, True])
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_one_that_was_killed_behind_its_change_of_names_is_undone(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: StorageKind, target: StorageKind, runs_again: bool
) -> None:
    """The bookie is converted and could start: nothing but the record says how to go back."""
    bookie = make(source, 2)
    before = content(bookie)

    carry_out = switch.carry_out

    def stop(*_: object) -> None:
        raise StorageError("the power went")

    with monkeypatch.context() as patch:

        def carried_out(*arguments: Any, **more: Any) -> None:
            carry_out(*arguments, **more)
            patch.setattr(switch, "discard", stop)

        patch.setattr(switch, "carry_out", carried_out)
        with pytest.raises(StorageError):
            convert(bookie, target)
    assert all((Path(path) / "VERSION").exists() for path in bookie.places().every)
    assert (bookie.current() / CONVERSION_NAME).exists()
    if runs_again:
        assert {row.state for row in convert(bookie, target)} == {"unchanged"}
    found = last_repair(FILES, bookie.places().locked)
    assert (found.record.made_by, why_not(FILES, found)) == ("bookie convert", None)
    undo(FILES, found)
    assert content(bookie) == before


def test_a_record_that_cannot_be_read_keeps_no_cookie_away(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be removed only when no conversion is cut off: that one has to come to its end."""
    bookie = make(DB, 2)
    cut_off(bookie, IDX, monkeypatch, moves=5)
    record = bookie.current() / "bkctl-repairs/20260101T000000Z/repair.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(b"{")
    with pytest.raises(RefusedError, match="the record of a repair cannot be read"):
        convert(bookie, IDX)
    assert not any(is_half_converted(FILES, path) for path in bookie.places().every)
    bookie.check(IDX)


def test_a_cookie_that_came_back_leaves_no_undo(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie may have run with it, and what the directories held before is not known then."""
    bookie = make(DB, 2)
    cookie = (bookie.current() / "VERSION").read_bytes()
    cut_off(bookie, IDX, monkeypatch, moves=5)
    for number in range(2):
        (bookie.current(number) / "VERSION").write_bytes(cookie)
    assert {row.state for row in convert(bookie, IDX)} == {"resumed"}
    assert find_repairs(FILES, bookie.places().locked) == []


def test_no_undo_when_a_bookie_has_run_in_between(make: Make) -> None:
    bookie = make(DB, 2)
    convert(bookie, IDX)
    with bookie.started(IDX):
        pass
    found = last_repair(FILES, bookie.places().locked)
    with pytest.raises(RefusedError, match="the directories have changed since the repair"):
        undo(FILES, found)
    bookie.check(IDX)


@pytest.mark.parametrize("target", [DB, IDX])
def test_a_bookie_that_was_killed_before_its_first_flush_needs_no_conversion(
    tmp_path: Path, target: StorageKind
) -> None:
    bookie = ConvertibleBookie.young(tmp_path / "bookie", 2)
    before = content(bookie)
    assert {row.state for row in convert(bookie, target)} == {"empty"}
    assert content(bookie) == before
    with bookie.started(target) as running:
        for key, body in bookie.bodies.items():
            assert running.reads.read(*key) == body


def test_an_index_that_is_lost_is_not_taken_for_one_that_never_was(make: Make) -> None:
    bookie = make(IDX, 2)
    for path in bookie.root.glob("l*/current/*/*/*.idx"):
        path.unlink()
    refused(bookie, DB, "the index was lost")
