"""A bookie that is killed, converted, and started as Java's or ours: the released client gets every entry.

What was acknowledged right before the kill is in the journal alone, and is replayed into the other storage.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.storage_kinds import DB_LEDGER_STORAGE, INTERLEAVED_LEDGER_STORAGE
from tests.interop.test_bookies_over_index_files import CONF, Written, check_image
from tests.support.adopted_images import adopt_cookies, load_metadata
from tests.support.java_bookkeeper import copy_directory
from tests.support.java_client import JavaLedgerClient
from tests.support.java_cluster import OURS, THEIRS, BookieProcess
from tests.support.manifest import Image
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough("converts thrice; test_conversion_with_java.py reads without a client"),
    pytest.mark.interop,
    pytest.mark.corpora,
    pytest.mark.timeout(280),
]

Corpora = Callable[[str], Path]
TIMERS = {"flushInterval": "3600000", "gcWaitTime": "900000"}


@pytest.mark.parametrize("corpus", ["perledger"])
def test_the_client_gets_everything_after_each_conversion_of_a_killed_bookie(
    corpora: Corpora,
    java: JavaLedgerClient,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    run_cli: Callable[..., Any],
    tmp_path: Path,
    corpus: str,
) -> None:
    source = corpora(corpus)
    folder = copy_directory(source / "crash", tmp_path / "image")
    image = Image.load(folder, source / "manifest.json", source / "zk-crash.json", source / "zk-crash.json")
    uri, kazoo = load_metadata(zookeeper_server, source / "zk-crash.json")
    ((name, home),) = image.bookies().items()
    adopt_cookies(kazoo, f"/{uri.rpartition('/')[2]}", name, home)
    kazoo.stop()
    kazoo.close()
    client = java.client(uri)
    written = Written(client, name)
    where = ["-X", f"journalDirectories={home / 'journal'}", "-X", f"ledgerDirectories={home / 'ledgers'}"]
    turns = (
        (OURS, CONF[corpus], "db"),
        (THEIRS, {"ledgerStorageClass": DB_LEDGER_STORAGE}, "interleaved"),
        (OURS, {"ledgerStorageClass": INTERLEAVED_LEDGER_STORAGE}, "db"),
        (OURS, {"ledgerStorageClass": DB_LEDGER_STORAGE}, "sorted"),
        (THEIRS, CONF[corpus], None),
    )
    for kind, conf, to in turns:
        with BookieProcess(home, uri, name, {**TIMERS, **conf}) as bookie:
            bookie.start(kind)
            client.wait_for(name)
            check_image(image, client, name, "crash")
            written.check()
            # A fence that only Java's journal has may be lost with it.
            written.write(fence=kind == OURS)
            bookie.kill()
        if to is not None:
            done = run_cli("bookie", "convert", *where, "--to", to, "--yes")
            assert done.exit_code == 0, done.stderr
    client.close()
