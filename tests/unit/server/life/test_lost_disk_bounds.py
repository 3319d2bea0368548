"""A new disk in the place of a lost one: refusals, several disks, indexes apart, files that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkctl.admin.index.stopped_idx_files import header_intents
from bkctl.admin.repairs.repair_journal import changes_file
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.digest import master_key
from bkctl.codec.file_info import (
    FENCED,
    HEADER_BYTES,
    LIMBO,
    NO_LEDGER,
    FileInfoHeader,
    encode_header,
    encode_slots,
    index_path,
)
from bkctl.codec.last_id import decode_last_id
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.directories.bookie_directories import examine
from bkctl.directories.cookie_rules import cookie_of, decide
from bkctl.directories.half_rebuilt import MARKER_NAME
from bkctl.directories.stored_cookies import read_stored
from bkctl.engine.interleaved_storage.index_files import IndexFiles
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import Put
from bkctl.kvstore.memory import MemoryStore
from bkctl.metadata.api import RegistrationMode
from bkctl.scan.directory import REPAIRS_NAME
from bkctl.server.life import lost_disk, lost_index_files
from bkctl.server.life.lost_disk import RebuiltRows
from bkctl.server.life.lost_index_files import LimboFiles, LostIndexFiles
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import entry_body
from tests.support.log_builder import EntryLogBuilder
from tests.support.machine_rig import PASSWORD
from tests.unit.server.life.test_lost_disk import (
    ME,
    Machine,
    configuration,
    headers,
    journal_lost,
    over_index_files,
    with_two_journals,
)

SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage"


@pytest.fixture
def machine() -> Machine:
    return Machine()


def placed(
    *,
    journals: tuple[str, ...] = ("/j",),
    ledgers: tuple[str, ...],
    indexes: tuple[str, ...] = (),
    **keys: str,
) -> Machine:
    """A machine with these directories, none of which is there."""
    machine = Machine(
        configuration(journalDirectories=",".join(journals), ledgerDirectories=",".join(ledgers))
    )
    if indexes:
        keys["indexDirectories"] = ",".join(indexes)
    machine.config = configuration(
        journalDirectories=",".join(journals), ledgerDirectories=",".join(ledgers), **keys
    )
    machine.cookie = Cookie(
        5,
        ME,
        ",".join(journals),
        join_dirs(ledgers),
        machine.store.layout.instance_id(),
        join_dirs(indexes) if indexes else None,
    )
    stored = machine.store.cookies.read_cookie(ME)
    assert stored is not None
    machine.store.cookies.update_cookie(ME, encode_cookie(machine.cookie), stored.version)
    machine.fs = MemoryFileSystem()
    return machine


def give_cookies(machine: Machine, *paths: str) -> Machine:
    for path in paths:
        machine.fs.make_directories(f"{path}/current")
        machine.fs.replace(f"{path}/current/VERSION", encode_cookie(machine.cookie))
    return machine


def give_file(machine: Machine, directory: str, ledger: int, header: FileInfoHeader, *slots: int) -> str:
    path = f"{directory}/current/{index_path(ledger)}"
    machine.fs.make_directories(path.rpartition("/")[0])
    pages = b"".join(page for _, page in encode_slots(list(enumerate(slots))))
    machine.fs.replace(path, encode_header(header) + pages)
    return path


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_bookie_that_is_registered_is_refused(machine: Machine) -> None:
    machine.store.registration.register(ME, RegistrationMode.READ_ONLY, b"")
    with pytest.raises(RefusedError, match="is registered: it still runs"):
        machine.find()


def test_a_directory_that_is_another_bookies_is_refused(machine: Machine) -> None:
    """A disk of another bookie beside the new one: its ledgers would be taken for this bookie's."""
    other = replace(machine.cookie, bookie_host="other:3181")
    machine.fs.replace("/l0/current/VERSION", encode_cookie(other))
    with pytest.raises(RefusedError, match="/l0: the cookie is that of bookie other:3181"):
        machine.find()


def test_more_directories_than_the_bookie_had_are_refused(machine: Machine) -> None:
    """Where there are three, a ledger belongs in another place than the one in which its rows are."""
    for keys in (
        {"ledgerDirectories": "/l0,/l1,/l2"},
        {"ledgerDirectories": "/l0,/l1", "indexDirectories": "/a,/b"},
    ):
        machine.config = configuration(**keys)
        with pytest.raises(RefusedError, match="the cookie has"):
            machine.find()


