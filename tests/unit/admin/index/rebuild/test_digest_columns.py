"""Digests of very many ledgers: as in a dictionary, and small in every task."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.rebuild.digest_columns import DigestColumns, Together, write_digests
from bkctl.admin.index.rebuild.log_scan import LogTask
from bkctl.codec.digest import Digester
from bkctl.errors import StorageError
from bkctl.scan.directory import LogFile
from bkctl.types import DigestType

DIGESTERS = st.one_of(
    st.sampled_from([Digester(kind) for kind in DigestType]),
    st.binary(max_size=6).map(lambda password: Digester.of(DigestType.MAC, password)),
)
KNOWN = st.dictionaries(st.integers(0, 2**63 - 1), DIGESTERS, max_size=20)


@given(KNOWN, st.integers(0, 2**63 - 1))
def test_columns_are_what_was_written(known: dict[int, Digester], other: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        columns = write_digests(f"{folder}/digests.column", known)
        for found in (columns, pickle.loads(pickle.dumps(columns))):
            assert dict(found) == known
            assert list(found) == sorted(known)
            assert len(found) == len(known)
            assert found.get(other) == known.get(other)


@given(KNOWN, KNOWN)
def test_of_two_mappings_the_first_wins(first: dict[int, Digester], second: dict[int, Digester]) -> None:
    both = Together(first, second)
    assert dict(both) == {**second, **first}
    assert len(both) == len({**second, **first})


def test_a_task_does_not_carry_them(tmp_path: Path) -> None:
    known = {ledger: Digester.of(DigestType.MAC, b"%d" % ledger) for ledger in range(5000)}
    columns = write_digests(str(tmp_path / "digests.column"), known)
    log = LogFile("/d/1.log", 1, 1 << 30)
    task = pickle.dumps(LogTask(log, "/d/work", 1000, "auto", columns))
    assert len(task) < 2000
    read = pickle.loads(task)
    assert read.book().digester(4999) == known[4999]
    assert read.book().digester(5000) is None
    told = LogTask(log, "/d/work", 1000, "auto", columns, told={7000: Digester(DigestType.CRC32)})
    assert told.book().digester(7000) == Digester(DigestType.CRC32)
    assert told.book().digester(12) == known[12]
    # Mapped once in a process, however many tasks there are.
    assert pickle.loads(task).digesters is read.digesters


def test_only_the_owner_reads_the_keys_and_a_rerun_writes_them_anew(tmp_path: Path) -> None:
    path = tmp_path / "digests.column"
    path.write_bytes(b"of an earlier run")
    path.chmod(0o644)
    known = {7: Digester.of(DigestType.MAC, b"secret")}
    assert dict(write_digests(str(path), known)) == known
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_file_that_is_another_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "digests.column"
    columns = write_digests(str(path), {7: Digester(DigestType.CRC32C)})
    _, facts = columns.__reduce__()
    data = path.read_bytes()
    for changed in (b"", data[:-1], data[:-1] + bytes([data[-1] ^ 1]), data + b"\0"):
        path.write_bytes(changed)
        with pytest.raises(StorageError, match=r"digests\.column"):
            DigestColumns(*facts)
    path.unlink()
    with pytest.raises(StorageError, match=r"digests\.column"):
        DigestColumns(*facts)
