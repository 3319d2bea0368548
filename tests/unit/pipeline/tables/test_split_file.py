"""Splits in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.codec.digest import Digester
from bkctl.errors import StorageError
from bkctl.pipeline.locations import located
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.split_file import planned_split, splits_in, write_splits
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.types import DigestType
from tests.support.s3_server import s3_bucket


def test_each_split_comes_back_as_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "some.splits")
    splits = [
        Split((SplitFile("/b/1.log", "/b", "h:1", 1, 100), SplitFile("/b/2.log", "/b", None, 2, 50, 8, 40))),
        Split((SplitFile("zk://h", "", None, 0, 0),), ledgers=b"12345678"),
        Split((SplitFile("/b/1.txn", "/b", "h:1", 1, 9),), StoredDigests("/x.digests"), kind="journal"),
    ]
    assert write_splits(path, iter(splits)) == (3, 141)
    assert splits_in(path) == 3
    found = [planned_split(path, number) for number in range(3)]
    assert [(split.files, split.ledgers, split.kind) for split in found] == [
        (split.files, split.ledgers, split.kind) for split in splits
    ]
    known = found[2].known
    assert isinstance(known, StoredDigests)
    assert known.path == "/x.digests"


def test_a_plan_may_be_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [Split((SplitFile(f"/b/{number}.log", "/b", "h:1", number, 10),)) for number in range(3)]
    with s3_bucket("audits", monkeypatch) as parameters:
        path = located(f"s3://audits/plans?{parameters}").text_of("one.splits")
        assert write_splits(path, splits) == (3, 30)
        assert splits_in(path) == 3
        assert [planned_split(path, number).files for number in range(3)] == [one.files for one in splits]
        with pytest.raises(StorageError):
            splits_in(path.replace("one.splits", "none.splits"))


def test_keys_do_not_go_into_a_plan(tmp_path: Path) -> None:
    known = KnownDigests.of({1: Digester.of(DigestType.MAC, b"secret")})
    with pytest.raises(ValueError, match="digests of ledgers"):
        write_splits(str(tmp_path / "x"), [Split((SplitFile("/1.log", "/", None, 1, 1),), known)])


def test_a_plan_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.splits"
    write_splits(str(path), [Split((SplitFile("/1.log", "/", None, 1, 1),))])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StorageError):
        splits_in(str(path))