def test_each_of_several_new_directories_has_to_be_empty() -> None:
    for full in ("/j", "/l0", "/l1"):
        machine = placed(ledgers=("/l0", "/l1"))
        machine.fs.make_directories(f"{full}/current")
        machine.fs.replace(f"{full}/current/0.log", b"x")
        with pytest.raises(RefusedError, match=f"{full}/current: has no cookie, but is not empty"):
            machine.find()


def test_the_record_of_a_repair_alone_makes_no_directory_full(machine: Machine) -> None:
    machine.fs.make_directories(f"/l1/current/{REPAIRS_NAME}")
    machine.fs.replace(f"/l1/current/{REPAIRS_NAME}/1", b"x")
    assert [one.path for one in machine.find().directories] == ["/l1"]


def test_half_of_a_directory_is_refused() -> None:
    """Rows in limbo beside logs that are there would hide them; an index without its logs does not count."""
    for there in (("/l0", "/i0", "/l1"), ("/l0", "/i0", "/i1")):
        machine = give_cookies(placed(ledgers=("/l0", "/l1"), indexes=("/i0", "/i1")), "/j", *there)
        gone = "/i1" if "/l1" in there else "/l1"
        with pytest.raises(
            RefusedError, match=f"{gone} is new, but {there[-1]}, which belongs to it, is not"
        ):
            machine.find()


# --- several directories ------------------------------------------------------------------------------------


def test_a_kill_at_any_step_where_several_disks_are_lost() -> None:
    """The marker of each directory is durable before the first of them has anything else in it."""
    steps = len(list(placed(ledgers=("/l0", "/l1")).rebuild().steps(RebuiltRows())))
    assert steps == 10
    for killed_after in range(steps):
        machine = placed(ledgers=("/l0", "/l1"))
        for number, step in enumerate(machine.rebuild().steps(RebuiltRows())):
            if number == killed_after:
                break
            step()
        for path in ("/j", "/l0", "/l1"):
            if f"{path}/current/VERSION" in machine.fs.files:
                assert machine.databases
        if killed_after == 3:
            assert all(f"{path}/current/{MARKER_NAME}" in machine.fs.files for path in ("/j", "/l0", "/l1"))
        machine.fs = machine.fs.crash()
        if machine.find().directories:
            machine.rebuild().run()
        assert (sorted(machine.rows("/l0")), sorted(machine.rows("/l1"))) == ([0, 2, 4], [1, 5, 7])


def test_no_marker_comes_back_with_a_power_cut(machine: Machine) -> None:
    """A directory with one counts as new where its cookie is lost, whatever it holds by then."""
    machine.rebuild().run()
    assert f"/l1/current/{MARKER_NAME}" not in machine.fs.crash().files


def test_indexes_apart_are_lost_with_their_logs() -> None:
    machine = give_cookies(placed(ledgers=("/l0", "/l1"), indexes=("/i0", "/i1")), "/j", "/l0", "/i0")
    assert [one.path for one in machine.find().directories] == ["/l1", "/i1"]
    assert machine.rebuild().run().ledgers == {"/l1": 3}
    assert list(machine.databases) == ["/i1/current/ledgers"], "no other directory is written to"
    assert sorted(machine.rows("/i1")) == [1, 5, 7]
    assert not machine.find().directories, "both have their cookie"


def test_a_journal_in_a_ledger_directory_is_one_directory() -> None:
    """Where it is lost, the rows of the other directory's ledgers are lost in part, too."""
    machine = give_cookies(placed(journals=("/l1",), ledgers=("/l0", "/l1")), "/l0")
    lost = machine.find()
    assert [one.path for one in lost.directories] == ["/l1"]
    assert [one.path for one in lost.survivors] == ["/l0"], "not the new one as well"
    assert machine.rebuild().count().ledgers == machine.rebuild().run().ledgers == {"/l0": 3, "/l1": 3}


def test_a_journal_that_is_lost_alone_makes_no_database_of_its_own() -> None:
    machine = journal_lost()
    machine.rebuild().run()
    assert sorted(machine.databases) == ["/l0/current/ledgers", "/l1/current/ledgers"]


