"""A new disk in the place of a lost one: rows in limbo before the cookie, across kills at every step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie
from bkctl.codec.digest import master_key
from bkctl.codec.file_info import (
    HEADER_BYTES,
    FileInfoHeader,
    decode_header,
    encode_header,
    encode_slots,
    index_path,
    parse_index_path,
)
from bkctl.codec.last_id import decode_last_id
from bkctl.codec.last_mark import ZERO_MARK, LastMark, encode_last_mark
from bkctl.codec.ledger_data import (
    FLAGS_ID,
    LedgerData,
    decode_ledger_data,
    decode_ledger_key,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.codec.ledger_metadata import Segment
from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.directories.half_rebuilt import MARKER_NAME
from bkctl.errors import RefusedError
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.lost_disk import DiskRebuild, LostDisk, RebuiltRows, find_lost_disk
from bkctl.types import LedgerState
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import entry_body
from tests.support.log_builder import EntryLogBuilder
from tests.support.machine_rig import PASSWORD, metadata

_NAMES = count()

ME, OTHER = "me:3181", "other:3181"
DIRECTORIES = ("/l0", "/l1")


def configuration(**keys: str) -> BookieConfig:
    given = {
        "journalDirectories": "/j",
        "ledgerDirectories": ",".join(DIRECTORIES),
        "bookieId": ME,
        "metadataServiceUri": "memory://lost",
        **keys,
    }
    return load(None, given, {})[0]


@dataclass
class Machine:
    """A bookie with one disk too few, and a cluster with eight ledgers, of which it has all but 3 and 6."""

    config: BookieConfig = field(default_factory=configuration)
    fs: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    databases: dict[str, MemoryStore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store: MetadataStore = open_metadata_store(f"memory://lost{next(_NAMES)}")
        self.store.layout.initialise_cluster()
        for ledger in range(8):
            bookies = (OTHER, "c", "d") if ledger in (3, 6) else (OTHER, ME, "d")
            found = metadata(
                state=LedgerState.CLOSED if ledger % 2 else LedgerState.OPEN,
                last_entry=9 if ledger % 2 else -1,
                segments=(Segment(0, ("x", "y", "z")), Segment(4, bookies)),
            )
            self.store.ledgers.create_ledger(ledger, found)
        instance = self.store.layout.instance_id()
        self.cookie = Cookie(5, ME, "/j", "2\t/l0\t/l1", instance, None)
        self.store.cookies.create_cookie(ME, encode_cookie(self.cookie))
        for path in ("/j", "/l0"):
            self.fs.make_directories(f"{path}/current")
            self.fs.replace(f"{path}/current/VERSION", encode_cookie(self.cookie))

    def close(self) -> None:
        self.store.close()

    def find(self) -> LostDisk:
        return find_lost_disk(self.config, self.store, self.fs)

    def rebuild(self) -> DiskRebuild:
        def opened(path: str) -> MemoryStore:
            old = self.databases.get(path)
            self.databases[path] = MemoryStore(path=path) if old is None else old.crash()
            return self.databases[path]

        return DiskRebuild(
            self.fs, self.store, self.find(), opened, lambda path: self.databases[path].crash()
        )

    def rows(self, directory: str) -> dict[int, object]:
        store = self.databases[f"{directory}/current/ledgers"].crash()
        found = {decode_ledger_key(key)[0]: decode_ledger_data(value) for key, value in store.iterate()}
        return {ledger: row for ledger, row in found.items() if ledger != FLAGS_ID}


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_exactly_the_ledgers_that_belong_on_the_disk_have_rows_in_limbo(machine: Machine) -> None:
    lost = machine.find()
    assert [one.path for one in lost.directories] == ["/l1"]
    planned = machine.rebuild().count()
    assert not machine.databases
    rows = machine.rebuild().run()
    assert rows.ledgers == planned.ledgers == {"/l1": 3}
    found = machine.rows("/l1")
    assert sorted(found) == [1, 5, 7]
    for row in found.values():
        assert (row.fenced, row.limbo, row.master_key) == (True, True, master_key(PASSWORD))  # type: ignore[attr-defined]
    assert decode_cookie(machine.fs.files["/l1/current/VERSION"]) == machine.cookie
    assert f"/l1/current/{MARKER_NAME}" not in machine.fs.files
    assert not machine.find().directories, "nothing is left to do"


def test_a_disk_on_which_no_ledger_belongs_has_an_index_that_is_not_lost(machine: Machine) -> None:
    """A database that was never written to keeps a bookie from starting, beside one that has lived."""
    for ledger in (1, 5, 7):
        machine.store.ledgers.delete_ledger(ledger, 0)
    assert not machine.rebuild().run().ledgers
    assert not machine.rows("/l1")
    assert not machine.databases["/l1/current/ledgers"].crash().never_written


def test_a_disk_in_the_place_of_the_lost_one_is_not_taken_for_its_neighbour(machine: Machine) -> None:
    """The rows in limbo would be those of ledgers that are there, and the lost ones be "no such ledger"."""
    for ledgers, is_refused in ((range(0, 40, 2), False), (range(1, 40, 2), True)):
        builder = EntryLogBuilder()
        for ledger in ledgers:
            builder.add(entry_body(ledger, 0))
        machine.fs.replace("/l0/current/0.log", builder.roll().data)
        if not is_refused:
            assert [one.path for one in machine.find().directories] == ["/l1"]
            continue
        with pytest.raises(RefusedError, match=r"/l0/current \(its logs\) holds the ledgers of directory 1 "):
            machine.find()


def test_a_kill_at_any_step_leaves_no_bookie_that_starts_without_its_rows() -> None:
    steps = len(list(Machine().rebuild().steps(RebuiltRows())))
    assert steps == 4
    for killed_after in range(steps):
        machine = Machine()
        for number, step in enumerate(machine.rebuild().steps(RebuiltRows())):
            if number == killed_after:
                break
            step()
        machine.fs = machine.fs.crash()
        if "/l1/current/VERSION" in machine.fs.files:
            assert sorted(machine.rows("/l1")) == [1, 5, 7]
        else:
            machine.rebuild().run()
        assert sorted(machine.rows("/l1")) == [1, 5, 7]
        assert not machine.find().directories


def test_directories_that_are_not_new_are_refused(machine: Machine) -> None:
    machine.fs.make_directories("/l1/current")
    machine.fs.replace("/l1/current/0.log", b"x")
    with pytest.raises(RefusedError, match="is not empty"):
        machine.find()


def journal_lost() -> Machine:
    """Ledger 0 has a row in the directory that is there, and the last mark names a journal that is lost."""
    machine = Machine()
    machine.fs.make_directories("/l1/current")
    for path in ("/l0", "/l1"):
        machine.fs.replace(f"{path}/current/VERSION", encode_cookie(machine.cookie))
        machine.fs.replace(f"{path}/current/lastMark", encode_last_mark(LastMark(77, 512)))
    machine.fs.remove("/j/current/VERSION")
    machine.fs.sync_directory("/j/current")
    row = LedgerData(fenced=False, master_key=b"k" * 20, explicit_lac=b"lac")
    store = MemoryStore(path="/l0/current/ledgers")
    store.write([Put(encode_ledger_key(0), encode_ledger_data(row))], sync=True)
    machine.databases["/l0/current/ledgers"] = store
    return machine


def test_where_a_journal_is_lost_its_ledgers_are_in_limbo_everywhere() -> None:
    machine = journal_lost()
    lost = machine.find()
    assert ([one.path for one in lost.directories], [one.path for one in lost.survivors]) == (
        ["/j"],
        ["/l0", "/l1"],
    )
    assert machine.rebuild().run().ledgers == {"/l0": 3, "/l1": 3}
    rows = machine.rows("/l0") | machine.rows("/l1")
    assert sorted(rows) == [0, 1, 2, 4, 5, 7]
    assert all((row.fenced, row.limbo) == (True, True) for row in rows.values())  # type: ignore[attr-defined]
    assert (rows[0].master_key, rows[0].explicit_lac) == (b"k" * 20, b"lac")  # type: ignore[attr-defined]
    for path in ("/l0", "/l1"):
        assert machine.fs.files[f"{path}/current/lastMark"] == encode_last_mark(ZERO_MARK)
    assert not machine.find().directories, "nothing is left to do"


def test_a_kill_while_a_lost_journal_is_made_again() -> None:
    steps = len(list(journal_lost().rebuild().steps(RebuiltRows())))
    for killed_after in range(steps):
        machine = journal_lost()
        for number, step in enumerate(machine.rebuild().steps(RebuiltRows())):
            if number == killed_after:
                break
            step()
        machine.fs = machine.fs.crash()
        if "/j/current/VERSION" not in machine.fs.files:
            machine.rebuild().run()
        assert sorted(machine.rows("/l0") | machine.rows("/l1")) == [0, 1, 2, 4, 5, 7]
        assert not machine.find().directories


def with_two_journals(machine: Machine, **keys: str) -> Machine:
    """Give a machine a second journal directory, which is there; ``/j`` is that of the even ledgers."""
    machine.config = configuration(journalDirectories="/j,/k", **keys)
    machine.cookie = replace(machine.cookie, journal_dirs="/j,/k")
    stored = machine.store.cookies.read_cookie(ME)
    assert stored is not None
    machine.store.cookies.update_cookie(ME, encode_cookie(machine.cookie), stored.version)
    machine.fs.make_directories("/k/current")
    for path in ("/k", "/l0", "/l1"):
        machine.fs.replace(f"{path}/current/VERSION", encode_cookie(machine.cookie))
    return machine


def test_a_directory_whose_rows_are_lost_with_a_journal_has_all_its_ledgers_in_limbo() -> None:
    """Rows for the ledgers of the journal alone would hide from a start that the others are lost."""
    machine = with_two_journals(journal_lost())
    assert machine.find().lost_journals == (0,)
    assert machine.rebuild().count().ledgers == machine.rebuild().run().ledgers == {"/l0": 3, "/l1": 3}
    assert sorted(machine.rows("/l1")) == [1, 5, 7]
    # Where the rows are there, ledgers of the other journal have lost nothing.
    machine = with_two_journals(journal_lost())
    row = LedgerData(fenced=False, master_key=b"k" * 20)
    machine.databases["/l1/current/ledgers"] = store = MemoryStore(path="/l1/current/ledgers")
    store.write([Put(encode_ledger_key(1), encode_ledger_data(row))], sync=True)
    machine.rebuild().run()
    assert machine.rows("/l1") == {1: row}


def test_index_files_that_are_lost_with_a_journal_are_made_for_all_ledgers() -> None:
    storage = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
    machine = with_two_journals(journal_lost(), ledgerStorageClass=storage)
    machine.rebuild().run()
    assert sorted(ledger for _, ledger in headers(machine)) == [0, 1, 2, 4, 5, 7]


def over_index_files(machine: Machine) -> Machine:
    """Ledger 0 has a file in the directory that is there, with an entry in log 7, which is lost."""
    machine.config = configuration(ledgerStorageClass="org.apache.bookkeeper.bookie.SortedLedgerStorage")
    path = f"/l0/current/{index_path(0)}"
    machine.fs.make_directories("/l0/current/0/0")
    ((_, page),) = encode_slots([(3, (7 << 32) + 1028)])
    machine.fs.replace(path, encode_header(FileInfoHeader(1, b"k" * 20)) + page)
    return machine


def headers(machine: Machine) -> dict[tuple[str, int], FileInfoHeader]:
    """The headers of all files, by directory and ledger."""
    return {
        (path.split("/")[1], parse_index_path(path).ledger): decode_header(content)
        for path, content in machine.fs.files.items()
        if path.endswith(".idx")
    }


def test_over_index_files_ledgers_without_a_file_have_one_in_limbo(machine: Machine) -> None:
    over_index_files(machine)
    before = machine.fs.files[f"/l0/current/{index_path(0)}"]
    assert machine.rebuild().count().ledgers == {"/l1": 5}
    assert machine.rebuild().run().ledgers == {"/l1": 5}
    found = headers(machine)
    assert sorted(found) == [("l0", 0), *(("l1", ledger) for ledger in (1, 2, 4, 5, 7))]
    # Slots name the log that is lost, so that nothing of it is "no such entry".
    assert machine.fs.files[f"/l0/current/{index_path(0)}"] == before
    for (directory, _), header in found.items():
        if directory == "l1":
            assert (header.fenced, header.limbo, header.master_key) == (True, True, master_key(PASSWORD))
    # A log of that id would be read at the places of the lost one's records.
    assert decode_last_id(machine.fs.files["/l1/current/lastId"]) == 7
    assert decode_cookie(machine.fs.files["/l1/current/VERSION"]) == machine.cookie
    assert not machine.find().directories, "nothing is left to do"


def test_over_index_files_a_kill_at_any_step_leaves_no_bookie_that_starts_without_its_files() -> None:
    steps = len(list(over_index_files(Machine()).rebuild().steps(RebuiltRows())))
    assert steps == 5
    for killed_after in range(steps):
        machine = over_index_files(Machine())
        for number, step in enumerate(machine.rebuild().steps(RebuiltRows())):
            if number == killed_after:
                break
            step()
        machine.fs = machine.fs.crash()
        if "/l1/current/VERSION" not in machine.fs.files:
            machine.rebuild().run()
        assert sorted(headers(machine)) == [("l0", 0), *(("l1", ledger) for ledger in (1, 2, 4, 5, 7))]
        assert decode_last_id(machine.fs.files["/l1/current/lastId"]) == 7


def test_over_index_files_a_lost_journal_puts_its_ledgers_into_limbo_in_their_files() -> None:
    machine = over_index_files(journal_lost())
    slots = machine.fs.files[f"/l0/current/{index_path(0)}"][HEADER_BYTES:]
    assert machine.rebuild().run().ledgers == {"/l0": 6}
    found = headers(machine)
    assert sorted(found) == [("l0", ledger) for ledger in (0, 1, 2, 4, 5, 7)]
    assert all((header.fenced, header.limbo) == (True, True) for header in found.values())
    assert found["l0", 0].master_key == b"k" * 20
    assert machine.fs.files[f"/l0/current/{index_path(0)}"][HEADER_BYTES:] == slots
    for path in ("/l0", "/l1"):
        assert machine.fs.files[f"{path}/current/lastMark"] == encode_last_mark(ZERO_MARK)


def test_over_index_files_a_lost_index_alone_is_rebuilt_from_the_logs(machine: Machine) -> None:
    machine.config = configuration(
        ledgerStorageClass="org.apache.bookkeeper.bookie.SortedLedgerStorage",
        ledgerDirectories="/l0",
        indexDirectories="/l1",
    )
    cookie = Cookie(5, ME, "/j", "1\t/l0", machine.store.layout.instance_id(), "1\t/l1")
    stored = machine.store.cookies.read_cookie(ME)
    assert stored is not None
    machine.store.cookies.update_cookie(ME, encode_cookie(cookie), stored.version)
    for path in ("/j", "/l0"):
        machine.fs.replace(f"{path}/current/VERSION", encode_cookie(cookie))
    with pytest.raises(RefusedError, match="index rebuild"):
        machine.find()


def test_a_bookie_that_nobody_knows_and_one_that_is_another(machine: Machine) -> None:
    with pytest.raises(RefusedError, match="this is a new bookie"):
        find_lost_disk(configuration(bookieId="new:3181"), machine.store, machine.fs)
    with pytest.raises(RefusedError, match="ledgerDirectories"):
        find_lost_disk(configuration(ledgerDirectories="/l0,/l2"), machine.store, machine.fs)


def test_all_disks_at_once() -> None:
    machine = Machine()
    machine.fs = MemoryFileSystem()
    rows = machine.rebuild().run()
    assert rows.ledgers == {"/l0": 3, "/l1": 3}
    assert (sorted(machine.rows("/l0")), sorted(machine.rows("/l1"))) == ([0, 2, 4], [1, 5, 7])
    assert not machine.find().directories
