"""Compaction by way of another disk: where it is used, and a power cut at every persistence point of it."""

from __future__ import annotations

import errno
import os
import random

import pytest

from bkctl.engine.gc.reports import PassReport
from bkctl.errors import BkctlError, BookieIOError
from bkctl.scan.directory import QUARANTINE_NAME, SCRATCH_NAME, find_directories
from bkctl.vfs.faulty import FaultRule, FileOperation
from bkctl.vfs.memory import MemoryFile, MemoryFileSystem
from tests.support.grades import times
from tests.support.storage_rig import DIRECTORY
from tests.unit.engine.gc.gc_rig import MAJOR
from tests.unit.engine.gc.power_gc_rig import PowerGcRig

SOAK = "BKCTL_SOAK" in os.environ
SCRATCH = "/s/ledgers"
ENTRIES = 8
#: Less than the live bytes of any log.
FREE_BYTES = 400


def machine() -> MemoryFileSystem:
    """A ledger directory and a scratch directory, on disks of their own."""
    disk = MemoryFileSystem()
    for path in (DIRECTORY, SCRATCH):
        disk.make_directories(path)
        disk.sync_directory(path.rpartition("/")[0])
    disk.disks = {"/l0": 1 << 20, "/s": 1 << 20}
    return disk


def used_bytes(rig: PowerGcRig) -> int:
    return rig.disk.disk_space("/l0").total_bytes - rig.disk.disk_space("/l0").free_bytes


def filled(crash_after: int | None = None, **changes: object) -> PowerGcRig:
    """Interleaved ledgers, half of them deleted, and a disk that is nearly full."""
    rig = PowerGcRig(disk=machine(), changes={"scratch_directories": (SCRATCH,), **changes})
    rig.open()
    rig.fill(range(4), ENTRIES)
    rig.cluster.live -= {0, 2}
    rig.disk.disks["/l0"] = used_bytes(rig) + FREE_BYTES
    if crash_after is not None:
        rig.faulty.crash_after = rig.faulty.points + crash_after
    return rig


def compacted(report: PassReport) -> int:
    assert (report.failure, report.set_aside_logs) == (None, 0)
    return report.compacted_logs


def check_live(rig: PowerGcRig) -> None:
    for ledger in (1, 3):
        rig.check(ledger, ENTRIES)


def scratch_files(rig: PowerGcRig) -> list[str]:
    return [name for name in rig.disk.files if name.startswith(f"{SCRATCH}/")]


def links(rig: PowerGcRig) -> list[str]:
    return [name for name in rig.log_names() if rig.disk.link_target(f"{DIRECTORY}/{name}")]


def test_a_full_disk_is_compacted_by_way_of_another() -> None:
    rig = filled()
    before = used_bytes(rig)
    # The newest log is being written and stays.
    logs = len(rig.entry_logger.settled_log_ids())
    assert compacted(rig.collect(MAJOR)) == logs
    assert used_bytes(rig) < before - 1000
    assert scratch_files(rig) == links(rig) == []
    check_live(rig)
    check_live(rig.cut(None).open_again())