def test_a_plan_counts_the_rows_that_are_there() -> None:
    """A database that is there says that the ledgers of the other journal have lost nothing."""
    machine = with_two_journals(journal_lost())
    machine.fs.make_directories("/l1/current/ledgers")
    machine.fs.replace("/l1/current/ledgers/CURRENT", b"MANIFEST-1\n")
    store = machine.databases["/l1/current/ledgers"] = MemoryStore(path="/l1/current/ledgers")
    row = encode_ledger_data(LedgerData(fenced=False, master_key=b"k" * 20))
    store.write([Put(encode_ledger_key(1), row)], sync=True)
    assert machine.rebuild().count().ledgers == machine.rebuild().run().ledgers == {"/l0": 3}


def test_rows_are_durable_batch_by_batch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_disk, "_BATCH_ROWS", 2)
    sizes: list[tuple[int, bool]] = []
    write = MemoryStore.write

    def noted(self: MemoryStore, operations: list[Put], *, sync: bool = False) -> None:
        sizes.append((len(operations), sync))
        write(self, operations, sync=sync)

    monkeypatch.setattr(MemoryStore, "write", noted)
    machine.rebuild().run()
    assert sizes[:2] == [(2, True), (1, True)]
    assert sorted(machine.rows("/l1")) == [1, 5, 7]


# --- metadata -----------------------------------------------------------------------------------------------


class _Ledgers:
    """Metadata of which one ledger's do not decode, and another is deleted behind the listing."""

    def __init__(self, machine: Machine, damaged: int, deleted: int) -> None:
        self._inner = machine.store.ledgers
        self._damaged, self._deleted = damaged, deleted
        self.ledgers = self._inner.ledgers

    def read_ledgers(self, ledgers: object) -> object:
        for ledger, stored in self._inner.read_ledgers(ledgers):  # type: ignore[arg-type]
            if ledger == self._damaged:
                yield ledger, CorruptionError("metadata of a ledger")
            else:
                yield ledger, None if ledger == self._deleted else stored


@pytest.mark.parametrize("shape", [lambda machine: machine, over_index_files])
def test_ledgers_whose_metadata_do_not_decode_are_in_limbo_without_a_key(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, shape: Callable[[Machine], Machine]
) -> None:
    """Nobody knows whether they belong here: what the disk had of them must not be denied."""
    shape(machine)
    ledgers = _Ledgers(machine, damaged=3, deleted=5)
    rebuild = machine.rebuild()
    monkeypatch.setattr(type(machine.store), "ledgers", ledgers, raising=False)
    rows = rebuild.run()
    assert rows.unreadable == 1
    if machine.databases:
        found = machine.rows("/l1")
        assert sorted(found) == [1, 3, 7]
        assert found[3] == LedgerData(fenced=True, master_key=b"", limbo=True)
        return
    files = headers(machine)
    assert sorted(ledger for _, ledger in files) == [0, 1, 2, 3, 4, 7]
    assert files["l1", 3] == FileInfoHeader(1, b"", FENCED | LIMBO)


def test_a_ledger_whose_metadata_have_no_password_is_in_limbo_without_a_key(machine: Machine) -> None:
    stored = machine.store.ledgers.read_ledger(1)
    machine.store.ledgers.update_ledger(1, replace(stored.metadata, password=None), stored.version)
    machine.rebuild().run()
    assert machine.rows("/l1")[1] == LedgerData(fenced=True, master_key=b"", limbo=True)


# --- index files --------------------------------------------------------------------------------------------


def test_over_index_files_logs_may_hold_any_ledger(machine: Machine) -> None:
    """The place of a ledger says nothing there: a directory with the ledgers of one place is no other's."""
    over_index_files(machine)
    builder = EntryLogBuilder()
    for ledger in range(1, 40, 2):
        builder.add(entry_body(ledger, 0))
    machine.fs.replace("/l0/current/0.log", builder.roll().data)
    assert [one.path for one in machine.find().directories] == ["/l1"]


