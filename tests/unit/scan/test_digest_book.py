"""How the digest of a ledger is settled, and what is checked with it."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch, frame, walk
from bkctl.scan import digest_book as book_module
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.files.entrylogs import LogEntries, scan_logs
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import CRC32, CRC32C, DUMMY, MAC, PASSWORD, EntryLogBuilder, entry_body


def batch_of(*bodies: bytes) -> EntryBatch:
    data = b"".join(map(frame, bodies))
    batch, stop = walk(data)
    assert stop == len(data)
    return batch


def entries(digester: Digester, count: int, ledger: int = 5, first: int = 0) -> list[bytes]:
    return [entry_body(ledger, entry, b"text", digester) for entry in range(first, first + count)]


def broken(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.mark.parametrize("digester", [CRC32C, CRC32])
def test_three_checks_settle_at_once(digester: Digester) -> None:
    book = DigestBook()
    book.survey(batch_of(*entries(digester, 2)))
    assert book.digester(5) is None
    book.survey(batch_of(*entries(digester, 1, first=2)))
    assert book.digester(5) == digester
    assert book.unsettled([5, 6]) == {6}


def test_an_entry_of_another_type_than_its_ledgers_is_not_damage() -> None:
    book = DigestBook()
    batch = batch_of(*entries(CRC32C, 4), *entries(CRC32, 1, first=4), broken(entries(CRC32C, 1, first=5)[0]))
    book.survey(batch)
    book.close_survey()
    check = book.check(batch)
    assert check.failing == {5}
    assert [check.digester(index, 5) for index in range(6)] == [*[CRC32C] * 4, CRC32, CRC32C]
    assert [check.ok(index, 5) for index in range(6)] == [True] * 5 + [False]
    told = DigestBook({5: CRC32C}).check(batch)
    assert told.failing == {4, 5}, "metadata knows better than the entries"


@pytest.mark.parametrize(("forced", "delivered"), [(MAC, 3), (None, 2)])
def test_a_forced_type_proves_a_size_as_well(forced: Digester | None, delivered: int) -> None:
    builder = EntryLogBuilder()
    built = [builder.add(body) for body in entries(MAC, 3)]
    data = bytearray(builder.build().data)
    data[built[1].offset : built[1].offset + 4] = b"\x7f\xff\xff\xff"
    filesystem = MemoryFileSystem({"/l/0.log": bytes(data)})
    book = DigestBook(forced=forced)
    logs = [LogFile("/l/0.log", 0, len(data))]
    items = list(scan_logs(filesystem, logs, book))
    assert sum(len(item.entries.batch) for item in items if isinstance(item, LogEntries)) == delivered
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert damage.readable == (forced is not None)


def test_a_settled_ledger_stays_settled() -> None:
    book = DigestBook()
    book.survey(batch_of(*entries(CRC32C, 3)))
    book.survey(batch_of(*entries(CRC32, 50)))
    book.close_survey()
    assert book.digester(5) == CRC32C


@pytest.mark.parametrize(
    ("good", "bad", "settled"), [(1, 0, True), (1, 1, True), (2, 2, True), (1, 2, False), (2, 3, False)]
)
def test_half_of_the_tried_settle_at_the_end(good: int, bad: int, settled: bool) -> None:
    book = DigestBook()
    bodies = [*entries(CRC32, good), *map(broken, entries(CRC32, bad, first=good))]
    book.survey(batch_of(*bodies))
    assert book.digester(5) is None
    book.close_survey()
    assert book.digester(5) == (CRC32 if settled else None)


def test_mac_needs_the_password() -> None:
    batch = batch_of(*entries(MAC, 5))
    without, wrong, right = DigestBook(), DigestBook(password=b"other"), DigestBook(password=PASSWORD)
    for book in (without, wrong, right):
        book.survey(batch)
        book.close_survey()
    assert without.digester(5) is None
    assert wrong.digester(5) is None
    assert right.digester(5) == MAC
    check = right.check(batch)
    assert [check.ok(index, 5) for index in range(5)] == [True] * 5
    assert without.check(batch).ok(0, 5) is None


def test_metadata_wins_over_what_the_entries_say() -> None:
    book = DigestBook({5: CRC32}, forced=MAC)
    batch = batch_of(*entries(CRC32C, 4))
    book.survey(batch)
    assert book.digester(5) == CRC32
    assert book.digester(6) == MAC
    assert book.check(batch).failing == {0, 1, 2, 3}
    assert not book.needs_survey


def test_forced_covers_every_ledger() -> None:
    book = DigestBook(forced=CRC32C)
    check = book.check(batch_of(*entries(CRC32C, 2), *entries(CRC32, 2, ledger=6)))
    assert [check.ok(index, ledger) for index, ledger in enumerate((5, 5, 6, 6))] == [
        True,
        True,
        False,
        False,
    ]


def test_mac_without_a_key_is_known_and_not_checked() -> None:
    book = DigestBook({5: Digester(DigestType.MAC)})
    check = book.check(batch_of(*entries(MAC, 2)))
    assert check.ok(0, 5) is None
    assert check.failing == frozenset()
    assert check.digesters[5].type is DigestType.MAC
    assert check.checkable == set()


def test_a_mac_without_a_key_is_not_checked_beside_a_ledger_that_is() -> None:
    """A batch of one digest is checked in one go, and these are two."""
    book = DigestBook({1: CRC32C, 2: Digester(DigestType.MAC)})
    check = book.check(batch_of(*entries(CRC32C, 1, 1), *entries(MAC, 1, 2)))
    assert not check.failing
    assert (check.ok(0, 1), check.ok(1, 2)) == (True, None)


def test_dummy_checks_when_it_is_long_enough() -> None:
    book = DigestBook({5: DUMMY})
    short = struct.pack(">qqq", 5, 9, 8)
    check = book.check(batch_of(*entries(DUMMY, 1), short))
    assert [check.ok(0, 5), check.ok(1, 5)] == [True, False]


def test_off_checks_nothing() -> None:
    book = DigestBook({5: CRC32C}, enabled=False)
    check = book.check(batch_of(broken(entries(CRC32C, 1)[0])))
    assert not book.needs_survey
    assert check.ok(0, 5) is None
    assert check.checkable == set()
    assert check.digesters[5] == CRC32C


def test_ledgers_of_different_types_in_one_batch() -> None:
    bodies = [
        *entries(CRC32C, 3, 1),
        *entries(CRC32, 3, 2),
        *entries(MAC, 3, 3),
        broken(entries(CRC32, 1, 2, 9)[0]),
        broken(entries(MAC, 1, 3, 9)[0]),
    ]
    batch = batch_of(*bodies)
    book = DigestBook(password=PASSWORD)
    book.survey(batch)
    book.close_survey()
    assert book.check(batch).failing == {9, 10}


def strange(body: bytes, ledger: int) -> bytes:
    return struct.pack(">q", ledger) + body[8:]


def test_a_stranger_is_given_to_the_ledger_its_digest_proves() -> None:
    batch = batch_of(*entries(CRC32C, 4), strange(entries(CRC32C, 1, first=9)[0], 1 << 40))
    book = DigestBook()
    book.survey(batch)
    book.close_survey()
    check = book.check(batch, {5, 1 << 40})
    assert check.strangers == {4: (5, 9)}
    assert check.ok(4, 1 << 40) is False
    assert book.check(batch).strangers == {}


def test_a_ledger_that_no_survey_has_seen_may_be_a_stranger() -> None:
    """Where the metadata have all ledgers of a log's map, no entry of the log is read to learn digests."""
    batch = batch_of(*entries(CRC32C, 4), strange(entries(CRC32C, 1, first=9)[0], 1 << 40))
    book = DigestBook({5: CRC32C})
    assert book.check(batch, {5}).strangers == {4: (5, 9)}


