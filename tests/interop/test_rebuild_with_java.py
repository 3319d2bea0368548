"""A Java bookie starts on an index that we rebuilt, and serves the manifest's entries."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.entry import payload
from tests.support.grades import one_kept
from tests.support.java_bookies import STORAGES, BookieFolders, EntryKey, JavaBookies
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import FILES, Image, index_rows, logs_of
from tests.support.two_directories import split_in_two

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.slow, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]
BOOKIES = [
    *(("db", bookie) for bookie in ("bookie1", "bookie2", "bookie3")),
    *((corpus, "bookie1") for corpus in sorted(STORAGES) if corpus != "db"),
]
#: Of each kind of index one is for each run.
ALWAYS = [("db", "bookie1", "crash"), ("perledger", "bookie1", "clean")]
CASES = ALWAYS + [
    pytest.param(*case, marks=pytest.mark.thorough("as of the same kind of index"))
    for case in ((corpus, bookie, state) for state in ("clean", "crash") for corpus, bookie in BOOKIES)
    if case not in ALWAYS
]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as bookies:
        yield bookies


def image_of(corpora: Corpora, corpus: str, state: str) -> Image:
    root = corpora(corpus)
    return Image.load(root / state, root / "manifest.json", root / "zk-crash.json", root / "zk-clean.json")


def bodies(image: Image, folder: Path) -> dict[EntryKey, str]:
    """SHA-256 of the body of every entry in the logs whose payload is the manifest's."""
    from bkctl.scan.files.entrylogs import LogEntries, scan_logs

    found = {}
    for item in scan_logs(FILES, logs_of(folder), image.book()):
        assert isinstance(item, LogEntries)
        batch = item.entries.batch
        for index, key in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
            body = batch.body(index)
            data = payload(body, item.entries.check.digesters[key[0]].type)
            assert (len(data), hashlib.sha256(data).hexdigest()) == image.manifest.entries[key]
            found[key] = hashlib.sha256(body).hexdigest()
    return found


def held(image: Image, folder: Path) -> set[EntryKey]:
    """The manifest's entries that the bookie was given, of ledgers that are not deleted."""
    address = next(bookie for bookie, path in image.bookies().items() if path.name == folder.name)
    deleted = image.manifest.deleted if image.path.name == "clean" else frozenset()
    return {key for key in image.held_by(address) if key[0] not in deleted}


@pytest.mark.parametrize(("corpus", "bookie", "state"), CASES)
def test_a_java_bookie_serves_every_entry_from_the_rebuilt_index(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path, corpus: str, bookie: str, state: str
) -> None:
    image = image_of(corpora, corpus, state)
    folder = copy_directory(image.path / bookie, tmp_path / bookie)
    current = folder / "ledgers/current"
    java.serve(BookieFolders.of(corpus, folder))  # replays the journals, and flushes
    before = list(index_rows(current))
    keys = [(ledger, entry) for ledger, entry, _, _ in before]
    assert set(keys) >= held(image, folder)
    if corpus == "db":
        shutil.rmtree(current / "locations")
    else:
        for path in current.glob("*/*/*.idx"):
            data = path.read_bytes()
            path.write_bytes(data[:1024])
    dump = ("--metadata", corpora(corpus) / f"zk-{state}.json", "--trust-dump")
    result = run_cli("index", "rebuild", folder, "--yes", "-o", "json", *dump)
    # Without the old locations nothing proves which logs there were: collections have removed some.
    unproved = ["not_proved"] if corpus == "db" else []
    kinds = [each["kind"] for each in json.loads(result.stdout)["differences"]]
    assert [kind for kind in kinds if kind != "note"] == unproved
    assert result.exit_code == (3 if unproved else 0), result.stderr
    assert list(index_rows(current)) == before
    expected = bodies(image, folder)
    assert java.serve(BookieFolders.of(corpus, folder), keys) == {key: expected[key] for key in keys}


@pytest.mark.parametrize("state", one_kept("as of the crash", "crash", "clean"))
def test_a_java_bookie_with_two_ledger_directories_serves_every_entry(
    corpora: Corpora, run_cli: Cli, java: JavaBookies, tmp_path: Path, state: str
) -> None:
    image = image_of(corpora, "db", state)
    source = copy_directory(image.path / "bookie1", tmp_path / "bookie1")
    java.serve(BookieFolders.of("db", source))
    target = tmp_path / "two"
    split_in_two(source, target)
    halves = [target / "ledgers1", target / "ledgers2"]
    for half in halves:
        # Everything before the mark was flushed: into the logs that were split.
        shutil.copy(source / "ledgers/current/lastMark", half / "current")
    dump = ("--metadata", corpora("db") / f"zk-{state}.json", "--trust-dump")
    result = run_cli("index", "rebuild", target, "--yes", "-o", "json", *dump)
    assert result.exit_code == 1, "each old index names an entry that no log has: " + result.stderr
    rows = [list(index_rows(half / "current")) for half in halves]
    keys = [(ledger, entry) for part in rows for ledger, entry, _, _ in part]
    assert all(ledger % 2 == half for half, part in enumerate(rows) for ledger, *_ in part)
    assert sorted(keys) == sorted(
        (ledger, entry) for ledger, entry, _, _ in index_rows(source / "ledgers/current")
    )
    expected = bodies(image, source)
    served = java.serve(BookieFolders("db", target / "journal", halves), keys)
    assert served == {key: expected[key] for key in keys}