def test_over_index_files_all_disks_at_once() -> None:
    machine = placed(ledgers=("/l0", "/l1"), ledgerStorageClass=SORTED)
    assert machine.rebuild().ledgers() == [0, 1, 2, 4, 5, 7]
    assert machine.rebuild().run().ledgers == {"/l0": 6}
    found = headers(machine)
    assert sorted(ledger for _, ledger in found) == [0, 1, 2, 4, 5, 7]
    assert all(header == FileInfoHeader(1, master_key(PASSWORD), FENCED | LIMBO) for header in found.values())
    assert not any(path.endswith("lastId") for path in machine.fs.files), "no slot names a log"
    assert not machine.find().directories


def test_over_index_files_where_no_ledger_is_lost_the_directory_was_written_to() -> None:
    """A directory without a trace of a file would be taken for one that has lost its files."""
    machine = over_index_files(Machine())
    for ledger in (1, 2, 4, 5, 7):
        machine.store.ledgers.delete_ledger(ledger, 0)
    assert not machine.rebuild().run().ledgers
    assert machine.fs.crash().status("/l1/current/0/0") is not None


def test_over_index_files_the_ids_of_all_lost_logs_are_passed_in_every_new_directory() -> None:
    """The slots of any directory, and of any of its files, name the newest log."""
    for newest in ((0, 0), (0, 2), (1, 4), (1, 5)):
        machine = give_cookies(
            placed(ledgers=("/l0", "/l1", "/l2", "/l3"), ledgerStorageClass=SORTED), "/j", "/l0", "/l1"
        )
        for number, ledger in ((0, 0), (0, 2), (1, 4), (1, 5)):
            log = 9 if (number, ledger) == newest else 3
            give_file(
                machine, f"/l{number}", ledger, FileInfoHeader(1, b"k" * 20), (2 << 32) + 9, (log << 32) + 9
            )
        machine.rebuild().run()
        for path in ("/l2", "/l3"):
            assert decode_last_id(machine.fs.files[f"{path}/current/lastId"]) == 9


def test_over_index_files_the_first_log_of_all_is_a_lost_one_too(machine: Machine) -> None:
    over_index_files(machine)
    give_file(machine, "/l0", 0, FileInfoHeader(1, b"k" * 20), 1028)
    machine.rebuild().run()
    assert decode_last_id(machine.fs.files["/l1/current/lastId"]) == 0


def test_over_index_files_what_is_there_counts_where_a_journal_is_lost_alone(machine: Machine) -> None:
    assert not over_index_files(machine).find().survivors
    machine = give_cookies(
        placed(journals=("/l1",), ledgers=("/l0", "/l1"), ledgerStorageClass=SORTED), "/l0"
    )
    assert [one.path for one in machine.find().survivors] == ["/l0"]


def test_over_index_files_slots_that_cannot_be_read_end_the_rebuild_before_the_cookie(
    machine: Machine,
) -> None:
    """They may name a log with any id, so that none is surely new."""
    over_index_files(machine)
    give_file(machine, "/l0", 0x1234, FileInfoHeader(1, b"k" * 20))
    path = f"/l0/current/{index_path(0x1234)}"
    machine.fs.replace(path, b"BKLE" + bytes([255] * (HEADER_BYTES - 4)))
    with pytest.raises(CorruptionError, match=path):
        machine.rebuild().run()
    assert "/l1/current/VERSION" not in machine.fs.files
    assert "/l1/current/lastId" not in machine.fs.files


def test_over_index_files_the_files_of_a_directory_are_lost_beside_a_journal() -> None:
    """With another directory of files, and a journal that is there: any ledger may have had its file here."""
    for lost in ("/l0", "/l1"):
        machine = with_two_journals(journal_lost(), ledgerStorageClass=SORTED)
        kept = "/l1" if lost == "/l0" else "/l0"
        give_file(machine, kept, 1, FileInfoHeader(1, b"k" * 20))
        assert machine.rebuild().ledgers() == [0, 2, 4, 5, 7], "ledger 1 has its file and its journal"
        machine.rebuild().run()
        found = headers(machine)
        assert sorted(ledger for _, ledger in found) == [0, 1, 2, 4, 5, 7]
        assert not found[kept[1:], 1].limbo


