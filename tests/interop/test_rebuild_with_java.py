"""A Java bookie starts on an index that we rebuilt, and serves the manifest's entries."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.entry import payload
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import FILES, Image, index_rows, logs_of

pytestmark = [pytest.mark.interop, pytest.mark.corpora, pytest.mark.slow, pytest.mark.timeout(280)]

Corpora = Callable[[str], Path]
Cli = Callable[..., Any]
STORAGES = {
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
}


def java_serves(corpus: str, folder: Path, keys: list[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Start a whole Java bookie (journal replay, no metadata store), read the entries, stop it."""
    jars = require_jars()
    arguments = (STORAGES[corpus], folder / "journal", folder / "ledgers", folder / "ledgers")
    done = subprocess.run(
        [
            jars.java,
            "-Xmx512m",
            "-XX:MaxDirectMemorySize=512m",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "-Dorg.apache.logging.log4j.level=ERROR",
            "-cp",
            jars.classpath,
            "org.apache.bookkeeper.bookie.RebuildIndex",
            "bookie",
            *map(str, arguments),
        ],
        input="".join(f"{ledger} {entry}\n" for ledger, entry in keys),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    answers = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(answers) == len(keys), (done.stdout[-500:], done.stderr[-3000:])
    return dict(zip(keys, answers, strict=True))


def bodies(image: Image, folder: Path) -> dict[tuple[int, int], str]:
    """SHA-256 of the body of every entry in the logs whose payload is the manifest's."""
    from bkctl.admin.offline.entrylogs import LogEntries, scan_logs

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


@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("corpus", sorted(STORAGES))
def test_a_java_bookie_serves_every_entry_from_the_rebuilt_index(
    corpora: Corpora, run_cli: Cli, tmp_path: Path, corpus: str, state: str
) -> None:
    root = corpora(corpus)
    image = Image.load(root / state, root / "manifest.json", root / "zk-crash.json", root / "zk-clean.json")
    folder = copy_directory(root / state / "bookie1", tmp_path / "bookie1")
    current = folder / "ledgers/current"
    java_serves(corpus, folder, [])  # replays the journals, and flushes
    before = list(index_rows(current))
    assert before
    if corpus == "db":
        shutil.rmtree(current / "locations")
    else:
        for path in current.glob("*/*/*.idx"):
            data = path.read_bytes()
            path.write_bytes(data[:1024])
    result = run_cli("index", "rebuild", folder, "--yes", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert list(index_rows(current)) == before
    expected = bodies(image, folder)
    keys = [(ledger, entry) for ledger, entry, _, _ in before]
    assert java_serves(corpus, folder, keys) == {key: expected[key] for key in keys}
