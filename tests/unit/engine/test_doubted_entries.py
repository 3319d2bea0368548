"""What a start makes of journal records whose digest fails: no entry becomes another, none is denied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode, frame
from bkctl.codec.journal import encode_header, parse_journal_name
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.settings import BookieSettings
from bkctl.errors import LedgerLimboError, NoEntryError, NoLedgerError
from bkctl.scan.proved_ids import EntryIds, with_ids
from bkctl.storage_kinds import SORTED_LEDGER_STORAGE
from bkctl.types import DigestType
from tests.support.damaged_journal import JOURNALS, add, body_of, overwrite, payload_damaged, read
from tests.support.engine_rig import KEY, Answers, EngineRig, entry_body, small_settings

INDEX_FILES = replace(
    small_settings(),
    storage=replace(small_settings().storage, storage_class=SORTED_LEDGER_STORAGE),
)
LEDGERS = (4, 5, 6)
ENTRIES = range(5)

Change = Callable[[bytes], bytes]


def with_digest(digest_type: DigestType, ledger: int, number: int) -> bytes:
    payload = b"%d-%d" % (ledger, number)
    return encode(
        EntryHeader(ledger, number, number - 1, len(payload)), payload, Digester.of(digest_type, b"secret")
    )


def crc32c(ledger: int, number: int) -> bytes:
    return entry_body(ledger, number, b"%d-%d" % (ledger, number))


def killed(
    changes: Mapping[tuple[int, int], Change],
    *,
    body_of: Callable[[int, int], bytes] = crc32c,
    ledgers: tuple[int, ...] = LEDGERS,
    flushed: int = 0,
    settings: BookieSettings | None = None,
) -> EngineRig:
    """A bookie that was killed with all entries in its journal; records of some were changed there since.

    The first ``flushed`` entries of each ledger stand in front of the last mark.
    """
    rig = EngineRig(settings)
    rig.start()
    answers = Answers()
    for number in ENTRIES:
        if flushed and number == flushed:
            rig.bookie.checkpoint()
        for ledger in ledgers:
            rig.bookie.writes.add(SingleAdd(body_of(ledger, number), KEY, answers, number))
            answers.wait(number * len(ledgers) + ledgers.index(ledger) + 1)
    assert not answers.bad
    after = rig.cut_off()
    for (ledger, number), change in changes.items():
        body = body_of(ledger, number)
        changed = change(body)
        assert len(changed) == len(body)
        overwrite(after, body, changed)
    return after


def says(ledger: int, entry: int) -> Change:
    return lambda body: with_ids(body, EntryIds(ledger, entry))


def assert_all_there(rig: EngineRig, body_of: Callable[[int, int], bytes] = crc32c) -> None:
    for ledger in LEDGERS:
        for number in ENTRIES:
            assert read(rig, ledger, number) == body_of(ledger, number)


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
@pytest.mark.parametrize(
    ("ledger", "entry"),
    [(4, 2), (7, 2), (5 | 1 << 40, 2), (5, 3), (5, 0), (5, 2 | 1 << 50), (0x7F7F7F7F, 2)],
    ids=["entry of another ledger", "unknown ledger", "high bit", "entry that is there", "first entry",
         "entry far away", "ledger id overwritten"],
)  # fmt: skip
def test_a_record_is_replayed_as_the_entry_that_its_digest_proves(
    ledger: int, entry: int, digest_type: DigestType, caplog: pytest.LogCaptureFixture
) -> None:
    def body_of(of: int, number: int) -> bytes:
        return with_digest(digest_type, of, number)

    with killed({(5, 2): says(ledger, entry)}, body_of=body_of) as rig:
        with caplog.at_level(logging.WARNING):
            report = rig.start()
        assert_all_there(rig, body_of)
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (1, 0, 0)
        assert f"says ledger {ledger}, entry {entry}, and its digest proves ledger 5, entry 2" in caplog.text
        assert read(rig, 5, 99) is NoEntryError


def test_what_was_mended_outlives_the_next_start() -> None:
    with killed({(5, 2): says(4, 2)}) as rig:
        rig.start()
        with rig.cut_off() as again:
            assert again.start().mended_records == 0
            assert_all_there(again)


def test_the_last_record_of_all_is_mended_too() -> None:
    """The other entries of its ledger stand in front of the last mark, where no replay reads them."""
    with killed({(5, 4): says(7, 4)}, flushed=4) as rig:
        assert rig.start().mended_records == 1
        assert_all_there(rig)


def test_many_damaged_records_in_front_of_the_first_whole_one_are_mended() -> None:
    changes = {(5, number): says(7, number) for number in range(3)}
    changes |= {(6, number): says(6, number | 1 << 20) for number in range(4)}
    with killed(changes) as rig:
        report = rig.start()
        assert_all_there(rig)
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (7, 0, 0)


def test_many_records_that_say_a_ledger_with_few_whole_ones_are_doubted() -> None:
    """Both ids are wrong, so that nothing is proved; one whole entry shows that ledger 5 has CRCs."""
    changes = {(6, number): says(5, number | 1 << 20) for number in range(5)}
    changes |= {(5, number): says(7, number) for number in range(4)}
    with killed(changes) as rig:
        report = rig.start()
        assert (report.mended_records, report.doubted_records) == (4, 5)
        assert {read(rig, 6, number) for number in ENTRIES} == {LedgerLimboError}
        assert [read(rig, 5, number) for number in ENTRIES] == [crc32c(5, number) for number in ENTRIES]


def overwritten(body: bytes) -> bytes:
    return b"\x11" * 16 + body[16:]


def overwritten_entry(body: bytes) -> bytes:
    return body[:8] + b"\x11" * 8 + body[16:]


@pytest.mark.parametrize("change", [overwritten, overwritten_entry])
def test_where_nothing_is_proved_no_entry_is_denied(change: Change, caplog: pytest.LogCaptureFixture) -> None:
    with killed({(5, 2): change}) as rig:
        with caplog.at_level(logging.WARNING):
            report = rig.start()
        assert (report.mended_records, report.doubted_records) == (0, 1)
        assert report.limbo_ledgers == len(LEDGERS)
        assert read(rig, 5, 2) is LedgerLimboError
        assert read(rig, 6, 99) is LedgerLimboError
        assert [read(rig, 5, number) for number in (0, 1, 3, 4)] == [crc32c(5, n) for n in (0, 1, 3, 4)]
        assert "every ledger of this journal is in limbo" in caplog.text


@pytest.mark.parametrize(("beside", "doubted"), [(0, 1), (1, 2), (3, 2), (4, 2)])
def test_an_entry_is_believed_only_between_both_of_its_neighbours(beside: int, doubted: int) -> None:
    """Entry 2 is not there under its ids: a damaged record beside that gap may be entry 2."""
    with killed(
        {
            (5, 2): lambda body: payload_damaged(with_ids(body, EntryIds(5, 9))),
            (5, beside): payload_damaged,
        }
    ) as rig:
        report = rig.start()
        assert (report.mended_records, report.doubted_records) == (0, doubted)


def test_a_damaged_copy_takes_the_place_of_no_entry() -> None:
    """Two changes at once, so that no digest proves the ids, which are those of a whole entry."""
    with killed({(5, 2): lambda body: payload_damaged(says(4, 1)(body))}) as rig:
        assert rig.start().doubted_records == 1
        assert read(rig, 4, 1) == crc32c(4, 1)
        assert read(rig, 5, 2) is LedgerLimboError


@pytest.mark.parametrize(("number", "flushed"), [(0, 0), (2, 0), (3, 0), (2, 1), (3, 1), (1, 1)])
def test_a_damaged_payload_between_its_neighbours_raises_no_doubt(number: int, flushed: int) -> None:
    with killed({(5, number): payload_damaged}, flushed=flushed) as rig:
        report = rig.start()
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (0, 0, 0)
        # The client sees that the digest fails, and asks another bookie.
        assert read(rig, 5, number) == payload_damaged(crc32c(5, number))
        assert read(rig, 5, 99) is NoEntryError


def test_a_damaged_payload_at_the_end_of_its_ledger_is_doubted() -> None:
    with killed({(5, 4): payload_damaged}) as rig:
        report = rig.start()
        assert (report.doubted_records, report.limbo_ledgers) == (1, len(LEDGERS))
        assert read(rig, 5, 4) == payload_damaged(crc32c(5, 4))
        assert read(rig, 5, 5) is LedgerLimboError


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_ledgers_without_checksums_raise_no_doubt(digest_type: DigestType) -> None:
    def body_of(ledger: int, number: int) -> bytes:
        return with_digest(digest_type, ledger, number)

    with killed({}, body_of=body_of) as rig:
        report = rig.start()
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (0, 0, 0)
        assert_all_there(rig, body_of)


def test_a_client_with_wrong_digests_keeps_no_bookie_from_starting() -> None:
    def body_of(ledger: int, number: int) -> bytes:
        return (
            payload_damaged(crc32c(ledger, number)) if ledger == 5 and number > 1 else crc32c(ledger, number)
        )

    with killed({}, body_of=body_of) as rig:
        rig.start()
        assert_all_there(rig, body_of)


@pytest.mark.parametrize(
    ("known", "deleted", "doubted"),
    [
        (DigestType.CRC32C, DigestType.CRC32C, 0),
        # Nothing distinguishes it from a damaged record of a ledger that is there.
        (DigestType.CRC32C, DigestType.MAC, 2),
        (DigestType.MAC, DigestType.MAC, 0),
    ],
)
def test_records_of_a_deleted_ledger_are_left_out(
    known: DigestType, deleted: DigestType, doubted: int
) -> None:
    def body_of(ledger: int, number: int) -> bytes:
        return with_digest(known, ledger, number)

    with killed({}, body_of=body_of) as rig:
        newest = max(filter(None, map(parse_journal_name, rig.memory.names(JOURNALS)))) + 1
        path = f"{JOURNALS}/{newest:x}.txn"
        file = rig.memory.create(path)
        records = b"".join(frame(with_digest(deleted, 999, number)) for number in range(2))
        file.write_at(0, encode_header(6) + records)
        file.sync()
        file.close()
        rig.memory.sync_directory(JOURNALS)
        report = rig.start()
        assert (report.skipped_records, report.doubted_records) == (2, doubted)
        assert_all_there(rig, body_of)
        assert read(rig, 999, 0) is NoLedgerError


def test_an_entry_id_that_no_index_file_has_a_slot_for_does_not_end_the_start() -> None:
    """The ledger has no checksums, so that nothing proves which entry the record is."""

    def body_of(ledger: int, number: int) -> bytes:
        return with_digest(DigestType.MAC, ledger, number)

    with killed({(5, 2): says(5, 2 | 1 << 50)}, body_of=body_of, settings=INDEX_FILES) as rig:
        report = rig.start()
        assert report.doubted_records == 1
        assert read(rig, 5, 2) is LedgerLimboError
        assert read(rig, 5, 3) == body_of(5, 3)


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kind", [DigestType.MAC, DigestType.DUMMY, DigestType.CRC32C])
def test_an_entry_that_was_added_again_is_the_newer_one_after_a_kill(
    kind: DigestType, count: int, *, flushed: bool
) -> None:
    """A recovery does that, and a repair; nothing is damaged. Behind three records none is held back."""
    with EngineRig() as rig:
        rig.start()
        for entry in range(count):
            add(rig, body_of(6, entry, b"first", kind))
        if flushed:
            rig.bookie.checkpoint()
        again = [
            body_of(6, entry, b"again %d" % number, kind) for number in range(2) for entry in range(count)
        ]
        for body in again:
            add(rig, body)
        with rig.cut_off() as after:
            assert after.start().limbo_ledgers == 0
            assert [read(after, 6, entry) for entry in range(count)] == again[count:]


def test_an_entry_that_proves_itself_is_not_replaced_by_one_that_does_not() -> None:
    """The entries that are read to learn the digest of a ledger have other ones, which clients may send."""
    whole = body_of(6, 10, b"whole")
    with EngineRig() as rig:
        rig.start()
        for entry in range(5):
            add(rig, body_of(6, entry, b"first", DigestType.MAC))
        add(rig, whole)
        rig.bookie.checkpoint()
        add(rig, body_of(6, 10, b"another", DigestType.MAC))
        with rig.cut_off() as after:
            assert after.start().limbo_ledgers == 1
            assert after.bookie.reads.read(6, 10) == whole
