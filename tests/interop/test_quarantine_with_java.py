"""A Java bookie on a directory with a log in quarantine, and behind a salvage: unknown, never absent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from tests.support.grades import one_kept
from tests.support.java_bookies import BookieFolders, JavaBookies
from tests.support.java_bookkeeper import require_jars
from tests.support.readable import readable
from tests.support.truthful_bookie import DELETED, Entry, TruthfulBookie

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as running:
        yield running


@pytest.fixture(params=one_kept("logs have no kind of index", "db", "idx"))
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> TruthfulBookie:
    made = TruthfulBookie.make(tmp_path / "bookie", request.param, 1)
    for cookie in made.root.glob("*/current/VERSION"):
        cookie.unlink()  # theirs are checked against a store, of which this bookie has none
    return made


def entries_of(log: Path) -> list[Entry]:
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        return [
            (batch.ledgers[index], batch.entries[index])
            for batch in scan.batches()
            for index in range(len(batch))
        ]


def served(java: JavaBookies, bookie: TruthfulBookie, entries: list[Entry]) -> dict[Entry, str]:
    corpus = {"db": "db", "idx": "sorted"}[bookie.storage]
    folders = BookieFolders(corpus, bookie.journal.parent, [bookie.current().parent])
    return java.serve(folders, entries)


def digests(bodies: dict[Entry, bytes]) -> dict[Entry, str]:
    return {entry: hashlib.sha256(body).hexdigest() for entry, body in bodies.items()}


def test_java_serves_what_remains_and_a_release_brings_the_rest_back(
    run_cli: Cli, java: JavaBookies, bookie: TruthfulBookie
) -> None:
    log = bookie.logs()[0]
    whole = {entry: body for entry, body in readable(bookie.root).items() if entry[0] != DELETED}
    inside = sorted(set(entries_of(log)) & whole.keys())
    assert inside
    assert whole.keys() - set(inside)
    assert run_cli("entrylog", "quarantine", log, "--yes").exit_code == 0
    answers = served(java, bookie, sorted(whole))
    for entry in sorted(whole):
        if entry in inside:
            assert "NoEntry" not in answers[entry], entry
            assert "NoLedger" not in answers[entry], entry
            assert answers[entry] != digests(whole)[entry]
        else:
            assert answers[entry] == digests(whole)[entry]
    assert run_cli("entrylog", "quarantine", log.name, log.parent, "--release", "--yes").exit_code == 0
    assert served(java, bookie, sorted(whole)) == digests(whole)


def test_java_serves_what_was_salvaged(run_cli: Cli, java: JavaBookies, bookie: TruthfulBookie) -> None:
    log = bookie.logs()[0]
    whole = {entry: body for entry, body in readable(bookie.root).items() if entry[0] != DELETED}
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        places = {
            (batch.ledgers[index], batch.entries[index]): batch.offset(index)
            for batch in scan.batches()
            for index in range(len(batch))
        }
    lost = sorted(places.keys() & whole.keys())[3]
    content = bytearray(log.read_bytes())
    content[places[lost] : places[lost] + 40] = b"\xee" * 40
    log.write_bytes(content)
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code == 1
    answers = served(java, bookie, sorted(whole))
    for entry in sorted(whole):
        if entry == lost or (entry[0] == lost[0] and bookie.storage == "db"):
            # Java answers nothing of a ledger in limbo, also of what it has; over index files it knows no
            # limbo, and the slot of what is lost names a log that is not there.
            assert "NoEntry" not in answers[entry], entry
        else:
            assert answers[entry] == digests(whole)[entry]
