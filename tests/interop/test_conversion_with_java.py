"""Java bookies serve what ``bookie convert`` made of the corpora, with the other storage and back again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.cookie import decode_cookie, encode_cookie, join_dirs
from bkctl.scan.directory import inspect_directory
from bkctl.scan.index import open_index
from tests.interop.test_rebuild_with_java import bodies, held, image_of
from tests.support.grades import one_kept
from tests.support.java_bookies import BookieFolders, JavaBookies
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import FILES, index_rows, logs_of

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.slow, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]
#: What ``--to`` takes for the storage of a corpus and for the other one, and a corpus that has the other one.
WAYS = {
    "db": ("db", "interleaved", "interleaved"),
    "interleaved": ("interleaved", "db", "db"),
    "sorted": ("sorted", "db", "db"),
    "perledger": ("sorted", "db", "db"),
}
#: Killed before the first flush: there is no index, and the old storage has to replay the journals first.
NEVER_FLUSHED = {("interleaved", "crash"), ("sorted", "crash")}
CASES = [
    ("db", "bookie1", "crash"),
    ("interleaved", "bookie1", "clean"),
    *one_kept(
        "as of the same storage",
        ("perledger", "bookie1", "crash"),
        *(("db", bookie, "crash") for bookie in ("bookie2", "bookie3")),
        *(("db", bookie, "clean") for bookie in ("bookie1", "bookie2", "bookie3")),
        *(("sorted", "bookie1", state) for state in ("clean", "crash")),
        ("interleaved", "bookie1", "crash"),
        ("perledger", "bookie1", "clean"),
    ),
]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as bookies:
        yield bookies


def adopt(journal: Path, ledgers: Sequence[Path]) -> list[str]:
    """Let the cookies name the place; the options that name the directories."""
    cookie = decode_cookie((ledgers[0] / "current/VERSION").read_bytes())
    paths = list(map(str, ledgers))
    moved = encode_cookie(replace(cookie, journal_dirs=str(journal), ledger_dirs=join_dirs(paths)))
    for home in (journal, *ledgers):
        (home / "current/VERSION").write_bytes(moved)
    keys = (f"journalDirectories={journal}", f"ledgerDirectories={','.join(paths)}")
    return [word for key in keys for word in ("-X", key)]


def ledgers_of(folder: Path) -> dict[int, tuple[object, ...]]:
    """All that the index says of each ledger."""
    index = open_index(FILES, str(folder / "ledgers/current"))
    assert index is not None
    with index:
        rows = [row.data for row in index.ledgers.merged() if hasattr(row, "data")]
        ids = [row.ledger for row in index.ledgers.merged() if hasattr(row, "ledger")]
    told = [(row.fenced, row.master_key, row.explicit_lac, bool(row.limbo)) for row in rows]
    return dict(zip(ids, told, strict=True))


@pytest.mark.parametrize(("corpus", "bookie", "state"), CASES)
def test_java_serves_what_was_converted_and_what_was_converted_back(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path, corpus: str, bookie: str, state: str
) -> None:
    image = image_of(corpora, corpus, state)
    folder = copy_directory(image.path / bookie, tmp_path / bookie)
    current = folder / "ledgers/current"
    back, to, other = WAYS[corpus]
    where = adopt(folder / "journal", [folder / "ledgers"])
    if (corpus, state) in NEVER_FLUSHED:
        # It has logs and no index, and its journals have all of it: there is nothing to convert.
        done = run_cli("bookie", "convert", *where, "--to", to, "--yes", "-o", "json")
        assert done.exit_code == 0, done.stderr
        assert [row["state"] for row in json.loads(done.stdout)] == ["empty"]
        ledgers: dict[int, tuple[object, ...]] = {}
    else:
        before, ledgers = list(index_rows(current)), ledgers_of(folder)
        done = run_cli("bookie", "convert", *where, "--to", to, "--yes", "-o", "json")
        assert done.exit_code == 0, done.stderr
        rows = [row for row in before if row[0] in ledgers]
        assert [row["rows"] for row in json.loads(done.stdout)] == [len(rows)]
        assert (list(index_rows(current)), ledgers_of(folder)) == (rows, ledgers)
    wanted = sorted(held(image, folder))
    assert len(wanted) > 1_000
    served = java.serve(BookieFolders.of(other, folder), wanted)  # replays what only the journal has
    java.serve(BookieFolders.of(other, folder))  # and has flushed it
    expected = bodies(image, folder)
    assert served == {key: expected[key] for key in wanted}
    assert ledgers_of(folder).keys() >= ledgers.keys()
    again = run_cli("bookie", "convert", *where, "--to", back, "--yes")
    assert again.exit_code == 0, again.stderr
    assert java.serve(BookieFolders.of(corpus, folder), wanted) == served


@pytest.mark.parametrize("corpus", one_kept("other logs, the same index", "interleaved", "perledger"))
def test_java_serves_what_was_gathered_from_two_ledger_directories(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path, corpus: str
) -> None:
    """Index files in one directory, logs in both, as Java leaves them; databases need entries at home.

    The other one had a file, whose folder stays. Without that it may have lost some, and is refused.
    """
    image = image_of(corpora, corpus, "clean")
    folder = copy_directory(image.path / "bookie1", tmp_path / "bookie1")
    homes = [folder / "ledgers", folder / "ledgers2"]
    second = homes[1] / "current"
    second.mkdir(parents=True)
    shutil.copy(homes[0] / "current/lastMark", second)
    (second / "0").mkdir()
    for log in logs_of(folder)[1::2]:
        shutil.move(log.path, second)
    where = adopt(folder / "journal", homes)
    wanted = sorted(held(image, folder))
    two = BookieFolders(corpus, folder / "journal", homes)
    served = java.serve(two, wanted)
    done = run_cli("bookie", "convert", *where, "--to", "db", "--yes", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert sum(row["copied"] for row in json.loads(done.stdout)) > 100
    assert java.serve(replace(two, corpus="db"), wanted) == served
    ids = [{log.log_id for log in inspect_directory(FILES, str(home / "current")).logs} for home in homes]
    again = run_cli("bookie", "convert", *where, "--to", "interleaved", "--yes", "-o", "json")
    assert again.exit_code == 0, again.stderr
    if ids[0] & ids[1]:
        assert json.loads(again.stdout)[1]["renamed"] == len(ids[1])
    assert java.serve(replace(two, corpus="interleaved"), wanted) == served
