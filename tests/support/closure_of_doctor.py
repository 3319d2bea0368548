"""A case for every kind of finding that the doctor makes of directories; see ``closure``."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.conversion import switch
from bkctl.admin.conversion.bookie_places import places_of
from bkctl.admin.conversion.conversion import ConversionOptions, convert_bookie
from bkctl.admin.doctor.examination import DiskFacts, Ownership
from bkctl.admin.doctor.finding import Kind
from bkctl.admin.entrylogs.log_place import find_log
from bkctl.admin.entrylogs.quarantine import plan_quarantine, plan_release, quarantine_log, release_log
from bkctl.admin.index.check.finding import Kind as IndexKind
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.repairs.repair_journal import begin_repair, changes_file
from bkctl.codec.cookie import encode_cookie, join_dirs
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.config.loader import load
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from bkctl.storage_kinds import IDX
from bkctl.vfs import PosixFileSystem
from tests.support.closure import Bench, Case, Do
from tests.support.manual_clock import ManualClock

OTHER_ID = "10.0.0.9:3181"


def conf_with(lines: str) -> Do:
    """Set keys of the configuration."""

    def do(bench: Bench) -> None:
        bench.kept["conf"] = bench.bookie.conf.read_text()
        keys = {line.partition("=")[0] for line in lines.splitlines()}
        kept = [line for line in bench.kept["conf"].splitlines() if line.partition("=")[0] not in keys]
        bench.bookie.conf.write_text("\n".join([*kept, lines]))

    return do


def conf_back(bench: Bench) -> None:
    """Give the configuration back what it was."""
    bench.bookie.conf.write_text(bench.kept.pop("conf"))


def with_notes(*more: str) -> Callable[[Bench], tuple[object, ...]]:
    return lambda bench: ("--conf", bench.bookie.conf, "--notes", *more)


def by_path(bench: Bench) -> tuple[object, ...]:
    return (bench.bookie.root, "--notes")


def ledgers_away(bench: Bench) -> None:
    bench.move_away(bench.bookie.root / "ledgers")


def bring_back(bench: Bench) -> None:
    bench.bring_back()


def start(bench: Bench) -> None:
    bench.start_and_stop()


def a_file_instead(bench: Bench) -> None:
    bench.move_away(bench.bookie.ledgers)
    bench.bookie.ledgers.touch()


def file_away(bench: Bench) -> None:
    bench.bookie.ledgers.unlink()
    bench.bring_back()


def old_layout(bench: Bench) -> None:
    home = bench.bookie.root / "ledgers"
    for path in list(bench.bookie.ledgers.iterdir()):
        path.rename(home / path.name)
    bench.bookie.ledgers.rmdir()


def upgraded(bench: Bench) -> None:
    home = bench.bookie.root / "ledgers"
    found = list(home.iterdir())
    bench.bookie.ledgers.mkdir()
    for path in found:
        path.rename(bench.bookie.ledgers / path.name)


def idx_instead(bench: Bench) -> None:
    for name in ("locations", "ledgers"):
        bench.move_away(bench.bookie.ledgers / name)
    (bench.bookie.ledgers / "0/0").mkdir(parents=True)
    (bench.bookie.ledgers / "0/0/5.idx").write_bytes(b"BKLE" + bytes(1020))


def databases_again(bench: Bench) -> None:
    shutil.rmtree(bench.bookie.ledgers / "0")
    bench.bring_back()


def mode(mode: int, name: str = "") -> Do:
    return lambda bench: (bench.bookie.ledgers / name).chmod(mode)


def other_owner(bench: Bench) -> None:
    from bkctl.admin.doctor import doctor

    real = doctor._owner

    def owner(path: str) -> Ownership:
        facts = real(path)
        return replace(facts, user=facts.user + 1) if "/ledgers/current" in path else facts

    bench.patch.setattr(doctor, "_owner", owner)
    bench.kept["owner"] = real


def own_owner(bench: Bench) -> None:
    from bkctl.admin.doctor import doctor

    bench.patch.setattr(doctor, "_owner", bench.kept.pop("owner"))


def few_inodes(bench: Bench) -> None:
    from bkctl.admin.doctor import doctor

    bench.kept["disk"] = doctor._disk
    bench.patch.setattr(doctor, "_disk", lambda _: DiskFacts(1, 100, 50, 1000, 1))


def own_disks(bench: Bench) -> None:
    from bkctl.admin.doctor import doctor

    def disk(path: str) -> DiskFacts:
        return DiskFacts(1 if "/journal/" in path else 2, 100, 50, 1000, 500)

    bench.kept.pop("disk", None)
    bench.patch.setattr(doctor, "_disk", disk)


def without_cookies(bench: Bench) -> None:
    for name in ("journal", "ledgers"):
        (bench.bookie.root / name / "current/VERSION").unlink()


def without_any_cookie(bench: Bench) -> None:
    without_cookies(bench)
    bench.bookie.change_store(lambda _: None)


def cookies_again(bench: Bench) -> None:
    for name in ("journal", "ledgers"):
        bench.bookie.stamp(name, bench.bookie.cookie)


def every_cookie_again(bench: Bench) -> None:
    cookies_again(bench)
    cookie = bench.bookie.cookie
    with open_metadata_store(bench.bookie.uri) as store:
        store.cookies.create_cookie(cookie.bookie_host, encode_cookie(cookie))


def copied(bench: Bench) -> None:
    shutil.copytree(bench.bookie.root, bench.folder / "copy")


def another_bookies(bench: Bench) -> None:
    bench.bookie.stamp("ledgers", replace(bench.bookie.cookie, bookie_host=OTHER_ID))


@contextmanager
def held_log(bench: Bench) -> Iterator[None]:
    """Another process has a log open."""
    with (bench.bookie.ledgers / "0.log").open("rb") as log:
        holder = subprocess.Popen(["sleep", "600"], stdin=log)
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


@contextmanager
def registered(bench: Bench) -> Iterator[None]:
    """Somebody has registered the bookie."""
    with open_metadata_store(bench.bookie.uri) as store:
        store.registration.register(bench.bookie.cookie.bookie_host, RegistrationMode.WRITABLE, b"")
        yield


def no_store(bench: Bench) -> None:
    """The metadata store's file is another program's."""
    no_cluster(bench)
    with closing(sqlite3.connect(bench.bookie.root / "metadata.db")) as other:
        other.execute("CREATE TABLE t (x)")


def store_again(bench: Bench) -> None:
    (bench.bookie.root / "metadata.db").unlink()
    bench.bring_back()


def no_cluster(bench: Bench) -> None:
    for path in bench.bookie.root.glob("metadata.db*"):
        bench.move_away(path)


def shared_partition(bench: Bench) -> None:
    second = bench.bookie.root / "second"
    (second / "current").mkdir(parents=True)
    conf_with(
        f"ledgerDirectories={bench.bookie.root}/ledgers,{second}\n"
        "allowMultipleDirsUnderSameDiskPartition=false\n"
    )(bench)


def unmarked(bench: Bench) -> None:
    (bench.bookie.ledgers / "lastMark").unlink()


def index_apart(bench: Bench) -> None:
    """The index has a directory of its own, and that of the ledgers is gone."""
    index = bench.bookie.root / "index/current"
    index.mkdir(parents=True)
    for name in ("locations", "ledgers"):
        (bench.bookie.ledgers / name).rename(index / name)
    conf_with(f"indexDirectories={index.parent}\n")(bench)
    del bench.kept["conf"]
    cookie = replace(bench.bookie.cookie, index_dirs=join_dirs([str(index.parent)]))
    for name in ("journal", "ledgers", "index"):
        bench.bookie.stamp(name, cookie)
    bench.bookie.change_store(lambda _: cookie)
    ledgers_away(bench)


def mark(change: Callable[[LastMark], LastMark]) -> Do:
    def do(bench: Bench) -> None:
        path = bench.bookie.ledgers / "lastMark"
        bench.kept["mark"] = path.read_bytes()
        path.write_bytes(encode_last_mark(change(decode_last_mark(bench.kept["mark"]))))

    return do


def mark_back(bench: Bench) -> None:
    (bench.bookie.ledgers / "lastMark").write_bytes(bench.kept.pop("mark"))


def the_journal(bench: Bench) -> Path:
    return next(bench.bookie.journal.glob("*.txn"))


def databases_gone(bench: Bench) -> None:
    for name in ("ledgers", "locations"):
        shutil.rmtree(bench.bookie.ledgers / name)


def journal_away(bench: Bench) -> None:
    bench.move_away(the_journal(bench))


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Write into the middle of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def damaged_journal(bench: Bench) -> None:
    path = the_journal(bench)
    bench.kept["journal"] = path.read_bytes()
    overwrite(path, 100_000, b"\xff" * 2_000)


def journal_back(bench: Bench) -> None:
    the_journal(bench).write_bytes(bench.kept.pop("journal"))


def unsynced_journal(bench: Bench) -> None:
    """The mark is in front of a hole in the newest journal, as after a power cut."""
    path = the_journal(bench)
    overwrite(path, 400_000, bytes(2_000))
    mark(lambda found: LastMark(found.journal_id, 512))(bench)


def damaged_log(bench: Bench) -> None:
    overwrite(bench.bookie.ledgers / "1.log", 5_000, b"\xff" * 600)


def write(name: str, content: bytes) -> Do:
    return lambda bench: (bench.bookie.ledgers / name).write_bytes(content)


def remove(name: str) -> Do:
    return lambda bench: (bench.bookie.ledgers / name).unlink()


def directory_of(name: str) -> Do:
    def do(bench: Bench) -> None:
        bench.move_away(bench.bookie.ledgers / name)
        (bench.bookie.ledgers / name).mkdir()

    return do


def perhaps_with_dump(bench: Bench) -> tuple[object, ...]:
    """Every digest is to be checked, once the metadata are given."""
    dump = ("--metadata", bench.bookie.dump) if "dump" in bench.kept else ()
    return (bench.bookie.root, "--deep", *dump)


def given_a_dump(bench: Bench) -> None:
    bench.kept["dump"] = True


def large_table(bench: Bench) -> None:
    with (bench.bookie.ledgers / "locations/999999.sst").open("wb") as file:
        file.truncate(64 << 20)
    conf_with("dbStorage_rocksDB_blockCacheSize=1048576\n")(bench)


def large_block_cache(bench: Bench) -> None:
    conf_back(bench)
    conf_with("dbStorage_rocksDB_blockCacheSize=805306368\n")(bench)


def repair_cut_off(bench: Bench) -> None:
    mark_file = bench.bookie.ledgers / "lastMark"
    begin_repair(
        PosixFileSystem(), ManualClock(), [str(bench.bookie.ledgers)], "x", "", [changes_file(str(mark_file))]
    )
    mark_file.write_bytes(encode_last_mark(LastMark(0, 0)))


def record_cut(bench: Bench) -> None:
    folder = bench.bookie.ledgers / "bkctl-repairs" / "20260101T000000Z"
    folder.mkdir(parents=True)
    (folder / "repair.json").write_bytes(b"{")


def record_forgotten(bench: Bench) -> None:
    shutil.rmtree(bench.bookie.ledgers / "bkctl-repairs")


def set_aside(bench: Bench) -> None:
    files = PosixFileSystem()
    place = find_log(files, [str(bench.bookie.ledgers)], 0)
    quarantine_log(files, ManualClock(), plan_quarantine(files, place), "bad sectors")


def released(bench: Bench) -> None:
    files = PosixFileSystem()
    place = find_log(files, [str(bench.bookie.ledgers)], 0)
    release_log(files, ManualClock(), plan_release(files, place))


def rebuilt_before(bench: Bench) -> None:
    (bench.bookie.ledgers / "locations.BACKUP-20260101T000000.000000Z").mkdir()


def renamed(bench: Bench) -> None:
    conf_with("")(bench)
    text = bench.kept["conf"]
    bench.bookie.conf.write_text(text.replace("bookiePort=4100", "bookiePort=4111"))


def old_name(bench: Bench) -> None:
    with bench.bookie.conf.open("a") as file:
        file.write(f"bookieId={bench.bookie.cookie.bookie_host}\n")


def limbo_without_metadata(bench: Bench) -> None:
    """A ledger that was deleted is still here, in limbo: garbage collection has not seen to it yet."""
    ledger = 2
    with open_metadata_store(bench.bookie.uri) as metadata:
        stored = metadata.ledgers.read_ledger(ledger)
        assert stored is not None
        metadata.ledgers.delete_ledger(ledger, stored.version)
    row = Put(encode_ledger_key(ledger), encode_ledger_data(LedgerData(False, b"", None, True)))
    with open_store(str(bench.bookie.ledgers / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([row], sync=True)


def closed_behind_its_entries(bench: Bench) -> None:
    """The metadata close a ledger behind the last entry that is here: the bookie lost the end of it."""
    with open_metadata_store(bench.bookie.uri) as metadata:
        stored = metadata.ledgers.read_ledger(2)
        assert stored is not None
        longer = replace(stored.metadata, last_entry=stored.metadata.last_entry + 9)
        metadata.ledgers.update_ledger(2, longer, stored.version)


def conversion_cut_off(bench: Bench) -> None:
    """The cookies are not back yet."""
    config, _ = load(str(bench.bookie.conf), {}, {})
    options = ConversionOptions(1 << 20, RebuildOptions())
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(switch, "_return_cookie")
        with pytest.raises(NameError):
            convert_bookie(PosixFileSystem(), places_of(config), IDX, options)


DOCTOR: tuple[Case, ...] = (
    Case(Kind.BROKEN_OFF, directory_of("lastId"), mend=bring_back),
    Case(
        Kind.CONFIGURATION_KEY,
        conf_with("numReadWorkerThreads=-7\n"),
        mend=conf_back,
        instead="change the key",
    ),
    Case(Kind.NO_BOOKIE_ID, conf_with("advertisedAddress=fe80::1\n"), mend=conf_back),
    Case(Kind.CACHES_TOO_LARGE, conf_with("dbStorage_writeCacheMaxSizeMb=9000000\n"), mend=conf_back),
    Case(Kind.BLOCK_CACHE_TOO_SMALL, large_table, mend=large_block_cache, instead="blockCacheSize="),
    Case(Kind.NO_ANSWER, no_store, mend=store_again),
    Case(Kind.NO_CLUSTER, no_cluster),
    Case(Kind.REGISTERED_ELSEWHERE, during=registered, mend=lambda _: None),
    Case(Kind.UNLISTABLE_DIRECTORY, a_file_instead, mend=file_away),
    Case(Kind.OLD_LAYOUT, old_layout, mend=upgraded),
    Case(Kind.MISSING_DIRECTORY, ledgers_away, mend=bring_back, instead="mount the disk"),
    Case(Kind.OTHER_STORAGE, idx_instead, with_notes(), mend=databases_again),
    Case(Kind.CLOSED_DIRECTORY, mode(0o500), mend=mode(0o755), instead="chmod"),
    Case(Kind.WRITABLE_BY_ALL, mode(0o777), with_notes(), mend=mode(0o755)),
    Case(Kind.FOREIGN_FILES, mode(0, "lastId"), mend=mode(0o644, "lastId")),
    Case(Kind.DIFFERENT_OWNERS, other_owner, mend=own_owner, instead="chown"),
    Case(Kind.UNREADABLE_COOKIE, write("VERSION", b"five\n")),
    Case(Kind.NO_COOKIE, without_cookies, by_path, mend=cookies_again),
    Case(Kind.COPIED_BOOKIE, copied, lambda bench: (bench.folder / "copy", "--notes"), lasting=True),
    Case(Kind.COOKIES_REFUSED, without_any_cookie, mend=every_cookie_again),
    Case(Kind.RENAMED_BOOKIE, renamed, mend=old_name, instead="set bookieId=127.0.0.1:4100"),
    Case(Kind.DIFFERENT_COOKIE, another_bookies, mend=cookies_again, instead="mount the right disk"),
    Case(Kind.MISSING_COOKIE, remove("VERSION")),
    Case(Kind.COOKIE_NOT_STORED, lambda bench: bench.bookie.change_store(lambda _: None)),
    Case(Kind.IN_USE, words=with_notes(), during=held_log, mend=lambda _: None),
    Case(Kind.FULL_DISK, conf_with("diskUsageThreshold=0.01\ndiskUsageWarnThreshold=0.01\n"), mend=conf_back),
    Case(Kind.NO_INODES, few_inodes, mend=own_disks, instead="remove files that are not the bookie's"),
    Case(Kind.SHARED_DISK, words=with_notes(), mend=own_disks),
    Case(Kind.SHARED_PARTITION, shared_partition, mend=conf_back),
    Case(Kind.HALF_WRITTEN_FILE, write("lastMark.a1.tmp", b""), with_notes(), mend=remove("lastMark.a1.tmp")),
    Case(Kind.UNFINISHED_REBUILD, lambda bench: (bench.bookie.ledgers / "locations.bkctl-rebuild").mkdir()),
    Case(Kind.UNFINISHED_CONVERSION, conversion_cut_off),
    Case(Kind.UNFINISHED_REPAIR, repair_cut_off),
    Case(
        Kind.DAMAGED_REPAIR_RECORD,
        record_cut,
        mend=record_forgotten,
        instead="bkctl repair forget",
    ),
    Case(Kind.LOG_IN_QUARANTINE, set_aside, mend=released, instead="brings it back"),
    Case(Kind.OLD_INDEX, rebuilt_before, with_notes()),
    Case(Kind.DIRTY, write("DIRTY", b""), with_notes(), mend=start, instead="the next start"),
    Case(Kind.UNFINISHED_COMPACTION, write("7.log.compacting", b"")),
    Case(Kind.UNREADABLE_LAST_ID, write("lastId", b"none"), mend=start),
    Case(Kind.LOW_LAST_ID, write("lastId", b"0\n"), mend=start),
    Case(Kind.UNREADABLE_MARK, write("lastMark", b"short"), mend=start, instead="the next clean stop"),
    Case(Kind.NO_MARK, unmarked, mend=start),
    Case(
        Kind.MISSING_JOURNAL, journal_away, mend=bring_back, instead="Move it back, or restore it from a copy"
    ),
    Case(
        Kind.MARK_BEYOND_JOURNAL,
        mark(lambda found: LastMark(found.journal_id, 1 << 30)),
        mend=mark_back,
        instead="Restore the journal from a copy",
    ),
    Case(Kind.MARK_WITHIN_RECORD, mark(lambda found: LastMark(found.journal_id, 512 + 2))),
    Case(Kind.LOST_INDEX, databases_gone),
    Case(Kind.UNREADABLE_DATABASE, write("locations/CURRENT", b"no manifest")),
    Case(Kind.UNSYNCED_TAIL, unsynced_journal, with_notes(), mend=start),
    Case(Kind.DAMAGED_JOURNAL, damaged_journal, mend=journal_back, instead="bring the file back"),
    Case(Kind.DAMAGED_LOG, damaged_log, lasting=True, instead="other replicas"),
    Case(Kind.UNCHECKED_ENTRIES, words=perhaps_with_dump, mend=given_a_dump, instead="give --metadata"),
    Case(Kind.INDEX_WITHOUT_PLACE, index_apart, mend=bring_back),
    Case(
        Kind.MISPLACED_LEDGER,
        limbo_without_metadata,
        with_notes("--deep"),
        lasting=True,
        instead="nothing to do: garbage collection removes them",
    ),
)

#: Findings of the index check that only the doctor makes: it knows what the metadata place on the bookie.
PLACED: tuple[Case, ...] = (
    Case(
        IndexKind.MISSING_ENTRIES.value,
        closed_behind_its_entries,
        with_notes("--deep"),
        lasting=True,
        instead="start the bookie and let 'bkctl ledger repair LEDGER' bring the entries back",
    ),
)