def test_over_index_files_a_lost_journal_is_no_loss_of_ledgers_that_write_to_another() -> None:
    """The files are all there: a ledger without one was deleted here, and wrote to the other journal."""
    machine = with_two_journals(journal_lost(), ledgerStorageClass=SORTED)
    for number in range(2):
        give_file(machine, f"/l{number}", 100 + number, FileInfoHeader(1, b"k" * 20))
    machine.rebuild().run()
    assert sorted(ledger for _, ledger in headers(machine)) == [0, 2, 4, 100, 101]


def test_over_index_files_a_lost_index_directory_apart_has_the_files() -> None:
    """With the logs beside it lost as well; the marker and the cookie are in each."""
    machine = give_cookies(
        placed(ledgers=("/l0", "/l1"), indexes=("/i0", "/i1"), ledgerStorageClass=SORTED), "/j", "/l0", "/i0"
    )
    give_file(machine, "/i0", 0, FileInfoHeader(1, b"k" * 20), (5 << 32) + 9)
    assert machine.rebuild().run().ledgers == {"/i1": 5}
    assert sorted(headers(machine)) == [("i0", 0), *(("i1", ledger) for ledger in (1, 2, 4, 5, 7))]
    assert decode_last_id(machine.fs.files["/l1/current/lastId"]) == 5
    assert "/i1/current/lastId" not in machine.fs.files
    assert not machine.find().directories


def test_over_index_files_every_batch_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_index_files, "_BATCH_FILES", 2)
    sizes: list[int] = []
    write = IndexFiles.write_headers

    def noted(self: IndexFiles, files: dict[int, FileInfoHeader]) -> None:
        sizes.append(len(files))
        write(self, files)

    monkeypatch.setattr(IndexFiles, "write_headers", noted)
    machine = over_index_files(Machine())
    machine.rebuild().run()
    assert [size for size in sizes if size] == [2, 2, 1]
    assert sorted(ledger for _, ledger in headers(machine)) == [0, 1, 2, 4, 5, 7]


def test_where_files_are_the_first_ones_of_a_directory() -> None:
    """An undo removes whole folders there, and nothing but what was made elsewhere."""
    machine = over_index_files(Machine())
    machine.fs.make_directories("/l1/current")
    for there, new, expected in (
        (("/l0/current",), ("/l1/current",), ("/l1/current",)),
        (("/l0/current",), (), ()),
        (("/l1/current", "/l0/current"), (), ("/l1/current",)),
        ((), ("/l0/current",), ("/l0/current",)),
    ):
        files = LimboFiles(machine.fs, LostIndexFiles(there, new, ()))
        assert files.made_first == expected
    both = LimboFiles(machine.fs, LostIndexFiles(("/l0/current", "/l1/current"), (), ()))
    assert both.were_lost, "one of them has no trace of a file"
    assert not LimboFiles(machine.fs, LostIndexFiles(("/l0/current",), ("/l1/current",), ())).were_lost


@pytest.mark.parametrize("content", [encode_header(FileInfoHeader(1, b"", NO_LEDGER | FENCED)), b""])
def test_over_index_files_a_file_without_a_ledger_is_begun_anew_in_limbo(content: bytes) -> None:
    """It is what the end of a ledger here has left, whose slots nobody may read, or an empty one of Java's.

    The ledger came back since, and was in the journal that is lost. Its file has to say that there is one.
    """
    machine = over_index_files(journal_lost())
    path = f"/l0/current/{index_path(2)}"
    machine.fs.make_directories("/l0/current/0/2")
    machine.fs.replace(path, content + (bytes(8) + b"\0\0\0\7\0\0\4\4") * 4 if content else b"")
    intents = header_intents(machine.fs, ("/l0/current",), [2])
    assert changes_file(path) in intents, "an undo brings all of it back"
    machine.rebuild().run()
    assert headers(machine)["l0", 2] == FileInfoHeader(1, master_key(PASSWORD), FENCED | LIMBO)
    assert len(machine.fs.crash().files[path]) == HEADER_BYTES, "no slot of the one that ended"


def test_over_index_files_an_empty_file_names_no_log(machine: Machine) -> None:
    over_index_files(machine)
    machine.fs.make_directories("/l0/current/0/2")
    machine.fs.replace(f"/l0/current/{index_path(2)}", b"")
    machine.rebuild().run()
    assert decode_last_id(machine.fs.files["/l1/current/lastId"]) == 7


