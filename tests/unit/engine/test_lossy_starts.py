"""Starts over journals that lost something: what is refused, and what an accepted loss must not hide."""

from __future__ import annotations

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.journal_replay import missing_journals
from bkctl.errors import LedgerLimboError, RefusedError
from tests.support.engine_rig import KEY, Answers, EngineRig, entry_body, small_settings

JOURNALS = "/journal0/current"
PAYLOAD = b"z" * 700


def journal_ids(rig: EngineRig, directory: str = JOURNALS) -> list[int]:
    return sorted(filter(None, map(parse_journal_name, rig.memory.names(directory))))


def journal_path(journal: int, directory: str = JOURNALS) -> str:
    return f"{directory}/{journal:x}.txn"


def overwrite(rig: EngineRig, path: str, start: int, end: int) -> None:
    """Make a range unreadable as records."""
    file = rig.memory.open_to_write(path)
    file.write_at(start, b"\x7f" * (end - start))
    file.sync()
    file.close()


def remove_journal(rig: EngineRig, journal: int, directory: str = JOURNALS) -> None:
    """Remove a file so that a power cut does not bring it back."""
    rig.memory.remove(journal_path(journal, directory))
    rig.memory.sync_directory(directory)


def small_journals(**changes: int) -> EngineRig:
    return EngineRig(
        small_settings(journal=JournalSettings(preallocation_bytes=0, size_bytes_max=2000), **changes)
    )


def read_or_error(rig: EngineRig, ledger: int, entries: range) -> list[object]:
    answers: list[object] = []
    for entry in entries:
        try:
            answers.append(rig.bookie.reads.read(ledger, entry))
        except Exception as error:  # noqa: BLE001 - which one it is is what the test looks at
            answers.append(type(error))
    return answers


def recovery_add(rig: EngineRig, ledger: int, entry: int, key: bytes = KEY) -> None:
    answers = Answers()
    rig.bookie.writes.add(SingleAdd(entry_body(ledger, entry), key, answers, entry, recovery=True))
    answers.wait(1)
    assert answers.good == [entry]


def lost_key_record() -> tuple[EngineRig, list[int]]:
    """Ledger 6's key and first entries stand in one journal, entries 2 to 5 in later ones; the entries."""
    rig = small_journals()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    rig.add(5, 1, payload=PAYLOAD)
    for number in range(6):
        rig.add(6, number, payload=PAYLOAD)
    after = rig.cut_off()
    first = next(
        journal
        for journal in journal_ids(after)
        if entry_body(6, 0, PAYLOAD) in after.memory.files[journal_path(journal)]
    )
    there = [
        number
        for number in range(6)
        if entry_body(6, number, PAYLOAD) not in after.memory.files[journal_path(first)]
    ]
    assert there
    path = journal_path(first)
    content = after.memory.files[path]
    key = journal_codec.encode_record(journal_codec.master_key_record(6, KEY))
    overwrite(after, path, content.index(key), len(content))
    return after, there


def test_damage_is_carried_to_later_journals() -> None:
    """Whole records behind an accepted damage are served though their ledger's key stood in it."""
    rig, there = lost_key_record()
    with rig, pytest.raises(RefusedError, match="damage at offset"):
        rig.start()
    with rig.cut_off() as again:
        report = again.start(accept_loss=True)
        assert report.skipped_records == 0
        read = read_or_error(again, 6, range(6))
        assert read == [
            entry_body(6, number, PAYLOAD) if number in there else LedgerLimboError for number in range(6)
        ]
        # A recovery that fences it finds it in limbo, too.
        assert again.fence(6) is None
        assert read_or_error(again, 6, range(1)) == [LedgerLimboError]


def test_gaps_between_journals_are_named() -> None:
    """Who brings the files back has to know which."""
    assert list(missing_journals([0x9, 0xA, 0xC, 0x10, 0x13])) == [
        (0xC, "b.txn: 1 journal between a.txn and c.txn is gone"),
        (0x10, "d.txn to f.txn: 3 journals between c.txn and 10.txn are gone"),
        (0x13, "11.txn to 12.txn: 2 journals between 10.txn and 13.txn are gone"),
    ]


def test_a_gone_journal_is_a_damage_to_all_behind_it() -> None:
    rig = small_journals()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    named = rig.bookie.marks.written(0).journal_id
    for number in range(6):
        rig.add(6, number, payload=PAYLOAD)
    with rig.cut_off() as after:
        whole = b"".join(
            after.memory.files[journal_path(journal)] for journal in journal_ids(after) if journal != named
        )
        remove_journal(after, named)
        after.start(accept_loss=True)
        expected = [
            body if (body := entry_body(6, number, PAYLOAD)) in whole else LedgerLimboError
            for number in range(6)
        ]
        assert LedgerLimboError in expected
        assert len(set(expected)) > 2
        assert read_or_error(after, 6, range(6)) == expected
        assert read_or_error(after, 5, range(2, 3)) == [LedgerLimboError]