def test_a_log_that_was_read_ahead_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is open, removal frees nothing: its copy could not be brought back."""
    rig = filled(entries_unflushed_max=1)
    rig.disk.disks["/l0"] += 1 << 20
    opened: list[MemoryFile] = []
    removed: list[int] = []
    still_open: list[str] = []
    open_file, remove = rig.disk.open, rig.entry_logger.remove

    def opening(path: str) -> MemoryFile:
        opened.append(open_file(path))
        return opened[-1]

    def removing(log_id: int) -> None:
        remove(log_id)
        path = rig.entry_logger.path(log_id)
        still_open.extend(file.path for file in opened if file.path == path and not file._closed)
        removed.append(log_id)
        if len(removed) == 1:
            # Somebody takes the room that the first log gives back: the next one needs the other disk.
            rig.disk.disks["/l0"] = used_bytes(rig) + FREE_BYTES

    monkeypatch.setattr(rig.disk, "open", opening)
    monkeypatch.setattr(rig.entry_logger, "remove", removing)
    assert compacted(rig.collect(MAJOR)) == len(removed) > 1
    assert any(file.path.startswith(SCRATCH) for file in opened)
    assert still_open == []
    check_live(rig)


def test_without_a_scratch_directory_the_log_stays_and_says_why() -> None:
    for changes, why in (
        ({"scratch_directories": ()}, "bytes of disk"),
        ({"scratch_directories": ("/l0",)}, "no other disk"),
        ({"scratch_directories": ("/missing",)}, "no other disk"),
        ({"free_bytes_min": 1 << 20}, "no other disk"),
    ):
        rig = filled(**changes)
        before = rig.disk.files
        assert compacted(rig.collect(MAJOR)) == 0
        assert rig.disk.files == before
        reasons = {result.reason for result in rig.collector.status().results if result.action == "left"}
        assert all(why in reason for reason in reasons), reasons
        assert reasons


def test_a_disk_with_room_needs_no_scratch() -> None:
    rig = filled()
    rig.disk.disks["/l0"] += 1 << 20
    rig.faulty.inject(FaultRule("create", lambda path: path.startswith(SCRATCH)))
    assert compacted(rig.collect(MAJOR)) > 0
    check_live(rig)


def test_the_copy_stays_where_it_is_until_there_is_room() -> None:
    """Somebody took the room that the source gave back; reads go through the link, and so does a restart."""
    rig = filled()
    cannot_be_brought_back(rig)
    assert compacted(rig.collect(MAJOR)) > 0
    assert len(links(rig)) == len(scratch_files(rig)) > 0
    check_live(rig)
    again = rig.cut(random.Random(1)).open_again()
    check_live(again)
    compacted(again.collect(MAJOR))
    assert links(again) == scratch_files(again) == []
    check_live(again)


def cannot_be_brought_back(rig: PowerGcRig) -> None:
    """The ledger directory's disk takes no copy."""
    rig.faulty.inject(
        FaultRule(
            "create", lambda path: "/l0/" in path and path.endswith(".compacting"), error_number=errno.ENOSPC
        )
    )


def test_a_scratch_disk_that_is_gone_loses_nothing_and_is_told() -> None:
    rig = filled()
    cannot_be_brought_back(rig)
    rig.collect(MAJOR)
    (first, *_) = links(rig)
    copy = rig.disk.link_target(f"{DIRECTORY}/{first}")
    assert copy is not None
    rig.faulty.heal()
    content = rig.disk.files[copy]
    rig.disk.remove(copy)
    report = rig.collect(MAJOR)
    # An entry in it is unreadable, never "no such entry", and its log is left alone.
    assert report.failure is None
    assert first in links(rig)
    unreadable = 0
    rig.forget_read_cache()
    for ledger in (1, 3):
        for entry in range(ENTRIES):
            try:
                rig.storage.read(ledger, entry)
            except BookieIOError:
                unreadable += 1
    assert unreadable > 0
    # It is mounted again.
    file = rig.disk.create(copy)
    file.write_at(0, content)
    file.sync_data()
    rig.collect(MAJOR)
    assert links(rig) == []
    check_live(rig)


def test_a_log_that_is_collected_as_a_link_leaves_no_scratch_file() -> None:
    rig = filled()
    cannot_be_brought_back(rig)
    rig.collect(MAJOR)
    assert links(rig)
    rig.cluster.live.clear()
    rig.collect()
    rig.collect()
    assert links(rig) == scratch_files(rig) == []


def test_links_of_others_are_left_alone() -> None:
    rig = filled()
    rig.disk.make_directories("/elsewhere")
    rig.disk.create("/elsewhere/7f.log").close()
    rig.disk.link_to("/elsewhere/7f.log", f"{DIRECTORY}/7f.log")
    place = f"{SCRATCH}/{SCRATCH_NAME}/0123456789abcdef"
    rig.disk.make_directories(place)
    rig.disk.create(f"{place}/1.log.compacting").close()
    rig.collect()
    assert "/elsewhere/7f.log" in rig.disk.files
    assert f"{place}/1.log.compacting" in rig.disk.files, "it is another ledger directory's"


def waiting(rig: PowerGcRig) -> tuple[str, str]:
    """A log that is still a link after a collection, and the copy it leads to."""
    cannot_be_brought_back(rig)
    rig.collect(MAJOR)
    rig.faulty.heal()
    path = f"{DIRECTORY}/{links(rig)[0]}"
    copy = rig.disk.link_target(path)
    assert copy is not None
    return path, copy


