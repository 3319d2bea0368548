"""``repair undo`` behind ``index repair`` and ``index limbo``: the directory as it was, byte for byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.stopped_index import rocks_databases
from bkctl.codec.file_info import KEY_AT
from bkctl.codec.ledger_data import decode_ledger_data, encode_ledger_data, encode_ledger_key
from bkctl.kvstore.base import Delete, Put
from tests.support.cluster_dump import write_dump
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import HOST, INSTANCE, LIVE, NEXT_LEDGER, TruthfulBookie

Run = Callable[..., Any]


@pytest.fixture(scope="module", params=["db", "idx"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", request.param, 1)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    return made.copy(tmp_path / "bookie")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dumps") / "whole.json"
    write_dump(path, LIVE, bookie=HOST, instance_id=INSTANCE, next_ledger=NEXT_LEDGER, password=b"secret")
    return path


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def damage(bookie: TruthfulBookie) -> None:
    """A wide row for a ledger that has one and for one that was deleted; or a damaged key in a file."""
    if bookie.storage == "idx":
        path = sorted(bookie.root.rglob("*.idx"))[0]
        data = bytearray(path.read_bytes())
        data[KEY_AT] ^= 1
        path.write_bytes(data)
        return
    store = rocks_databases().write(str(bookie.current() / "ledgers"))
    value = store.get(encode_ledger_key(1))
    assert value is not None
    row = encode_ledger_data(dataclasses.replace(decode_ledger_data(value), fenced=True))
    wide = [Put(encode_ledger_key(ledger) + bytes(8), row) for ledger in (1, 3)]
    store.write([*wide, Delete(encode_ledger_key(3))], sync=True)
    store.close()


def undone(run_cli: Run, bookie: TruthfulBookie, made_by: str, before: dict[str, bytes]) -> None:
    assert content(bookie.root) != before
    (row,) = from_ndjson(run_cli("repair", "log", bookie.root, "-o", "ndjson").stdout)
    assert (row["made_by"], row["state"], row["why_not"]) == (made_by, "done", None)
    done = run_cli("repair", "undo", bookie.root, "--yes")
    assert done.exit_code == 0, done.stderr
    assert content(bookie.root) == before


def test_rows_and_locations_that_a_repair_changed_are_undone(
    run_cli: Run, bookie: TruthfulBookie, dump: Path
) -> None:
    damage(bookie)
    before = content(bookie.root)
    words = ("index", "repair", bookie.root, "--metadata", dump, "-o", "ndjson")
    planned = run_cli(*words, "--dry-run")
    assert content(bookie.root) == before
    done = run_cli(*words, "--yes")
    assert done.exit_code == 0, done.stderr
    kinds = {row["kind"] for row in from_ndjson(done.stdout)}
    assert kinds == ({"collapsed", "deleted"} if bookie.storage == "db" else {"rekeyed"})
    assert done.stdout == planned.stdout
    undone(run_cli, bookie, "index repair", before)


@pytest.mark.parametrize("clear", [False, True])
def test_flags_that_were_set_or_cleared_are_undone(run_cli: Run, bookie: TruthfulBookie, clear: bool) -> None:
    words = ("index", "limbo", *map(str, LIVE[:2]), bookie.root, "--yes")
    if clear:
        assert run_cli(*words).exit_code == 0
        assert run_cli("repair", "forget", bookie.root, "--yes").exit_code == 0
    before = content(bookie.root)
    assert run_cli(*words, *(["--clear"] if clear else [])).exit_code == 0
    undone(run_cli, bookie, "index limbo", before)


def test_every_flag_is_cleared_at_once(run_cli: Run, bookie: TruthfulBookie) -> None:
    words = ("index", "limbo", bookie.root, "--clear", "--all")
    assert run_cli("index", "limbo", *map(str, LIVE[:2]), bookie.root, "--yes").exit_code == 0
    assert run_cli("repair", "forget", bookie.root, "--yes").exit_code == 0
    before = content(bookie.root)
    planned = run_cli(*words, "--dry-run")
    assert [(row["ledger"], row["changed"]) for row in from_ndjson(planned.stdout)] == [
        (ledger, True) for ledger in LIVE[:2]
    ]
    asked = run_cli(*words)
    assert (asked.exit_code, "clear the limbo flag of 2 ledgers" in asked.stderr) == (4, True), asked.stderr
    assert content(bookie.root) == before
    assert run_cli(*words, "--yes").stdout == planned.stdout
    again = run_cli(*words)  # nothing to do, nothing to ask
    assert (again.exit_code, again.stdout) == (0, "")
    for wrong in (("index", "limbo", "1", bookie.root, "--clear"), ("index", "limbo", bookie.root)):
        assert run_cli(*wrong, "--all", "--yes").exit_code == 2
    undone(run_cli, bookie, "index limbo", before)


def test_where_nothing_changes_nothing_is_written(run_cli: Run, bookie: TruthfulBookie) -> None:
    before = content(bookie.root)
    assert run_cli("index", "repair", bookie.root, "--yes").exit_code == 0
    assert run_cli("index", "limbo", "1", bookie.root, "--clear", "--yes").exit_code == 0
    assert content(bookie.root) == before


@pytest.mark.parametrize("named", ["the whole bookie", "the index alone"])
@pytest.mark.parametrize("verb", ["limbo", "repair"])
def test_a_start_is_noticed_that_left_the_index_files_as_they_were(
    run_cli: Run, tmp_path: Path, dump: Path, verb: str, named: str
) -> None:
    """The index files have directories of their own, where a start leaves no trace."""
    bookie = TruthfulBookie.make(tmp_path / "bookie", "idx", 1)
    damage(bookie)
    ledgers, index = bookie.current(), bookie.root / "i0" / "current"
    index.mkdir(parents=True)
    for folder in ledgers.iterdir():
        if folder.is_dir() and len(folder.name) <= 2:
            folder.rename(index / folder.name)
    (index / "VERSION").write_bytes((ledgers / "VERSION").read_bytes())
    before = content(bookie.root)
    place = bookie.root if named == "the whole bookie" else index
    words = {"limbo": ("limbo", 1, place), "repair": ("repair", place, "--metadata", dump)}[verb]
    done = run_cli("index", *words, "--yes")
    assert done.exit_code == 0, done.stderr
    mark = ledgers / "lastMark"
    old = mark.read_bytes()
    mark.write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
    refused = run_cli("repair", "undo", bookie.root, "--yes")
    assert refused.exit_code == 4
    assert f"{mark} is changed" in refused.stderr
    mark.write_bytes(old)
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert content(bookie.root) == before