def test_a_key_met_behind_a_damage_makes_a_ledger_in_limbo() -> None:
    """A ledger's key stands in the journal again after its descriptor was pushed out: the hole may have held
    its first entries and an acknowledged fence."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    journal = rig.bookie.marks.written(0).journal_id
    rig.add(5, 1)
    rig.add(6, 0)
    rig.add(6, 1)
    assert rig.fence(6) is None
    with rig.bookie._lock:
        rig.bookie.table.forget(6)
    recovery_add(rig, 6, 2)
    with rig.cut_off() as after:
        path = journal_path(journal)
        content = after.memory.files[path]
        key = journal_codec.encode_record(journal_codec.master_key_record(6, KEY))
        again = content.index(key, content.index(key) + 1)
        overwrite(after, path, content.index(key), again)
        # A newer file, so that this is no unsynced tail.
        file = after.memory.create(journal_path(journal + 1))
        file.write_at(0, journal_codec.encode_header(6))
        file.sync()
        file.close()
        after.memory.sync_directory(JOURNALS)
        report = after.start(accept_loss=True)
        assert report.limbo_ledgers == 2
        assert read_or_error(after, 6, range(3)) == [LedgerLimboError, LedgerLimboError, entry_body(6, 2)]
        with pytest.raises(LedgerLimboError):
            after.add(6, 3)


def test_only_ledgers_of_the_damaged_journal_directory_are_in_limbo() -> None:
    rig = small_journals(journals=2)
    rig.start()
    for ledger in (4, 5):
        for number in range(6):
            rig.add(ledger, number, payload=PAYLOAD)
    with rig.cut_off() as after:
        gone = journal_ids(after, "/journal1/current")[1]
        remove_journal(after, gone, "/journal1/current")
        after.start(accept_loss=True)
        rows = after.bookie.storages[0].ledgers
        four, five = rows.get(4), rows.get(5)
        assert four is not None
        assert five is not None
        assert (four.limbo, five.limbo) == (False, True)


def test_a_journal_missing_between_its_neighbours_refuses_the_start() -> None:
    rig = small_journals()
    rig.start()
    for number in range(12):
        rig.add(5, number, payload=PAYLOAD)
    with rig.cut_off() as after:
        ids = journal_ids(after)
        gone = ids[len(ids) // 2]
        lost = after.memory.files[journal_path(gone)]
        remove_journal(after, gone)
        with pytest.raises(RefusedError, match=rf"{gone:x}\.txn.*is gone.*--accept-loss"):
            after.start()
        with after.cut_off() as again:
            report = again.start(accept_loss=True)
            assert report.missing_journals == 1
            assert read_or_error(again, 5, range(12)) == [
                LedgerLimboError if body in lost else body
                for body in (entry_body(5, number, PAYLOAD) for number in range(12))
            ]
            with again.cut_off() as third:
                # The mark is behind the gap: nothing is to be accepted any more.
                third.start()
                assert LedgerLimboError in read_or_error(third, 5, range(12))


def test_an_accepted_loss_of_every_journal_is_accepted_once() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    with rig.cut_off() as after:
        for journal in journal_ids(after):
            remove_journal(after, journal)
        after.start(accept_loss=True)
        with after.cut_off() as again:
            again.start()
            assert read_or_error(again, 5, range(2)) == [entry_body(5, 0), LedgerLimboError]


def test_without_any_journal_the_loss_shows_also_where_the_marks_are_lost() -> None:
    """Entries in logs say that there was a mark, and a journal behind it."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    rig.add(5, 1)
    lost = rig.cut_off()
    for journal in journal_ids(lost):
        remove_journal(lost, journal)
    lost.memory.replace("/ledgers0/current/lastMark", b"short")
    lost = lost.cut_off()
    with pytest.raises(RefusedError, match=r"no journal is there, and no last mark, .*--accept-loss"):
        lost.start()
    with lost.cut_off() as accepting:
        assert accepting.start(accept_loss=True).missing_journals == 1
        assert read_or_error(accepting, 5, range(2)) == [entry_body(5, 0), LedgerLimboError]
        with accepting.cut_off() as again:
            again.start()
            assert read_or_error(again, 5, range(2)) == [entry_body(5, 0), LedgerLimboError]


def test_journals_that_are_gone_behind_the_mark_are_no_loss() -> None:
    """They go when the mark has passed them, and a power cut may take or leave any of those removals."""
    rig = EngineRig(
        small_settings(journal=JournalSettings(preallocation_bytes=0, size_bytes_max=2000, backups_max=50))
    )
    rig.start()
    for number in range(12):
        rig.add(5, number, payload=PAYLOAD)
    rig.bookie.checkpoint()
    rig.add(5, 12)
    with rig.cut_off() as after:
        ids = journal_ids(after)
        assert len(ids) > 4
        for journal in (ids[1], ids[3]):
            remove_journal(after, journal)
        report = after.start()
        assert (report.missing_journals, report.entries, report.limbo_ledgers) == (0, 1, 0)


def test_a_mark_beyond_all_journals_hides_none_of_their_entries() -> None:
    """Sixteen bytes of anything: with the loss accepted what the journals hold is replayed all the same."""
    with EngineRig() as rig:
        rig.start()
        for number in range(5):
            rig.add(1, number)
        ids = journal_ids(rig)
        cut = rig.cut_off()
    cut.memory.replace("/ledgers0/current/lastMark", encode_last_mark(LastMark(ids[-1] + 1000, 4096)))
    with pytest.raises(RefusedError, match="the last mark names this journal and it is gone"):
        cut.start()
    cut = cut.cut_off()
    with cut:
        report = cut.start(accept_loss=True)
        assert report.entries == 5
        assert [cut.bookie.reads.read(1, number) for number in range(5)] == [
            entry_body(1, number) for number in range(5)
        ]
        with pytest.raises(LedgerLimboError):
            cut.bookie.reads.read(1, 5)
        # New journals are ahead of the mark, so that the next start finds the one that it names.
        cut.bookie.checkpoint()
        assert journal_ids(cut)[-1] > ids[-1] + 1000
        again = cut.cut_off()
    with again:
        again.start()
        assert again.bookie.reads.read(1, 4) == entry_body(1, 4)