def test_a_log_is_home_for_good_before_its_copy_goes() -> None:
    """The scratch disk remembers the removal, whatever the other disk has forgotten."""
    rig = filled()
    # Nothing that comes later in a pass may make the name durable.
    rig.collector._compactions._by_scratch.compact(
        rig.entry_logger.settled_log_ids()[0], {0, 2}, scratch=SCRATCH
    )
    assert links(rig) == scratch_files(rig) == []
    (tag,) = {path.split("/")[4] for path in rig.disk._durable_names if SCRATCH_NAME in path}
    rig.disk.sync_directory(f"{SCRATCH}/{SCRATCH_NAME}/{tag}")
    check_live(rig.cut(None).open_again())


def test_a_copy_is_not_removed_before_the_log_that_came_home_is_there_for_good() -> None:
    """A kill after the rename, a pass of the next start, then a power cut."""
    rig = filled()
    path, copy = waiting(rig)
    file = rig.disk.create(f"{path}.compacting")
    file.write_at(0, rig.disk.files[copy])
    file.sync_data()
    file.close()
    rig.disk.rename(f"{path}.compacting", path)
    cannot_be_brought_back(rig)
    rig.collect()
    assert copy not in rig.disk.files
    rig.disk.sync_directory(copy.rpartition("/")[0])
    check_live(rig.cut(None).open_again())


def test_a_copy_that_was_linked_by_another_way_to_the_scratch_directory_stays() -> None:
    """A mount that was moved, or a symbolic link to it: the same file has another path then."""
    rig = filled()
    path, copy = waiting(rig)
    rig.disk.make_directories("/s/alias")
    other = f"/s/alias/{copy.rpartition('/')[2]}"
    rig.disk.link(copy, other)
    rig.disk.remove(path)
    rig.disk.link_to(other, path)
    cannot_be_brought_back(rig)
    rig.collect()
    assert copy in rig.disk.files


def test_the_copy_of_a_log_in_quarantine_stays_until_that_comes_back() -> None:
    """It was taken out of sight by its link, which 'entrylog quarantine' gives another name."""
    rig = filled()
    path, copy = waiting(rig)
    quarantined = f"{DIRECTORY}/{QUARANTINE_NAME}/{path.rpartition('/')[2]}"
    rig.disk.make_directories(f"{DIRECTORY}/{QUARANTINE_NAME}")
    for source, target in ((path, quarantined), (quarantined, path)):
        rig.disk.link(source, target)
        rig.disk.remove(source)
        cannot_be_brought_back(rig)
        rig.collect()
        assert copy in rig.disk.files
    check_live(rig)


def test_a_copy_stays_while_a_link_cannot_be_read() -> None:
    """It may be the link to that copy."""
    rig = filled()
    path, copy = waiting(rig)
    rig.faulty.inject(FaultRule("list", path))
    report = rig.collect()
    assert report.failure is None
    assert copy in rig.disk.files
    rig.faulty.heal()
    rig.collect()
    check_live(rig)


def test_a_search_for_bookies_finds_the_log_by_its_link_alone() -> None:
    rig = filled()
    path, _ = waiting(rig)
    (found,) = find_directories(rig.disk, "/")
    assert found.path == DIRECTORY
    assert [log.compaction for log in found.logs if log.path == path] == [False]


def test_a_scratch_disk_that_fails_does_not_stop_the_collection() -> None:
    rig = filled()
    waiting(rig)
    rig.faulty.inject(FaultRule("list", lambda path: path.startswith(SCRATCH)))
    rig.cluster.live.remove(1)
    report = rig.collect()
    assert (report.failure, report.deleted_ledgers) == (None, 1)