def test_trials_begin_again_for_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "STRANGER_TRIALS_MAX", 50)
    batch = batch_of(*entries(CRC32C, 4), strange(entries(CRC32C, 1, first=9)[0], 7 << 40))
    book = DigestBook(dict.fromkeys((3, 4, 5), CRC32C))
    siblings = [3, 4, *range(100, 140), 5]
    assert [book.check(batch, siblings).strangers for _ in range(2)] == [{4: (5, 9)}, {}]
    book.restart_trials()
    assert book.check(batch, siblings).strangers == {4: (5, 9)}


def test_a_ledger_with_several_entries_is_no_stranger() -> None:
    bodies = [strange(body, 7) for body in entries(CRC32C, 4, first=9)]
    batch = batch_of(*entries(CRC32C, 4), *bodies)
    book = DigestBook()
    book.survey(batch)
    book.close_survey()
    assert book.check(batch, {5}).strangers == {}


def test_trials_for_strangers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "STRANGER_TRIALS_MAX", 10)
    owners = [body for ledger in range(20) for body in entries(CRC32C, 3, ledger)]
    lonely = [entry_body(1000 + ledger, 0, b"x", DUMMY) for ledger in range(50)]
    batch = batch_of(*owners, *lonely, strange(entries(CRC32C, 1, 19, 5)[0], 5000))
    book = DigestBook()
    book.survey(batch)
    book.close_survey()
    assert book.check(batch, range(20)).strangers == {}


def test_a_ledger_that_never_checks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "TRIES_MAX", 4)
    book = DigestBook()
    book.survey(batch_of(*entries(DUMMY, 10)))
    assert book.unsettled({5}) == set()