# --- a run that was cut off, and whose record is gone -------------------------------------------------------


class _CutOffError(Exception):
    """Ends a run in the middle of its rows."""


def cut_off(monkeypatch: pytest.MonkeyPatch, kind: type[MemoryStore] | type[IndexFiles], name: str) -> None:
    """Let a run write one batch with anything in it, and end at the next one."""
    write, done = getattr(kind, name), list[object]()

    def once(self: object, batch: dict[object, object], **how: bool) -> None:
        if batch and done:
            raise _CutOffError
        write(self, batch, **how)
        done.extend(batch)

    monkeypatch.setattr(kind, name, once)


def without_words(machine: Machine) -> None:
    """Make the marker one of an older version."""
    machine.fs.replace(f"/j/current/{MARKER_NAME}", b"bkctl bookie rebuild writes rows here\n")


@pytest.mark.parametrize("older", [False, True])
def test_rows_that_were_lost_are_still_lost_behind_a_run_that_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """A directory with some of its rows again was taken for one that has lost none."""
    machine = with_two_journals(journal_lost())
    with monkeypatch.context() as patch:
        patch.setattr(lost_disk, "_BATCH_ROWS", 1)
        cut_off(patch, MemoryStore, "write")
        for ledger in (0, 2, 4):
            machine.store.ledgers.delete_ledger(ledger, 0)
        with pytest.raises(_CutOffError):
            machine.rebuild().run()
    assert sorted(machine.rows("/l1")) == [1]
    if older:
        without_words(machine)
    machine.fs = machine.fs.crash()
    # The row that is there is in limbo as well.
    assert machine.rebuild().run().ledgers["/l1"] == 3
    assert sorted(machine.rows("/l1")) == [1, 5, 7]


def test_a_row_that_is_there_is_left_alone_behind_an_older_marker() -> None:
    """It does not say which rows were lost: those that are gone are made, and no other is changed."""
    machine = with_two_journals(journal_lost())
    row = LedgerData(fenced=False, master_key=b"k" * 20)
    store = machine.databases["/l1/current/ledgers"] = MemoryStore(path="/l1/current/ledgers")
    store.write([Put(encode_ledger_key(1), encode_ledger_data(row))], sync=True)
    without_words(machine)
    # As a plan counts it, to which a database is a directory of files.
    machine.fs.make_directories("/l1/current/ledgers")
    machine.fs.replace("/l1/current/ledgers/CURRENT", b"MANIFEST-1\n")
    planned = machine.rebuild().count().ledgers
    assert planned["/l1"] == 2
    assert machine.rebuild().run().ledgers == planned
    rows = machine.rows("/l1")
    assert sorted(rows) == [1, 5, 7]
    assert rows[1] == row


@pytest.mark.parametrize("older", [False, True])
def test_index_files_that_were_lost_are_still_lost_behind_a_run_that_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    machine = with_two_journals(journal_lost(), ledgerStorageClass=SORTED)
    give_file(machine, "/l1", 100, FileInfoHeader(1, b"k" * 20))
    with monkeypatch.context() as patch:
        patch.setattr(lost_index_files, "_BATCH_FILES", 1)
        cut_off(patch, IndexFiles, "write_headers")
        with pytest.raises(_CutOffError):
            machine.rebuild().run()
    assert sorted(ledger for _, ledger in headers(machine)) == [0, 100]
    if older:
        without_words(machine)
    machine.fs = machine.fs.crash()
    assert machine.rebuild().ledgers() == [0, 1, 2, 4, 5, 7]
    machine.rebuild().run()
    assert sorted(ledger for _, ledger in headers(machine)) == [0, 1, 2, 4, 5, 7, 100]


def test_a_start_says_that_a_rebuild_was_cut_off(machine: Machine) -> None:
    """No disk has to be mounted, and the cookie alone would be the wrong help."""
    directories = machine.config.directories
    next(machine.rebuild().steps(RebuiltRows()))()
    wanted = cookie_of(ME, directories, machine.store.layout.instance_id())
    stored = read_stored(machine.store.cookies, [ME])
    with pytest.raises(RefusedError, match=r"/l1: no cookie .*: `bkctl bookie rebuild` .* was interrupted"):
        decide(wanted, examine(machine.fs, directories), stored, allow_expansion=False)
