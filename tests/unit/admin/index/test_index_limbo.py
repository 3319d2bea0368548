"""Setting and clearing the limbo flag."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from bkctl.admin.index.limbo import LimboRow, plan_limbo, set_limbo
from bkctl.codec.ledger_data import decode_ledger_data, encode_ledger_key
from bkctl.errors import CorruptionError, NotFoundError, UsageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.idx_tree import IdxTree
from bkctl.vfs import PosixFileSystem

DATA = Path(__file__).parents[3] / "data" / "index"
FS = PosixFileSystem()


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    for name in ("a/l", "b/l", "m/i1", "m/i2", "s/l", "i/l"):
        shutil.copytree(DATA / name, tmp_path / name)
    return tmp_path


def rows_in(directory: str) -> dict[bytes, bytes]:
    reader = open_read_only(f"{directory}/ledgers")
    try:
        return dict(reader.iterate())
    finally:
        reader.close()


def change(dirs: Sequence[str], ledgers: Sequence[int], *, limbo: bool) -> list[LimboRow]:
    planned = plan_limbo(FS, dirs, ledgers, limbo=limbo)
    set_limbo(FS, planned)
    return planned


def test_sets_and_clears(samples: Path) -> None:
    directory = str(samples / "a/l/current")
    before = rows_in(directory)
    key = encode_ledger_key(5)
    assert plan_limbo(FS, [directory], [5], limbo=True) == [LimboRow(directory, 5, True, True)]
    assert rows_in(directory) == before
    assert change([directory], [5, 5], limbo=True) == [LimboRow(directory, 5, True, True)]
    assert rows_in(directory) == before | {key: before[key] + b"\x28\x01"}
    assert change([directory], [5], limbo=True) == [LimboRow(directory, 5, True, False)]
    assert change([directory], [5], limbo=False) == [LimboRow(directory, 5, False, True)]
    assert rows_in(directory) == before | {key: before[key] + b"\x28\x00"}


def test_a_ledger_without_the_flag_is_not_changed_by_clearing(samples: Path) -> None:
    directory = str(samples / "a/l/current")
    before = rows_in(directory)
    assert not change([directory], [5], limbo=False)[0].changed
    assert rows_in(directory) == before


def test_the_row_that_would_win_at_javas_next_start_goes(samples: Path) -> None:
    directory = str(samples / "b/l/current")
    before = rows_in(directory)
    change([directory], [5], limbo=True)
    after = rows_in(directory)
    key = encode_ledger_key(5)
    assert key + bytes(8) not in after
    assert after[key] == before[key + bytes(8)] + b"\x28\x01"
    assert encode_ledger_key(6) + bytes(8) in after


def test_flags_and_other_ledgers_stay(samples: Path) -> None:
    directory = str(samples / "s/l/current")
    before = rows_in(directory)
    change([directory], [5], limbo=False)
    after = rows_in(directory)
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {encode_ledger_key(5)}
    assert decode_ledger_data(after[encode_ledger_key(5)]).limbo is False


def test_several_directories(samples: Path) -> None:
    dirs = [str(samples / "m/i1/current"), str(samples / "m/i2/current")]
    assert change(dirs, [4, 5], limbo=True) == [
        LimboRow(dirs[0], 4, True, True),
        LimboRow(dirs[1], 5, True, True),
    ]


def test_nothing_is_written_when_a_ledger_is_not_there(samples: Path) -> None:
    directory = str(samples / "a/l/current")
    before = rows_in(directory)
    with pytest.raises(NotFoundError, match="ledger 77, 78: no row"):
        change([directory], [78, 5, 77], limbo=True)
    assert rows_in(directory) == before
    with pytest.raises(UsageError):
        plan_limbo(FS, [directory], [-1], limbo=True)


def test_an_index_file_takes_the_flag_and_nothing_else_changes(samples: Path) -> None:
    directory = str(samples / "i/l/current")
    tree = IdxTree(FS, directory)
    before = tree.header(5)
    assert before is not None
    for limbo in (True, False):
        assert plan_limbo(FS, [directory], [5], limbo=limbo) == [LimboRow(directory, 5, limbo, True)]
        assert change([directory], [5], limbo=limbo) == [LimboRow(directory, 5, limbo, True)]
        assert change([directory], [5], limbo=limbo) == [LimboRow(directory, 5, limbo, False)]
        header = tree.header(5)
        assert header is not None
        assert (header.limbo, header.fenced, header.master_key) == (limbo, before.fenced, before.master_key)
    assert tree.header(5) == before
    with pytest.raises(NotFoundError):
        change([directory], [999], limbo=True)


def test_a_row_that_does_not_decode(samples: Path) -> None:
    directory = str(samples / "a/l/current")
    with open_store(f"{directory}/ledgers", LEDGERS_PROFILE, create=False) as store:
        store.write([Put(encode_ledger_key(5), b"damaged")], sync=True)
    with pytest.raises(CorruptionError, match=encode_ledger_key(5).hex()):
        plan_limbo(FS, [directory], [5], limbo=True)
