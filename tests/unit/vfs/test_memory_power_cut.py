"""What a power cut leaves of a file system in memory: no more than POSIX promises, and no less."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.errors import NotFoundError, StorageError
from bkctl.vfs import NoSpaceError, SyncError
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from bkctl.vfs.volatile import SECTOR_BYTES

SEEDS = range(300)


def started(**files: bytes) -> MemoryFileSystem:
    system = MemoryFileSystem({f"/d/{name}": content for name, content in files.items()})
    system.make_directories("/d")
    return system


def put(system: MemoryFileSystem, path: str, offset: int, data: bytes, *, sync: bool = False) -> None:
    file = system.open_to_write(path) if system.status(path) else system.create(path)
    file.write_at(offset, data)
    if sync:
        file.sync_data()
    file.close()


def remains(system: MemoryFileSystem) -> Iterator[MemoryFileSystem]:
    """What is left for many chances."""
    return (system.crash(random.Random(seed)) for seed in SEEDS)


def sectors(content: bytes) -> list[bytes]:
    return [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]


def test_bytes_are_durable_when_their_file_was_synced() -> None:
    system = started(f=b"old")
    put(system, "/d/f", 0, b"new and longer", sync=True)
    put(system, "/d/f", 4, b"cut")
    assert system.files["/d/f"] == b"new cut longer"
    assert system.crash().files["/d/f"] == b"new and longer"
    # Another handle's sync is as good.
    put(system, "/d/f", 0, b"", sync=True)
    assert system.crash().files["/d/f"] == b"new cut longer"


def test_a_synced_file_without_a_synced_name_is_gone() -> None:
    system = started()
    put(system, "/d/f", 0, b"content", sync=True)
    assert system.crash().files == {}
    system.sync_directory("/d")
    assert system.crash().files == {"/d/f": b"content"}


def test_a_synced_name_does_not_make_its_bytes_durable() -> None:
    system = started()
    put(system, "/d/f", 0, b"content")
    system.sync_directory("/d")
    assert system.crash().files == {"/d/f": b""}


def test_renames_and_removals_wait_for_the_directory() -> None:
    system = started(a=b"a", b=b"b", c=b"c")
    system.rename("/d/a", "/d/b")
    system.remove("/d/c")
    assert system.files == {"/d/b": b"a"}
    assert system.crash().files == {"/d/a": b"a", "/d/b": b"b", "/d/c": b"c"}
    system.sync_directory("/d")
    assert system.crash().files == {"/d/b": b"a"}


def test_a_directory_speaks_for_its_own_names_only() -> None:
    system = started(f=b"content")
    system.make_directories("/e")
    put(system, "/e/g", 0, b"", sync=True)
    system.rename("/d/f", "/e/f")
    system.sync_directory("/")
    assert system.crash().files == {"/d/f": b"content"}
    system.sync_directory("/e")
    assert system.crash().files == {"/d/f": b"content", "/e/f": b"content", "/e/g": b""}
    system.sync_directory("/d")
    assert system.crash().files == {"/e/f": b"content", "/e/g": b""}


def test_a_rename_synced_where_it_came_from_only_loses_the_file() -> None:
    system = started(f=b"content")
    system.make_directories("/e")
    system.rename("/d/f", "/e/f")
    system.sync_directory("/d")
    assert system.crash().files == {}


def test_directories_are_durable_when_made() -> None:
    system = MemoryFileSystem()
    system.make_directories("/a/b")
    left = system.crash()
    assert left.names("/a/b") == []
    left.create("/a/b/f").close()


def test_what_is_left_is_a_file_system_of_its_own() -> None:
    system = started(f=b"content")
    left = system.crash()
    put(left, "/d/f", 0, b"CONTENT", sync=True)
    held = system.open_to_write("/d/f")
    held.write_at(0, b"later")
    held.sync()
    assert system.files == {"/d/f": b"laternt"}
    assert left.files == left.crash().files == {"/d/f": b"CONTENT"}
    assert left.disk_space("/d").device == system.disk_space("/d").device
    assert left.disk_space("/d").device != MemoryFileSystem().disk_space("/").device


def test_everything_left_is_durable() -> None:
    system = started(f=b"1" * 5000)
    put(system, "/d/f", 1000, b"2" * 9000)
    put(system, "/d/g", 0, b"3" * 3000)
    for left in remains(system):
        assert left.crash().files == left.crash(random.Random(1)).files == left.files


def test_equal_chances_leave_equal_remains() -> None:
    def run(seed: int) -> dict[str, bytes]:
        system = started(f=bytes(5000))
        put(system, "/d/f", 100, b"2" * 9000)
        put(system, "/d/g", 0, b"3" * 3000)
        system.replace("/d/h", b"content")
        left = system.crash(random.Random(seed)).files
        # The temporary name is the one thing that is not repeated.
        return {path: content for path, content in left.items() if not path.endswith(".tmp")}

    assert all(run(seed) == run(seed) for seed in SEEDS)
    assert len({tuple(sorted(run(seed).items())) for seed in SEEDS}) > 50


def test_any_sectors_of_one_write_survive() -> None:
    old, new = b"o" * 4 * SECTOR_BYTES, b"n" * 4 * SECTOR_BYTES
    system = started(f=old)
    put(system, "/d/f", 0, new)
    seen = set()
    for left in remains(system):
        found = sectors(left.files["/d/f"])
        assert all(sector in (old[:SECTOR_BYTES], new[:SECTOR_BYTES]) for sector in found)
        seen.add("".join(chr(sector[0]) for sector in found))
    assert len(seen) == 16


def test_a_sector_may_stop_at_any_write_to_it() -> None:
    system = started(f=b"0" * 600)
    for letter in b"123":
        put(system, "/d/f", 10, bytes([letter]) * 5)
    put(system, "/d/f", 100, b"z" * 5)
    seen = set()
    for left in remains(system):
        content = left.files["/d/f"]
        assert content[:10] + content[15:100] == b"0" * 95
        assert content[105:] == b"0" * 495
        seen.add((content[10:15], content[100:105]))
    states = [b"0" * 5, b"1" * 5, b"2" * 5, b"3" * 5]
    # One sector takes its writes in their order.
    assert seen == {*((state, b"0" * 5) for state in states), (b"3" * 5, b"z" * 5)}


def test_synced_bytes_survive_whatever_is_written_behind_them() -> None:
    system = started(f=b"")
    put(system, "/d/f", 0, b"s" * 700, sync=True)
    put(system, "/d/f", 700, b"u" * 2000)
    lengths = set()
    endings = set()
    for left in remains(system):
        content = left.files["/d/f"]
        assert content[:700] == b"s" * 700
        assert set(content[700:]) <= set(b"u\0")
        lengths.add(len(content))
        endings.add((len(content) == 2700, content[-1:]))
    assert {700, 2700} <= lengths
    assert any(length % SECTOR_BYTES == 0 for length in lengths)
    # The length may be on the disk before the bytes that it counts.
    assert {(True, b"u"), (True, b"\0"), (False, b"u")} <= endings
    assert min(lengths) == 700
    assert max(lengths) == 2700


def test_a_hole_before_unsynced_bytes_reads_as_zeros() -> None:
    system = started(f=b"12")
    put(system, "/d/f", 3000, b"tail")
    for left in remains(system):
        content = left.files["/d/f"]
        assert content[:2] == b"12"
        assert content[2:3000].strip(b"\0") == b""
        assert content[3000:] in {b"tail"[:size] for size in range(5)} | {bytes(size) for size in range(5)}


def test_names_survive_or_not_but_a_rename_is_whole() -> None:
    system = started(a=b"a", b=b"b")
    system.rename("/d/a", "/d/b")
    put(system, "/d/new", 0, b"", sync=True)
    seen = {tuple(sorted(left.files.items())) for left in remains(system)}
    before, after, new = (("/d/a", b"a"), ("/d/b", b"b")), (("/d/b", b"a"),), (("/d/new", b""),)
    assert seen == {before, after, before + new, after + new}


def test_a_replaced_file_has_one_of_its_contents_at_every_point() -> None:
    """The old or the new one, whichever step the power fails at, and the new one when it has returned."""
    old, new = b"old" * 400, b"new" * 700
    seen = set()
    for point in range(6):
        system = started(f=old)
        faulty = FaultyFileSystem(system, crash_after=point)
        if point < 5:
            with pytest.raises(StorageError, match="has stopped"):
                faulty.replace("/d/f", new)
        else:
            faulty.replace("/d/f", new)
            assert faulty.points == 5
        for left in [system.crash(), *remains(system)]:
            seen.add((point, left.files["/d/f"]))
    assert {content for _, content in seen} == {old, new}
    assert [content for point, content in seen if point == 5] == [new]
    assert (4, old) in seen
    assert (4, new) in seen
    assert {content for point, content in seen if point < 4} == {old}


def test_a_failed_sync_loses_its_bytes_for_later_syncs_too() -> None:
    """Linux marks the pages clean: reads see them, the next fsync succeeds, the disk never gets them."""
    system = started(f=b"0" * 2000)
    faulty = FaultyFileSystem(system, [FaultRule("sync", "/f", count=1)])
    file = faulty.open_to_write("/d/f")
    file.write_at(0, b"lost")
    with pytest.raises(SyncError):
        file.sync_data()
    file.write_at(1000, b"kept")
    file.sync_data()
    assert file.read_at(0, 4) == b"lost"
    for left in [system.crash(), *remains(system)]:
        assert left.files["/d/f"] == b"0" * 1000 + b"kept" + b"0" * 996


@given(st.data())
def test_no_more_and_no_less_than_was_synced(data: st.DataObject) -> None:
    """A random history beside a plain model: without a chance exactly the synced state is left."""
    system = started()
    paths = [f"/d/{letter}" for letter in "abc"]
    names: dict[str, int] = {}
    durable_names: dict[str, int] = {}
    bodies: list[bytes] = []
    synced: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 25))):
        path = data.draw(st.sampled_from(paths))
        step = data.draw(st.sampled_from(["write", "write", "sync", "rename", "remove", "directory"]))
        if step == "directory":
            system.sync_directory("/d")
            durable_names = dict(names)
        elif path not in names:
            system.create(path).close()
            names[path] = len(bodies)
            bodies.append(b"")
            synced.append(b"")
        elif step == "write":
            offset, size = data.draw(st.integers(0, 1500)), data.draw(st.integers(1, 1500))
            body = bodies[names[path]].ljust(offset, b"\0")
            content = bytes([len(names) + offset % 200]) * size
            put(system, path, offset, content)
            bodies[names[path]] = body[:offset] + content + body[offset + size :]
        elif step == "sync":
            put(system, path, 0, b"", sync=True)
            synced[names[path]] = bodies[names[path]]
        elif step == "rename":
            target = data.draw(st.sampled_from(paths))
            system.rename(path, target)
            names[target] = names.pop(path)
        else:
            system.remove(path)
            del names[path]
    assert system.files == {path: bodies[body] for path, body in names.items()}
    assert system.crash().files == {path: synced[body] for path, body in durable_names.items()}
    for path, content in system.crash(random.Random(data.draw(st.integers(0, 99)))).files.items():
        if path in durable_names and names.get(path) == durable_names[path]:
            assert len(content) >= len(synced[names[path]])


# ---------------------------------------------------------------------------------------- a bounded disk


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    system = MemoryFileSystem({"/d/f": b"1" * 60}, capacity_bytes=100)
    assert system.disk_space("/d").free_bytes == 40
    assert system.disk_space("/d").total_bytes == 100
    file = system.open_to_write("/d/f")
    file.write_at(0, b"2" * 60)
    with pytest.raises(NoSpaceError) as caught:
        file.write_at(50, b"3" * 51)
    assert (caught.value.path, caught.value.offset) == ("/d/f", 50)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert file.read_at(0, 200) == b"2" * 50 + b"3" * 50
    assert system.disk_space("/d").free_bytes == 0
    file.write_at(0, b"4" * 100)
    file.sync_data()
    for call in (lambda: system.create("/d/g"), lambda: system.replace("/d/f", b"")):
        with pytest.raises(NoSpaceError):
            call()
    system.capacity_bytes = None
    file.write_at(100, b"5" * 900)
    assert file.size_bytes == 1000
    file.close()


def test_a_replace_on_a_full_disk_leaves_nothing_behind() -> None:
    system = MemoryFileSystem({"/d/f": b"old"}, capacity_bytes=10)
    with pytest.raises(NoSpaceError):
        system.replace("/d/f", b"0123456789")
    assert system.files == {"/d/f": b"old"}
    system.replace("/d/f", b"7 bytes")
    assert system.files == {"/d/f": b"7 bytes"}


def test_removing_makes_room_and_the_bound_survives_a_crash() -> None:
    system = MemoryFileSystem({"/d/f": b"1" * 60}, capacity_bytes=100)
    system.remove("/d/f")
    assert system.disk_space("/d").free_bytes == 100
    left = system.crash()
    assert left.disk_space("/d").free_bytes == 40
    assert left.capacity_bytes == 100


# ------------------------------------------------------------------------------------------------ threads


def test_threads_write_sync_and_crash_at_once() -> None:
    system = started()
    errors: list[StorageError | NotFoundError] = []

    def write(name: str) -> None:
        try:
            file = system.create(f"/d/{name}")
            system.sync_directory("/d")
            for at in range(200):
                file.write_at(at * 10, bytes([at]) * 10)
                if at % 10 == 9:
                    file.sync_data()
            file.close()
        except (StorageError, NotFoundError) as error:
            errors.append(error)

    def crash() -> None:
        for seed in range(50):
            system.crash(random.Random(seed))
            system.names("/d")

    targets: list[Callable[[], None]] = [*(lambda name=name: write(name) for name in "abc"), crash]
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors
    whole = b"".join(bytes([at]) * 10 for at in range(200))
    assert system.crash().files == {f"/d/{name}": whole for name in "abc"}
