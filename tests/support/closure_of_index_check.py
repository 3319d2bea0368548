"""A case for every kind of finding of ``index check``; see ``closure``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bkctl.admin.entrylogs.log_place import find_log
from bkctl.admin.entrylogs.quarantine import plan_quarantine, plan_release, quarantine_log, release_log
from bkctl.admin.entrylogs.salvage import plan_salvage, salvage_log
from bkctl.admin.index.check.finding import Kind
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.rebuild import rebuild_index
from bkctl.admin.index.stopped_index import rocks_databases
from bkctl.codec import ledger_data, location
from bkctl.codec.digest import master_key
from bkctl.codec.entrylog import log_name
from bkctl.codec.journal import encode_header, journal_name, master_key_record
from bkctl.codec.last_mark import LastMark
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import ID_MAX, Location
from bkctl.directories.placement import find_placement
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import NOT_PROVED_NAME
from bkctl.storage_kinds import kind_named
from tests.support.checked_bookie import FILES, HOST, JOURNAL_ID, CheckedBookie
from tests.support.closure import Bench, Case, Do
from tests.support.closure_of_doctor import bring_back
from tests.support.cluster_dump import write_dump
from tests.support.manual_clock import ManualClock

#: What ledgers have in metadata that tell it.
PASSWORD = b"a ledger's"

Change = Callable[[CheckedBookie], object]


def folder(bench: Bench) -> tuple[object, ...]:
    return (bench.root,)


def with_dump(bench: Bench) -> tuple[object, ...]:
    return (bench.root, "--metadata", bench.folder / "dump.json")


def made(change: Change, *, storage: str = "db", count: int = 1, password: bytes | None = None) -> Do:
    """A small bookie, changed before it is written; the metadata have the password of its ledgers."""

    def do(bench: Bench) -> None:
        bookie = bench.checked(storage, count)
        change(bookie)
        bookie.write()
        dump = {"bookie": HOST, "instance_id": "instance", "next_ledger": 1000, "password": password}
        write_dump(bench.folder / "dump.json", [4, 5, 6, 7, 8, 9, 77], **dump)  # type: ignore[arg-type]

    return do


def and_then(
    change: Change, damage: Callable[[CheckedBookie, Bench], object], *, storage: str = "db", count: int = 1
) -> Do:
    """A small bookie, changed after it was written, too."""

    def do(bench: Bench) -> None:
        bookie = bench.checked(storage, count)
        change(bookie)
        bookie.write()
        damage(bookie, bench)

    return do


def unchanged(bookie: CheckedBookie) -> None:
    """A sound bookie."""


def wrong_offset(bookie: CheckedBookie) -> None:
    log_id, offset = bookie.locations[0, 5, 7]
    bookie.locations[0, 5, 7] = log_id, offset + 3


def foreign(bookie: CheckedBookie) -> None:
    bookie.locations[0, 5, 7] = bookie.locations[0, 5, 8]


def other_space(bookie: CheckedBookie) -> None:
    bookie.ledger(11)
    bookie.locations[1, 11, 0] = bookie.store(11, 0, 3, place=0)


def swap(bench: Bench) -> None:
    """Swap the two ledger directories, or swap them back."""
    aside = bench.root / "aside"
    (bench.root / "l0").rename(aside)
    (bench.root / "l1").rename(bench.root / "l0")
    aside.rename(bench.root / "l1")


def swapped(bench: Bench) -> None:
    made(unchanged, count=2)(bench)
    swap(bench)


def without_location(bookie: CheckedBookie) -> None:
    del bookie.locations[0, 5, 7]


def broken_record(bookie: CheckedBookie, _: Bench) -> None:
    path = bookie.current() / log_name(0)
    data = bytearray(path.read_bytes())
    offset = bookie.locations[0, 5, 7][1]
    data[offset - 4 : offset + 40] = bytes(44)
    path.write_bytes(data)


def lost_log(bookie: CheckedBookie, bench: Bench) -> None:
    bench.move_away(bookie.current() / log_name(1))


def without_row(bookie: CheckedBookie) -> None:
    del bookie.ledgers[0, 5]


def only_in_logs(bookie: CheckedBookie) -> None:
    bookie.store(77, 3)


def spread(bookie: CheckedBookie) -> None:
    """The logs of both directories hold entries of one ledger, and one of them has no row."""
    for entry in range(20, 30):
        bookie.locations[0, 5, entry] = bookie.store(5, entry, 2, place=1)
    without_location(bookie)


def kept_in_a_journal(bookie: CheckedBookie) -> None:
    """An entry in a journal in front of the mark, and nowhere else any more."""
    bookie.journal.add(bookie.body(5, 7))
    bookie.journal.add(bookie.body(5, 30))


def wide_key(bookie: CheckedBookie) -> None:
    row = ledger_data.encode_ledger_data(LedgerData(True, b""))
    bookie.raw_rows.append((0, "ledgers", (5).to_bytes(8, "big") + bytes(8), row))
    bookie.raw_rows.append((0, "ledgers", (6).to_bytes(8, "big") + bytes(8), row))
    del bookie.ledgers[0, 6]


def flipped_key(bookie: CheckedBookie) -> None:
    """All ledgers have the key of the password, one of them with a byte changed."""
    for place, ledger in bookie.ledgers:
        bookie.ledgers[place, ledger] = LedgerData(False, master_key(PASSWORD))
    flipped = bytearray(master_key(PASSWORD))
    flipped[3] ^= 1
    bookie.ledgers[0, 5] = LedgerData(True, bytes(flipped))


def flipped_in_the_journal(bookie: CheckedBookie) -> None:
    """All ledgers have the key of the password, and a key record of one of them a byte changed."""
    flipped_key(bookie)
    flipped = bookie.ledgers[0, 5].master_key
    bookie.ledgers[0, 5] = LedgerData(False, master_key(PASSWORD))
    bookie.journal.special(master_key_record(5, flipped))
    bookie.mark = LastMark(JOURNAL_ID, 512)


def undecodable(bookie: CheckedBookie) -> None:
    del bookie.locations[0, 5, 7]
    del bookie.ledgers[0, 6]
    bookie.raw_rows += [
        (0, "locations", location.encode_key(5, 7), b"short"),
        (0, "locations", b"odd key", bytes(8)),
        (0, "ledgers", ledger_data.encode_ledger_key(6), b"\xff"),
    ]


def negative_slot(bookie: CheckedBookie, _: Bench) -> None:
    path = bookie.idx_path(5)
    data = bytearray(path.read_bytes())
    data[1024 + 8 * 7] = 0x80
    path.write_bytes(data)


def idx_header(bookie: CheckedBookie, _: Bench) -> None:
    path = bookie.idx_path(5)
    path.write_bytes(b"JUNK" + path.read_bytes()[4:])


def two_files(bench: Bench) -> None:
    made(unchanged, storage="idx", count=2)(bench)
    first = CheckedBookie(bench.root, "idx", 2)
    source = first.idx_path(5)
    second = first.current(1) / source.relative_to(first.current(0))
    second.parent.mkdir(parents=True)
    shutil.copy(source, second)


def without_database(bookie: CheckedBookie, _: Bench) -> None:
    shutil.rmtree(bookie.current() / "locations")


def without_databases(bookie: CheckedBookie, _: Bench) -> None:
    for name in ("locations", "ledgers"):
        shutil.rmtree(bookie.current() / name)


def emptied(bookie: CheckedBookie, _: Bench) -> None:
    for path in bookie.current(1).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "VERSION":
            path.unlink()


def in_the_journal(bookie: CheckedBookie) -> None:
    del bookie.locations[0, 5, 7]
    bookie.journaled(5, range(5, 12))


def cut_journal(_: CheckedBookie, bench: Bench) -> None:
    """The next journal says that the one before it went on."""
    (path,) = bench.root.glob("j/current/*.txn")
    end = LastMark(JOURNAL_ID, path.stat().st_size + 1024)
    path.with_name(journal_name(JOURNAL_ID + 1)).write_bytes(encode_header(6, end))


def in_limbo(bookie: CheckedBookie) -> None:
    bookie.ledger(5, limbo=True)


def asked_for_a_check(bookie: CheckedBookie) -> None:
    flags = ledger_data.encode_ledger_key(ledger_data.FLAGS_ID), ledger_data.encode_flags(1)
    bookie.raw_rows.append((0, "ledgers", *flags))


def leaked(bookie: CheckedBookie) -> None:
    bookie.locations[0, 60, ID_MAX] = (44, 1028)
    bookie.raw_rows.append(
        (0, "locations", location.encode_key(61, -5), location.encode_value(Location(0, 1)))
    )


def without_cookies(bookie: CheckedBookie) -> None:
    bookie.with_cookie = False


def without_journal(bookie: CheckedBookie, bench: Bench) -> None:
    bench.move_away(bookie.root / "j")


def doubted(bookie: CheckedBookie, bench: Bench) -> None:
    """An index whose rebuild could not prove that no log was missing."""
    (bookie.current(0) / NOT_PROVED_NAME).write_text('{"doubts": ["lastId is not there"]}')


def young(bench: Bench) -> None:
    """A bookie that has not flushed yet."""
    bookie = CheckedBookie(bench.root, "idx")
    bookie.store(5, 0)
    bookie.journaled(5, [0])
    bookie.write()


def cookies_made(bench: Bench) -> None:
    """Give every directory the cookie that it lacks."""
    other = CheckedBookie(bench.folder / "other", count=2).write()
    for name in ("l0", "l1", "j"):
        target = bench.root / name / "current"
        if target.is_dir():
            shutil.copy(Path(other.root) / name / "current/VERSION", target)


def rebuilt_as_db(bench: Bench) -> None:
    placement = find_placement(FILES, str(bench.root), kind=kind_named("db"))
    rebuild_index(placement, RebuildOptions(locations=True, ledgers=True, memory_bytes=64 << 20), 1)


def set_aside(bookie: CheckedBookie, bench: Bench) -> None:
    place = find_log(FILES, [str(bench.root)], 0)
    quarantine_log(FILES, ManualClock(), plan_quarantine(FILES, place), "bad sectors")


def released(bench: Bench) -> None:
    release_log(FILES, ManualClock(), plan_release(FILES, find_log(FILES, [str(bench.root)], 0)))


def salvaged(bookie: CheckedBookie, bench: Bench) -> None:
    broken_record(bookie, bench)
    place, databases, book = find_log(FILES, [str(bench.root)], 0), rocks_databases(), DigestBook()
    plan = plan_salvage(FILES, place, book, databases)
    salvage_log(FILES, ManualClock(), plan, book, databases)


ACCEPT_LOSS = "--accept-loss"
#: What the logs of the small bookie prove.
ALL = frozenset((ledger, entry) for ledger in range(4, 10) for entry in range(20))

INDEX_CHECK: tuple[Case, ...] = (
    Case(Kind.DANGLING_LOCATION.value, made(wrong_offset), folder, served=ALL),
    Case(Kind.DANGLING_LOCATION.value, made(wrong_offset, storage="idx"), folder, served=ALL),
    Case(Kind.DANGLING_LOCATION.value, and_then(unchanged, broken_record), folder),
    Case(Kind.FOREIGN_ENTRY.value, made(foreign), folder, served=ALL),
    Case(Kind.FOREIGN_ENTRY.value, made(foreign, storage="idx"), folder, served=ALL),
    Case(Kind.WRONG_LOG_ID_SPACE.value, made(other_space, count=2), folder, lasting=True),
    Case(Kind.WRONG_DIRECTORY.value, swapped, folder, mend=swap, instead="in the order of the cookie"),
    Case(Kind.MISSING_LOCATION.value, made(without_location), folder, served=ALL),
    Case(Kind.MISSING_LOCATION.value, made(without_location, storage="idx"), folder, served=ALL),
    Case(Kind.MISSING_LOCATION.value, made(spread, storage="idx", count=2), folder, served=ALL),
    Case(
        Kind.QUARANTINED_LOCATION.value,
        and_then(unchanged, set_aside),
        folder,
        mend=released,
        instead="brings it back",
        served=ALL,
    ),
    Case(
        Kind.SALVAGED_LOCATION.value,
        and_then(unchanged, salvaged),
        folder,
        lasting=True,
        instead="other replicas",
    ),
    Case(Kind.DAMAGED_LOG.value, and_then(unchanged, broken_record), folder, lasting=True),
    Case(Kind.ONLY_IN_JOURNAL.value, made(kept_in_a_journal), folder, served=ALL),
    Case(Kind.ONLY_IN_JOURNAL.value, made(kept_in_a_journal, storage="idx"), folder, refused=ACCEPT_LOSS),
    Case(Kind.CUT_JOURNAL.value, and_then(in_the_journal, cut_journal), folder),
    Case(Kind.CUT_JOURNAL.value, and_then(in_the_journal, cut_journal, storage="idx"), folder),
    Case(Kind.LOCATIONS_WITHOUT_LEDGER.value, made(without_row), folder, served=ALL),
    Case(Kind.LOCATIONS_WITHOUT_LEDGER.value, made(without_row), with_dump, served=ALL),
    Case(Kind.MISSING_LEDGER.value, made(only_in_logs), with_dump, served=ALL | {(77, 3)}),
    Case(Kind.MISSING_LEDGER.value, made(only_in_logs, storage="idx"), with_dump, served=ALL | {(77, 3)}),
    Case(Kind.WIDE_KEY.value, made(wide_key), folder, served=ALL),
    Case(Kind.DAMAGED_MASTER_KEY.value, made(flipped_key, password=PASSWORD), with_dump, served=ALL),
    Case(
        Kind.DAMAGED_MASTER_KEY.value,
        made(flipped_key, storage="idx", password=PASSWORD),
        with_dump,
        served=ALL,
    ),
    Case(
        Kind.DAMAGED_JOURNAL_KEY.value,
        made(flipped_in_the_journal, password=PASSWORD),
        with_dump,
        served=ALL,
    ),
    Case(
        Kind.DAMAGED_JOURNAL_KEY.value,
        made(flipped_in_the_journal, storage="idx", password=PASSWORD),
        with_dump,
        served=ALL,
    ),
    Case(
        Kind.DOUBTFUL_MASTER_KEY.value,
        made(flipped_in_the_journal),
        folder,
        lasting=True,
        instead="the password there proves which of the two keys is right",
    ),
    Case(
        Kind.OTHER_MASTER_KEY.value,
        made(unchanged, password=PASSWORD),
        with_dump,
        lasting=True,
        instead="no command decides whose entries these are",
    ),
    Case(Kind.UNDECODABLE_ROW.value, made(undecodable), folder, served=ALL),
    Case(Kind.UNDECODABLE_ROW.value, and_then(unchanged, negative_slot, storage="idx"), folder, served=ALL),
    Case(Kind.DAMAGED_IDX_HEADER.value, and_then(unchanged, idx_header, storage="idx"), folder, served=ALL),
    Case(Kind.DUPLICATE_IDX.value, two_files, folder, served=ALL),
    Case(Kind.UNREADABLE_INDEX.value, and_then(unchanged, without_database), folder, served=ALL),
    Case(
        Kind.LOST_INDEX.value, and_then(unchanged, without_databases), folder, mend=rebuilt_as_db, served=ALL
    ),
    Case(
        Kind.EMPTIED_DIRECTORY.value,
        and_then(unchanged, emptied, count=2),
        folder,
        lasting=True,
        instead="let 'bkctl bookie rebuild' prepare the directory as a new disk",
    ),
    Case(Kind.PENDING_REPLAY.value, made(in_the_journal), folder, lasting=True, instead="the next start"),
    Case(Kind.LEDGER_WITHOUT_ENTRIES.value, made(lambda bookie: bookie.ledger(50)), folder, lasting=True),
    Case(Kind.LIMBO.value, made(in_limbo), folder, lasting=True, instead="only when the entries are back"),
    Case(Kind.INTEGRITY_FLAG.value, made(asked_for_a_check), folder, lasting=True),
    Case(Kind.LEAKED_LOCATION.value, made(leaked), folder, lasting=True),
    Case(Kind.POSITION_UNKNOWN.value, made(without_cookies, count=2), folder, mend=cookies_made),
    Case(Kind.BOOKIE_UNKNOWN.value, made(without_cookies), with_dump, mend=cookies_made),
    Case(Kind.NO_JOURNAL.value, and_then(unchanged, without_journal), folder, mend=bring_back),
    Case(Kind.NO_INDEX.value, young, folder, lasting=True, instead="the next start"),
    Case(
        Kind.NOT_PROVED.value,
        and_then(unchanged, doubted),
        folder,
        lasting=True,
        instead="rebuild the index once more with metadata",
    ),
)
