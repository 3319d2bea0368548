"""Old files of a journal directory."""

from __future__ import annotations

import errno

from bkctl.codec.last_mark import LastMark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.journal_rig import CURRENT, journals, memory, running


def test_old_files_go_but_for_the_backups_and_the_marked_one() -> None:
    disk = memory()
    for journal_id in (1, 2, 3, 0x10, 0x11):
        disk.create(f"{CURRENT}/{journal_id:x}.txn").close()
    disk.sync_directory(CURRENT)
    with running(disk, JournalSettings(preallocation_bytes=0, backups_max=2)) as journal:
        assert journal.mark.journal_id == 0x12
        assert journal.retire(LastMark(3, 100)) == []
        assert journal.retire(LastMark(0x11, 0)) == [f"{CURRENT}/1.txn", f"{CURRENT}/2.txn"]
        assert list(journals(disk.crash())) == [3, 0x10, 0x11, 0x12]
        # A mark that is ahead of the journal itself cannot take the file being written.
        assert journal.retire(LastMark(0x99, 0)) == [f"{CURRENT}/3.txn"]
        assert list(journals(disk)) == [0x10, 0x11, 0x12]


def test_an_old_file_that_cannot_be_removed_stays_and_the_rest_goes() -> None:
    disk = memory()
    for journal_id in (1, 2, 3):
        disk.create(f"{CURRENT}/{journal_id:x}.txn").close()
    system = FaultyFileSystem(disk, [FaultRule("remove", "2.txn", error_number=errno.EACCES)])
    with running(system, JournalSettings(preallocation_bytes=0, backups_max=0)) as journal:
        assert journal.retire(journal.mark) == [f"{CURRENT}/1.txn", f"{CURRENT}/3.txn"]
        assert journal.meters.retire_failures == 1
        assert list(journals(disk)) == [2, 4]
        # The next turn tries again; a name that may come back costs nothing but time.
        system.heal()
        system.inject(FaultRule("sync_directory", "current"))
        assert journal.retire(journal.mark) == [f"{CURRENT}/2.txn"]
        assert journal.meters.retire_failures == 2
        assert journal.failure is None
