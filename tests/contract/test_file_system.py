"""One behaviour suite over every WritableFileSystem."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bkctl.errors import BkctlError, NotFoundError, StorageError
from bkctl.vfs import NoSpaceError, PosixFileSystem, SyncError, WritableFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem


@dataclass
class Place:
    """A file system and an empty directory in it."""

    system: WritableFileSystem
    root: str

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, content: bytes) -> str:
        file = self.system.create(self.at(name))
        file.write_at(0, content)
        file.close()
        return self.at(name)

    def read(self, name: str) -> bytes:
        file = self.system.open(self.at(name))
        try:
            return file.read_at(0, 1 << 20)
        finally:
            file.close()


@pytest.fixture(params=["posix", "memory", "faulty posix", "faulty memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    system: WritableFileSystem = PosixFileSystem() if "posix" in request.param else MemoryFileSystem()
    if "faulty" in request.param:
        system = FaultyFileSystem(system)
    root = str(tmp_path / "here")
    system.make_directories(root)
    return Place(system, root)


def test_what_is_written_is_read(place: Place) -> None:
    file = place.system.create(place.at("f"))
    assert file.path == place.at("f")
    assert file.size_bytes == 0
    file.write_at(0, b"abcdef")
    file.write_at(2, bytearray(b"XY"))
    file.write_at(8, memoryview(b"--tail--")[2:6])
    file.write_at(1, b"")
    assert file.size_bytes == 12
    assert file.read_at(0, 100) == b"abXYef\0\0tail"
    assert file.read_at(4, 3) == b"ef\0"
    assert file.read_at(12, 5) == b""
    assert file.read_at(99, 5) == b""
    file.write_back(2, 7)
    file.write_back(0, 1 << 20)
    file.sync_data()
    file.sync()
    file.close()
    assert place.read("f") == b"abXYef\0\0tail"


@pytest.mark.parametrize("sizes", [[512], [100, 412], [7] * 512, [1 << 18, 512, 512], [0, 1024], [511], []])
@pytest.mark.parametrize("offset", [0, 512, 1 << 18, 5])
def test_what_is_written_past_the_cache_is_read(place: Place, offset: int, sizes: list[int]) -> None:
    file = place.system.create(place.at("f"))
    file.write_at(0, b"a" * 700)
    pieces = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
    content = b"".join(pieces)
    expected = bytearray(b"a" * 700)

    def put(at: int, data: bytes) -> None:
        if data:
            expected.extend(bytes(max(at - len(expected), 0)))
            expected[at : at + len(data)] = data

    for _ in range(2):
        file.write_direct(offset, pieces)
    put(offset, content)
    assert file.read_at(0, 4 << 20) == bytes(expected)
    # As usual in the same page, and past the cache over that.
    file.write_at(offset + 3, b"between")
    put(offset + 3, b"between")
    file.write_direct(offset, pieces)
    put(offset, content)
    file.sync_data()
    assert file.read_at(0, 4 << 20) == bytes(expected)
    file.close()
    assert place.read("f") == bytes(expected)


@pytest.mark.parametrize("sizes", [[512], [100, 412], [1 << 18, 512, 512], [0, 1024], [511], [7], []])
@pytest.mark.parametrize("offset", [0, 512, 5])
@pytest.mark.parametrize("direct", [False, True])
def test_what_is_written_and_synced_in_one_call_is_there(
    place: Place, offset: int, sizes: list[int], direct: bool
) -> None:
    pieces = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
    content = b"".join(pieces)
    file = place.system.create(place.at("f"))
    file.write_at(0, b"a" * 600)
    for _ in range(2):
        assert 0 <= file.write_synced(offset, pieces, direct=direct) < 60
    expected = (b"a" * 600)[:offset].ljust(offset, b"\0") + content + (b"a" * 600)[offset + len(content) :]
    assert file.read_at(0, 1 << 20) == expected
    file.close()
    assert place.read("f") == expected


def test_the_time_of_a_sync_is_that_of_the_sync_alone() -> None:
    slow = [
        FaultRule("write", "f", latency_s=0.2, error_number=None),
        FaultRule("sync", "f", latency_s=0.05, error_number=None),
    ]
    file = FaultyFileSystem(MemoryFileSystem(), slow).create("/f")
    for direct in (False, True):
        assert 0.05 <= file.write_synced(0, [b"x"], direct=direct) < 0.2


def test_a_large_write_arrives_whole(place: Place) -> None:
    content = bytes(range(256)) * 12_000
    place.write("f", content)
    file = place.system.open(place.at("f"))
    assert file.size_bytes == len(content)
    assert file.read_at(0, len(content)) == content
    assert file.read_at(1_000_001, 70_000) == content[1_000_001:1_070_001]
    file.close()


def test_a_reader_sees_later_bytes_and_keeps_the_size_it_found(place: Place) -> None:
    place.write("f", b"12345")
    reader = place.system.open(place.at("f"))
    writer = place.system.open_to_write(place.at("f"))
    writer.write_at(3, b"xyz")
    assert (reader.size_bytes, writer.size_bytes) == (5, 6)
    assert reader.read_at(0, 5) == b"123xy"
    assert reader.read_at(0, 10) == b"123xyz"
    reader.close()
    writer.close()


def test_two_writers_see_each_other(place: Place) -> None:
    place.write("f", b"")
    files = [place.system.open_to_write(place.at("f")) for _ in range(2)]
    files[0].write_at(0, b"one")
    files[1].write_at(3, b"two")
    assert [file.size_bytes for file in files] == [6, 6]
    assert files[0].read_at(0, 6) == b"onetwo"
    for file in files:
        file.close()


def test_an_existing_file_keeps_its_content_when_opened(place: Place) -> None:
    place.write("f", b"content")
    file = place.system.open_to_write(place.at("f"))
    assert file.size_bytes == 7
    file.close()
    assert place.read("f") == b"content"


@pytest.mark.parametrize("open_", ["open", "open_to_write"])
def test_what_cannot_be_opened(place: Place, open_: str) -> None:
    opener: Callable[[str], object] = getattr(place.system, open_)
    with pytest.raises(NotFoundError, match="none"):
        opener(place.at("none"))
    with pytest.raises(NotFoundError):
        opener(place.at("none/f"))
    with pytest.raises(StorageError) as caught:
        opener(place.root)
    assert caught.value.path == place.root


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["NUL", "half of a surrogate"])
def test_a_name_that_no_file_can_have_is_not_there(place: Place, name: str) -> None:
    """Cookies and configurations may hold such names."""
    assert place.system.status(place.at(name)) is None
    for open_ in (place.system.open, place.system.open_to_write, place.system.names):
        with pytest.raises(NotFoundError):
            open_(place.at(name))


def test_creating_where_it_cannot_be(place: Place) -> None:
    place.write("f", b"content")
    place.system.make_directories(place.at("d"))
    for name in ("f", "d", "none/f", "f/f"):
        with pytest.raises(StorageError) as caught:
            place.system.create(place.at(name))
        assert caught.value.path == place.at(name)
        assert not isinstance(caught.value, NoSpaceError | SyncError)
    assert place.read("f") == b"content"
    assert place.system.names(place.root) == ["d", "f"]


def test_a_closed_file_does_nothing(place: Place) -> None:
    writer = place.system.create(place.at("f"))
    reader = place.system.open(place.at("f"))
    calls: list[Callable[[], object]] = [
        lambda: reader.read_at(0, 1),
        lambda: writer.read_at(0, 1),
        lambda: writer.write_at(0, b"x"),
        lambda: writer.write_direct(0, [b"x" * 512]),
        lambda: writer.write_synced(0, [b"x" * 512], direct=False),
        lambda: writer.write_synced(0, [b"x" * 512], direct=True),
        lambda: writer.size_bytes,
        writer.sync,
        writer.sync_data,
        lambda: writer.write_back(0, 1),
    ]
    for file in (reader, writer):
        file.close()
        file.close()
    for call in calls:
        with pytest.raises(StorageError):
            call()
    assert place.read("f") == b""


def test_replace(place: Place) -> None:
    for content in (b"first", b"", b"a longer third one"):
        place.system.replace(place.at("f"), content)
        assert place.read("f") == content
        assert place.system.names(place.root) == ["f"]


def test_a_replace_that_fails_leaves_what_was_there(place: Place) -> None:
    place.system.make_directories(place.at("d"))
    for name in ("d", "none/f"):
        with pytest.raises(StorageError):
            place.system.replace(place.at(name), b"content")
    assert place.system.names(place.root) == ["d"]
    assert place.system.names(place.at("d")) == []


def test_replaces_at_once_leave_one_of_the_contents(place: Place) -> None:
    contents = [bytes([letter]) * 5000 for letter in b"abcd"]
    errors: list[BkctlError] = []

    def replace(content: bytes) -> None:
        try:
            for _ in range(10):
                place.system.replace(place.at("f"), content)
        except BkctlError as error:
            errors.append(error)

    threads = [threading.Thread(target=replace, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors
    assert place.read("f") in contents
    assert place.system.names(place.root) == ["f"]


def test_rename(place: Place) -> None:
    place.write("a", b"content of a")
    place.write("b", b"content of b")
    place.system.make_directories(place.at("d"))
    held = place.system.open(place.at("b"))
    place.system.rename(place.at("a"), place.at("b"))
    assert place.read("b") == b"content of a"
    assert held.read_at(0, 100) == b"content of b"
    held.close()
    place.system.rename(place.at("b"), place.at("b"))
    place.system.rename(place.at("b"), place.at("d/c"))
    assert place.system.names(place.root) == ["d"]
    assert place.read("d/c") == b"content of a"


def test_a_second_name(place: Place) -> None:
    place.write("a", b"content")
    place.system.link(place.at("a"), place.at("b"))
    place.system.remove(place.at("a"))
    assert place.read("b") == b"content"
    place.write("c", b"other")
    with pytest.raises(StorageError):
        place.system.link(place.at("b"), place.at("c"))
    assert place.read("c") == b"other"
    with pytest.raises(NotFoundError):
        place.system.link(place.at("none"), place.at("d"))


def test_a_symbolic_link(place: Place) -> None:
    place.system.make_directories(place.at("there"))
    target = place.write("there/f", b"content")
    place.system.link_to(target, place.at("l"))
    assert place.read("l") == b"content"
    assert place.system.link_target(place.at("l")) == target
    assert place.system.link_target(target) is None
    assert place.system.link_target(place.at("missing")) is None
    assert "l" in place.system.names(place.root)
    status = place.system.status(place.at("l"))
    assert status is not None
    assert status.size_bytes == 7
    with pytest.raises(StorageError):
        place.system.link_to(target, place.at("l"))
    # A file that is renamed to it takes its place, and leaves the target alone.
    place.write("g", b"other")
    place.system.rename(place.at("g"), place.at("l"))
    assert place.system.link_target(place.at("l")) is None
    assert (place.read("l"), place.read("there/f")) == (b"other", b"content")
    place.system.link_to(target, place.at("m"))
    place.system.remove(place.at("m"))
    assert place.read("there/f") == b"content"
    place.system.link_to(place.at("nowhere"), place.at("n"))
    assert place.system.status(place.at("n")) is None
    # "Not there" would let readers take what is on a disk that is not mounted for removed.
    with pytest.raises(StorageError, match="is its disk mounted") as caught:
        place.system.open(place.at("n"))
    assert not isinstance(caught.value, NotFoundError)
    assert caught.value.path == place.at("n")


def test_a_symbolic_link_is_a_name_like_any_other_in_a_power_cut() -> None:
    system = MemoryFileSystem({"/a/f": b"x", "/b/g": b"y"})
    system.link_to("/a/f", "/b/l")
    assert system.crash().link_target("/b/l") is None
    system.sync_directory("/b")
    left = system.crash()
    assert left.link_target("/b/l") == "/a/f"
    assert left.open("/b/l").read_at(0, 9) == b"x"


def test_directories_on_disks_of_their_own() -> None:
    system = MemoryFileSystem({"/a/f": b"x" * 10, "/b/g": b"y"})
    system.disks = {"/a": 15, "/b": 1000}
    assert system.disk_space("/a").free_bytes == 5
    assert system.disk_space("/a").device != system.disk_space("/b").device != system.disk_space("/").device
    with pytest.raises(NoSpaceError):
        system.create("/a/h").write_at(0, b"123456")
    for call in (system.rename, system.link):
        with pytest.raises(StorageError, match="cross-device"):
            call("/b/g", "/a/g")
    assert system.crash().disk_space("/b").total_bytes == 1000


def test_a_rename_that_cannot_be(place: Place) -> None:
    place.write("a", b"content")
    place.system.make_directories(place.at("d"))
    with pytest.raises(NotFoundError):
        place.system.rename(place.at("none"), place.at("b"))
    for name in ("d", "none/b", "a/b"):
        with pytest.raises(StorageError):
            place.system.rename(place.at("a"), place.at(name))
    assert place.read("a") == b"content"
    assert place.system.names(place.root) == ["a", "d"]


def test_remove_directory(place: Place) -> None:
    system = place.system
    system.make_directories(place.at("d/below"))
    with pytest.raises(StorageError):
        system.remove_directory(place.at("d"))
    system.remove_directory(place.at("d/below"))
    place.write("d/f", b"1")
    with pytest.raises(StorageError):
        system.remove_directory(place.at("d"))
    with pytest.raises(StorageError):
        system.remove_directory(place.at("d/f"))
    system.remove(place.at("d/f"))
    system.remove_directory(place.at("d"))
    system.sync_directory(place.root)
    assert system.status(place.at("d")) is None
    with pytest.raises(NotFoundError):
        system.remove_directory(place.at("d"))


def test_remove(place: Place) -> None:
    place.write("a", b"content")
    held = place.system.open(place.at("a"))
    place.system.remove(place.at("a"))
    assert place.system.status(place.at("a")) is None
    assert place.system.names(place.root) == []
    assert held.read_at(0, 100) == b"content"
    held.close()
    with pytest.raises(NotFoundError):
        place.system.remove(place.at("a"))
    place.system.make_directories(place.at("d"))
    with pytest.raises(StorageError):
        place.system.remove(place.at("d"))
    place.write("a", b"another")
    assert place.read("a") == b"another"


def test_make_directories(place: Place) -> None:
    for _ in range(2):
        place.system.make_directories(place.at("one/two/three"))
    place.system.make_directories(place.at("one/four/"))
    assert place.system.names(place.at("one")) == ["four", "two"]
    assert place.system.names(place.at("one/two/three")) == []
    status = place.system.status(place.at("one/two"))
    assert status is not None
    assert status.is_dir
    place.write("one/two/three/f", b"content")
    for name in ("one/two/three/f", "one/two/three/f/deeper/still"):
        with pytest.raises(StorageError):
            place.system.make_directories(place.at(name))
    assert place.read("one/two/three/f") == b"content"


def test_status_and_names(place: Place) -> None:
    assert place.system.status(place.at("none")) is None
    assert place.system.status(place.at("none/none")) is None
    place.write("b", b"12345")
    place.write("a", b"")
    status = place.system.status(place.at("b"))
    assert status is not None
    assert (status.is_dir, status.size_bytes) == (False, 5)
    assert place.system.status(place.at("b/f")) is None
    assert place.system.names(place.root) == place.system.names(place.root + "/") == ["a", "b"]
    with pytest.raises(NotFoundError):
        place.system.names(place.at("none"))
    with pytest.raises(StorageError):
        place.system.names(place.at("b"))


def test_sync_directory(place: Place) -> None:
    place.write("f", b"")
    place.system.sync_directory(place.root)
    for name in ("none", "f"):
        with pytest.raises(StorageError) as caught:
            place.system.sync_directory(place.at(name))
        assert caught.value.path == place.at(name)


def test_disk_space(place: Place) -> None:
    place.write("f", b"12345")
    here, there = (place.system.disk_space(path) for path in (place.root, place.at("f")))
    assert here.device == there.device
    assert here.total_bytes == there.total_bytes
    assert 0 < here.free_bytes <= here.total_bytes
    with pytest.raises(StorageError):
        place.system.disk_space(place.at("none"))


def test_paths_from_the_current_directory(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "here" if (tmp_path / "here").exists() else tmp_path)
    place.system.make_directories("one/two")
    place.system.create("f").close()
    place.system.replace("g", b"content")
    place.system.rename("f", "one/h")
    place.system.sync_directory("")
    assert place.system.names(".") == ["g", "one"]
    assert place.system.names("one") == ["h", "two"]
    place.system.remove("g")
    assert place.system.status("g") is None
