"""What was synced of a write-ahead log: a hole behind it ends the log, damage in front of it is an error."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.errors import CorruptionError, NoSpaceError, RefusedError, StorageError, SyncError
from bkctl.kvstore import rocksdb_store, synced_log
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import RocksStore, open_store
from bkctl.kvstore.synced_log import NAME, SyncedLogs, check_synced, current_logs, read_note, write_note

Change = Callable[[Path, int], None]
ROWS = 2000


def batch(number: int) -> list[Put]:
    return [Put(b"%08d" % (number * ROWS + each), b"v" * 24) for each in range(ROWS)]


def left_by_a_crash(folder: Path, before: int, behind: int) -> tuple[Path, int]:
    """A database with batches in front of the note and behind it, as a kill leaves it; what was noted."""
    live, image = folder / "live", folder / "db"
    with open_store(str(live), LEDGERS_PROFILE, create=True) as store:
        for number in range(before):
            store.write(batch(number), sync=True)
        store.note_synced()
        for number in range(before, before + behind):
            store.write(batch(number), sync=False)
        shutil.copytree(live, image)
    note = read_note(str(image))
    assert note is not None
    (size,) = note.sizes.values()
    return image, size


def the_log(image: Path) -> Path:
    (log,) = image.glob("*.log")
    return log


def zero_sector(log: Path, offset: int) -> None:
    with log.open("r+b") as file:
        file.seek(offset // 512 * 512)
        file.write(bytes(512))


def cut(log: Path, offset: int) -> None:
    os.truncate(log, offset)


def rows(image: Path) -> int:
    with open_store(str(image), LEDGERS_PROFILE, create=False) as store:
        return sum(map(len, store.batches()))


@pytest.mark.parametrize("change", [zero_sector, cut])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_hole_behind_what_was_synced_is_the_end_of_the_log(
    tmp_path: Path, change: Change, share: float
) -> None:
    image, noted = left_by_a_crash(tmp_path, 2, 3)
    size = the_log(image).stat().st_size
    change(the_log(image), noted + 512 + int((size - noted - 1024) * share))
    reader = open_read_only(str(image))
    assert reader.damage is None
    there = sum(map(len, reader.batches()))
    reader.close()
    assert there in (2 * ROWS, 3 * ROWS, 4 * ROWS)
    assert rows(image) == there
    # The next open finds tables, and a log of its own.
    assert rows(image) == there


@pytest.mark.parametrize("change", [zero_sector, cut])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_damage_to_what_was_synced_is_an_error(tmp_path: Path, change: Change, share: float) -> None:
    image, noted = left_by_a_crash(tmp_path, 3, 2)
    change(the_log(image), int(noted * share))
    with pytest.raises(CorruptionError, match=r"write-ahead log.*which were synced"):
        open_store(str(image), LEDGERS_PROFILE, create=False)
    reader = open_read_only(str(image))
    assert "write-ahead log is damaged" in str(reader.damage)
    reader.close()


def test_without_a_note_a_hole_is_damage(tmp_path: Path) -> None:
    image, noted = left_by_a_crash(tmp_path, 2, 2)
    (image / NAME).unlink()
    zero_sector(the_log(image), noted + 2000)
    with pytest.raises(CorruptionError):
        open_store(str(image), LEDGERS_PROFILE, create=False)


@pytest.mark.parametrize("content", [b"", b"MANIFEST-000005\n", b"x" * 100, b"crc32 00000000\n"])
def test_a_note_that_is_none_does_not_count(tmp_path: Path, content: bytes) -> None:
    image, _ = left_by_a_crash(tmp_path, 1, 0)
    (image / NAME).write_bytes(content)
    assert read_note(str(image)) is None
    assert not check_synced(str(image))


def test_a_note_of_an_earlier_open_does_not_count(tmp_path: Path) -> None:
    """Java keeps none: what it wrote since is held for synced."""
    image, noted = left_by_a_crash(tmp_path, 2, 2)
    old = SyncedLogs("MANIFEST-000001", {the_log(image).name: noted})
    write_note(str(image), old)
    assert not check_synced(str(image))
    zero_sector(the_log(image), noted + 2000)
    with pytest.raises(CorruptionError):
        open_store(str(image), LEDGERS_PROFILE, create=False)


def test_what_a_kill_left_beside_the_note_is_replaced(tmp_path: Path) -> None:
    image, _ = left_by_a_crash(tmp_path, 1, 0)
    (image / f"{NAME}.tmp").write_bytes(b"half")
    assert rows(image) == ROWS
    assert not (image / f"{NAME}.tmp").exists()


def test_a_pipe_in_the_notes_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    image, _ = left_by_a_crash(tmp_path, 1, 0)
    (image / NAME).unlink()
    os.mkfifo(image / NAME)
    with pytest.raises(RefusedError, match="synced: a FIFO"):
        open_store(str(image), LEDGERS_PROFILE, create=False)


def test_a_log_that_is_gone_was_done_with(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db"), LEDGERS_PROFILE, create=True) as store:
        store.write(batch(0), sync=True)
        store.note_synced()
        noted = current_logs(str(tmp_path / "db"))
        store.flush()
        store.write(batch(1), sync=True)
        write_note(str(tmp_path / "db"), noted)
        shutil.copytree(tmp_path / "db", tmp_path / "image")
    assert rows(tmp_path / "image") == 2 * ROWS


def test_a_note_is_written_only_when_something_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(str(tmp_path / "db"), LEDGERS_PROFILE, create=True) as store:
        store.write(batch(0), sync=True)
        written: list[SyncedLogs] = []
        monkeypatch.setattr(rocksdb_store, "write_note", lambda _, logs: written.append(logs))
        store.note_synced()
        store.note_synced()
        assert len(written) == 1
        store.write(batch(1), sync=True)
        store.note_synced()
        assert len(written) == 2


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_fails_the_note_and_neither_the_open_nor_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rocksdb_store, "write_note", no_room)
        with open_store(str(tmp_path / "db"), LEDGERS_PROFILE, create=True) as store:
            store.write(batch(0), sync=True)
            with pytest.raises(NoSpaceError):
                store.note_synced()
    assert rows(tmp_path / "db") == ROWS


def test_a_failed_sync_is_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path / "db"), LEDGERS_PROFILE, create=True)
    store.write(batch(0), sync=False)

    def fails(self: RocksStore, call: object) -> None:
        raise StorageError("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(RocksStore, "_guarded", fails)
        with pytest.raises(SyncError):
            store.note_synced()
    # A later sync succeeds, and says nothing of what the failed one has lost.
    with pytest.raises(SyncError, match="since a sync failed"):
        store.close()
    noted = read_note(str(tmp_path / "db"))
    assert noted is not None
    assert set(noted.sizes.values()) == {0}


def test_every_record_of_a_log_is_looked_at(tmp_path: Path) -> None:
    """Parts of batches over many blocks, and single ones."""
    live = tmp_path / "db"
    with open_store(str(live), LEDGERS_PROFILE, create=True) as store:
        for number in range(6):
            store.write(batch(number)[: 3 + 300 * number], sync=True)
        store.note_synced()
        content = bytearray(the_log(live).read_bytes())
        assert len(content) > 4 * 32768
        assert check_synced(str(live))
        for at in range(0, len(content), 997):
            content[at] ^= 0x20
            the_log(tmp_path / "db").write_bytes(content)
            with pytest.raises(CorruptionError):
                check_synced(str(live))
            content[at] ^= 0x20
        the_log(live).write_bytes(content)
    assert synced_log.check_synced(str(live))
