"""Reading beside a running Java bookie: nothing is locked, nothing is left behind, nothing is disturbed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.grades import one_kept
from tests.support.java_bookies import BookieFolders, JavaBookies
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import index_rows

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]

READS = (
    ("inspect",),
    ("entrylog", "list"),
    ("entrylog", "scan"),
    ("entrylog", "verify"),
    ("journal", "list"),
    ("journal", "scan"),
    ("journal", "verify"),
    ("index", "scan"),
    ("index", "ledgers"),
    ("index", "stats", "--ledgers"),
    ("cookie", "get"),
    ("lastmark", "show"),
)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as bookies:
        yield bookies


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("corpus", "bookie"), one_kept("only index files differ", ("db", "bookie1"), ("sorted", "bookie1"))
)
def test_every_reader_works_beside_a_running_java_bookie(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path, corpus: str, bookie: str
) -> None:
    folder = copy_directory(corpora(corpus) / "clean" / bookie, tmp_path / bookie)
    rows = list(index_rows(folder / "ledgers/current"))
    keys = [(ledger, entry) for ledger, entry, _, _ in rows]
    with java.running(BookieFolders.of(corpus, folder)) as read:
        before = names(folder / "ledgers")  # the journal thread may just be making its first file
        for words in READS:
            dump = ("--metadata", corpora(corpus) / "zk-clean.json") if "verify" in words else ()
            result = run_cli(*words, folder, *dump, "-o", "json")
            assert result.exit_code == 0, (words, result.stderr)
        ledger, entry, log_id, offset = rows[0]
        found = run_cli("index", "get", ledger, entry, folder, "-o", "json")
        assert (found.exit_code, f'"offset": {offset}' in found.stdout) == (0, True), log_id
        assert names(folder / "ledgers") == before
        answers = read(keys)
        assert all(len(answer) == 64 for answer in answers.values())


def test_writers_refuse_beside_a_running_java_bookie(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path
) -> None:
    folder = copy_directory(corpora("db") / "clean" / "bookie1", tmp_path / "bookie1")
    keys = [(ledger, entry) for ledger, entry, _, _ in index_rows(folder / "ledgers/current")]
    with java.running(BookieFolders.of("db", folder)) as read:
        before = names(folder / "ledgers")  # the journal thread may just be making its first file
        for words in (("rebuild", folder), ("repair", folder), ("compact", folder), ("limbo", "1", folder)):
            result = run_cli("index", *words, "--yes")
            assert result.exit_code == 4, (words, result.stdout, result.stderr)
            assert "java" in result.stderr, result.stderr
            assert str(java.pid) in result.stderr, result.stderr
        assert names(folder / "ledgers") == before
        assert all(len(answer) == 64 for answer in read(keys).values())
    assert os.path.isdir(folder / "ledgers/current/locations")
