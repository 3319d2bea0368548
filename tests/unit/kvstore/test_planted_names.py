"""Databases in directories of somebody else: RocksDB writes through links, so they are looked for first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkctl.errors import RefusedError, StorageError
from bkctl.kvstore import planted, rocksdb
from bkctl.kvstore.base import Put
from bkctl.kvstore.lock_holder import lock_holder
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.kvstore.synced_log import opened_log


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db"
    with open_store(str(path), LEDGERS_PROFILE, create=True) as store:
        store.write([Put(b"key", b"value")], sync=True)
    return path


@pytest.mark.parametrize("name", ["rocksdict-config.json", "LOG", "LOCK", "000099.log", "000004.log"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_database_is_not_written_through_what_is_planted(
    database: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """``rocksdict-config.json``, a log and LOG of a database are opened for writing by every open."""
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    (database / name).unlink(missing_ok=True)
    if kind == "link":
        (database / name).symlink_to(victim)
    else:
        os.mkfifo(database / name)
    with pytest.raises((RefusedError, StorageError), match=name):
        open_store(str(database), LEDGERS_PROFILE, create=False).close()
    assert victim.read_text() == "keep me"


@pytest.mark.parametrize("kind", ["fifo", "link to a device", "link to a file"])
def test_a_log_of_a_database_is_a_file(database: Path, tmp_path: Path, kind: str) -> None:
    [log] = database.glob("*.log")
    log.rename(tmp_path / "elsewhere")
    if kind == "fifo":
        os.mkfifo(log)
    else:
        log.symlink_to("/dev/zero" if kind == "link to a device" else tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=f"{log.name}.*not a regular file"):
        rocksdb.open_read_only(str(database))


def test_a_folder_in_the_place_of_a_log_is_named_and_closed(tmp_path: Path) -> None:
    """The error named the number of a descriptor, and that stayed open."""
    log = tmp_path / "000013.log"
    log.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(IsADirectoryError, match=log.name), opened_log(str(log)):
        pass
    assert os.listdir("/proc/self/fd") == before


def test_a_lock_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "LOCK")
    with pytest.raises(OSError, match="not a regular file"):
        lock_holder(str(tmp_path / "LOCK"))


def test_a_link_is_followed_where_its_maker_owns_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a bookie's directory may keep a part of it elsewhere, and not lead root there."""
    (tmp_path / "real/current").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    path = str(link / "current")
    monkeypatch.setattr(planted.os, "geteuid", lambda: 0)
    owners = {str(link): 1001}
    lstat, stat = os.lstat, os.stat
    monkeypatch.setattr(planted.os, "lstat", lambda name: _owned(lstat(name), owners.get(name)))
    with pytest.raises(RefusedError, match=r"link: a link of user 1001 to .*real, which is not that user's"):
        planted.refuse_planted_link(path)
    monkeypatch.setattr(planted.os, "stat", lambda name: _owned(stat(name), owners.get(name)))
    planted.refuse_planted_link(path)
    planted.refuse_planted_link(str(tmp_path / "none/current"))
    monkeypatch.setattr(planted.os, "stat", stat)
    monkeypatch.setattr(planted.os, "geteuid", lambda: 1002)
    planted.refuse_planted_link(path)


def _owned(facts: os.stat_result, user: int | None) -> os.stat_result:
    fields = list(facts)
    if user is not None:
        fields[4] = user
    return os.stat_result(fields)