@pytest.mark.parametrize("operation", ["make_directories", "create", "write", "rename"])
def test_a_scratch_disk_that_fails_does_not_keep_logs_with_room_from_being_compacted(
    operation: FileOperation,
) -> None:
    rig = filled()
    way_of, by_scratch = rig.collector._compactions._way_of, []

    def room_behind_the_first(usage):  # type: ignore[no-untyped-def]
        if len(by_scratch) == 1:
            rig.disk.disks["/l0"] += 1 << 20
        by_scratch.append(usage.log_id)
        return way_of(usage)

    rig.collector._compactions._way_of = room_behind_the_first  # type: ignore[method-assign]
    rig.faulty.inject(FaultRule(operation, lambda path: path.startswith(SCRATCH), error_number=errno.EROFS))
    report = rig.collect(MAJOR)
    assert report.failure is None
    assert report.compacted_logs == len(by_scratch) - 1 > 0
    assert f"{by_scratch[0]:x}.log" in rig.log_names()
    check_live(rig)
    rig.faulty.heal()
    assert compacted(rig.collect(MAJOR))
    assert f"{by_scratch[0]:x}.log" not in rig.log_names()
    check_live(rig)


def test_a_scratch_disk_that_fails_behind_a_link_gets_no_other_log_in_that_pass() -> None:
    """Rows that lead there cannot be read until the disk works again."""
    rig = filled()
    rig.faulty.inject(FaultRule("open", lambda path: path.startswith(SCRATCH) and path.endswith("compacted")))
    assert rig.collect(MAJOR).failure
    assert len(links(rig)) == 1
    rig.faulty.heal()
    compacted(rig.collect(MAJOR))
    check_live(rig)


def test_a_link_that_may_not_be_durable_is_not_relied_on() -> None:
    """The sync of the directory fails once; asked again it would say that all is well."""
    rig = filled()
    # The first one is that of lastId.
    rig.faulty.inject(FaultRule("sync_directory", DIRECTORY, first=2, count=1))
    assert rig.collect(MAJOR).failure
    assert rig.failures
    assert rig.collect(MAJOR).failure
    check_live(rig.cut(None).open_again())


def test_bookies_that_see_the_same_path_never_share_a_place() -> None:
    places = []
    for cookie in (None, b'4\nbookieHost: "a:3181"\n', b'4\nbookieHost: "b:3181"\n'):
        rig = filled()
        if cookie is not None:
            rig.disk.replace(f"{DIRECTORY}/VERSION", cookie)
            rig = rig.cut(None).open_again()
            rig.disk.disks["/l0"] = used_bytes(rig) + FREE_BYTES
        places.append(waiting(rig)[1].rpartition("/")[0])
        check_live(rig)
    assert len(set(places)) == 3


def points() -> int:
    rig = filled()
    before = rig.faulty.points
    assert compacted(rig.collect(MAJOR)) > 1
    return rig.faulty.points - before


def cut_at(point: int, seed: int) -> None:
    """A cut while collecting, then up to two more while the rest is done."""
    chance = random.Random(f"{point}:{seed}")
    rig = filled(crash_after=point)
    for _ in range(1 + seed % 3):
        try:
            rig.collect(MAJOR)
        except BkctlError:
            assert rig.faulty.crashed
        rig = rig.cut(chance.choice((None, chance)), crash_after=chance.randrange(25))
        try:
            rig.open()
        except BkctlError:
            assert rig.faulty.crashed
    rig = rig.cut(chance.choice((None, chance))).open_again()
    check_live(rig)
    for _ in range(2):
        compacted(rig.collect(MAJOR))
        check_live(rig)
    assert links(rig) == scratch_files(rig) == []
    assert not [name for name in rig.log_names() if "compact" in name]
    for key, _ in list(rig.location_rows.iterate()):
        assert rig.storage.read(int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big"))[:16] == key


def test_a_cut_at_every_point_loses_nothing() -> None:
    total = points()
    assert total > 50
    for point in range(total):
        for seed in range(12 if SOAK else times(1, 2)):
            try:
                cut_at(point, seed)
            except BaseException:
                print(f"failed: cut_at({point}, {seed})")
                raise


def test_a_mutant_that_frees_the_source_before_the_link_loses_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bkctl.engine.gc import scratch_compactor

    def hasty(
        self: scratch_compactor.ScratchCompactor, target: int, source: int, copy: str, *, is_all: bool
    ) -> None:
        self._remove_log(source)
        finish(self, target, source, copy, is_all=is_all)

    finish = scratch_compactor.ScratchCompactor._finish
    monkeypatch.setattr(scratch_compactor.ScratchCompactor, "_finish", hasty)
    lost = 0
    for point in range(points()):
        try:
            cut_at(point, 0)
        except (AssertionError, BkctlError):
            lost += 1
    assert lost
