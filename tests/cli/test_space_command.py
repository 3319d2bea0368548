"""``bkctl space``: bytes by ledger, topic, application and bookie; Pulsar's names in the lists of ledgers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.ledgers.replicated_bytes import replicated_bytes
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.codec.pulsar_names import LedgerOwner, ledger_owner, matches_topic
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import LedgerState
from tests.support.rows import from_ndjson
from tests.unit.admin.gc.stopped_bookie import Stopped, cluster_of

Run = Callable[..., Any]

ORDERS = "persistent://shop/eu/orders"
MANAGED = (("application", b"pulsar"), ("component", b"managed-ledger"))


def custom(name: str, *more: tuple[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    """Return the custom metadata of a topic's ledger."""
    return (*MANAGED, ("pulsar/managed-ledger", name.encode()), *more)


@pytest.mark.parametrize(
    ("pairs", "owner"),
    [
        ((), LedgerOwner()),
        ((("application", b"other"),), LedgerOwner("other")),
        (custom("shop/eu/persistent/orders"), LedgerOwner("pulsar", "managed-ledger", ORDERS)),
        (
            custom("shop/eu/persistent/a%2Fb%3A%C3%A9", ("pulsar/cursor", b"sub")),
            LedgerOwner("pulsar", "cursor", "persistent://shop/eu/a/b:é", "sub"),
        ),
        (custom("shop/c/eu/persistent/old"), LedgerOwner("pulsar", "managed-ledger", "persistent://shop/c/eu/old")),
        (custom("my-ledger"), LedgerOwner("pulsar", "managed-ledger", "my-ledger")),
        (
            (*MANAGED[:1], ("component", b"compacted-ledger"), ("pulsar/compactedTopic", ORDERS.encode())),
            LedgerOwner("pulsar", "compacted-ledger", ORDERS),
        ),
        (
            (*MANAGED[:1], ("component", b"schema"), ("pulsar/schemaId", b"shop/eu/orders")),
            LedgerOwner("pulsar", "schema", ORDERS),
        ),
        (
            (*MANAGED, ("psr/managed-ledger", b"shop/eu/persistent/orders")),
            LedgerOwner("pulsar", "managed-ledger", ORDERS),
        ),
        ((("pulsar/managed-ledger", b"\xff/x"),), LedgerOwner(None, None, "\\xff/x")),
    ],
)  # fmt: skip
def test_whose_a_ledger_is(pairs: tuple[tuple[str, bytes], ...], owner: LedgerOwner) -> None:
    assert ledger_owner(pairs) == owner


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(ORDERS, True), ("shop/eu/orders", True), ("shop/eu", True), ("persistent://shop", True),
     ("shop/e", False), ("shop/eu/order", False), ("shop/us", False),
     ("non-persistent://shop/eu/orders", False)],
)  # fmt: skip
def test_a_topic_is_wanted_by_itself_its_namespace_or_its_tenant(wanted: str, found: bool) -> None:
    assert matches_topic(ORDERS, wanted) is found
    assert matches_topic(f"{ORDERS}-partition-3", wanted) is found
    assert not matches_topic(None, wanted)


def metadata(
    pairs: tuple[tuple[str, bytes], ...], length: int = 0, state: LedgerState = LedgerState.CLOSED
) -> LedgerMetadata:
    """Return metadata of a ledger of two segments, two copies an entry."""
    closed = state is LedgerState.CLOSED
    segments = (Segment(0, ("a:1", "b:1", "c:1")), Segment(6, ("a:1", "b:1", "d:1")))
    last = 9 if closed else -1
    return LedgerMetadata(3, 2, 3, 2, length, last, state, segments, custom_metadata=pairs)


def test_bytes_of_replicas_are_spread_over_the_bookies_of_each_segment() -> None:
    closed = metadata((), 3000)
    assert replicated_bytes(closed, by_bookie=False) == {"": 6000}
    assert replicated_bytes(closed, by_bookie=True) == {"a:1": 2000, "b:1": 2000, "c:1": 1200, "d:1": 800}
    opened = metadata((), state=LedgerState.OPEN)
    assert replicated_bytes(opened, by_bookie=False) == {"": None}
    assert set(replicated_bytes(opened, by_bookie=True).values()) == {None}
    empty = metadata((), 0)
    assert replicated_bytes(empty, by_bookie=True) == {"a:1": 0, "b:1": 0, "c:1": 0, "d:1": 0}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A cluster with ledgers of a topic, of its subscription, of another application and of nobody."""
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        store.layout.initialise_cluster()
        for ledger, made in {
            1: metadata(custom("shop/eu/persistent/orders-partition-0"), 1000),
            2: metadata(custom("shop/eu/persistent/orders-partition-0", ("pulsar/cursor", b"sub")), 10),
            3: metadata(custom("shop/us/persistent/bills"), 500),
            4: metadata((("application", b"dlog"),), 2000),
            5: metadata(custom("shop/us/persistent/bills"), state=LedgerState.OPEN),
        }.items():
            store.ledgers.create_ledger(ledger, made)
    return {"BKCTL_METADATA_URI": uri}


def test_space_by_metadata(run_cli: Run, env: dict[str, str]) -> None:
    rows = from_ndjson(run_cli("space", "--by", "topic", env=env).stdout)
    assert [(row["topic"], row["ledgers"], row["open_ledgers"], row["bytes"]) for row in rows] == [
        (None, 1, 0, 4000),
        (f"{ORDERS}-partition-0", 2, 0, 2020),
        ("persistent://shop/us/bills", 2, 1, 1000),
    ]
    rows = from_ndjson(run_cli("space", "--by", "application", env=env).stdout)
    assert [(row["application"], row["bytes"]) for row in rows] == [("dlog", 4000), ("pulsar", 3020)]
    rows = from_ndjson(run_cli("space", "--by", "bookie", env=env).stdout)
    assert {row["bookie"] for row in rows} == {"a:1", "b:1", "c:1", "d:1"}
    (top,) = from_ndjson(run_cli("space", "--limit", "1", "--columns", "ledger,share", env=env).stdout)
    assert top == {"ledger": 4, "share": 0.5698}
    assert run_cli("space", "--by", "dir", env=env).exit_code == 2


def test_ledgers_of_a_topic(run_cli: Run, env: dict[str, str]) -> None:
    for wanted, ledgers in ((ORDERS, [1, 2]), ("shop/us", [3, 5]), ("shop", [1, 2, 3, 5]), ("none/x", [])):
        done = run_cli("ledger", "list", "--topic", wanted, env=env)
        assert [row["ledger"] for row in from_ndjson(done.stdout)] == ledgers
    row = json.loads(run_cli("ledger", "show", "2", env=env).stdout)
    assert (row["application"], row["component"], row["topic"], row["cursor"]) == (
        "pulsar", "cursor", f"{ORDERS}-partition-0", "sub",
    )  # fmt: skip


def test_space_of_files(run_cli: Run, tmp_path: Path) -> None:
    """What gc explain says of each log, by ledger."""
    bookie = Stopped(tmp_path / "b").build()
    done = run_cli("space", bookie.root)
    assert done.exit_code == 0, done.stderr
    rows = from_ndjson(done.stdout)
    logs = from_ndjson(run_cli("gc", "explain", bookie.root).stdout)
    assert sum(row["bytes"] for row in rows) == sum(log["record_bytes"] for log in logs)
    assert sum(row["live_bytes"] for row in rows) == sum(log["live_bytes"] for log in logs)
    assert all(row["bytes"] == row["live_bytes"] + row["dead_bytes"] for row in rows)
    assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    assert run_cli("space", bookie.root, "--by", "bookie").exit_code == 2
    (whole,) = from_ndjson(run_cli("space", bookie.root, "--by", "dir").stdout)
    assert (whole["ledgers"], whole["share"]) == (len(rows), 1.0)
    # A table names the directory where that is what tells its rows apart.
    assert whole["dir"] in run_cli("space", bookie.root, "--by", "dir", "-o", "table").stdout
    assert "dir" not in run_cli("space", bookie.root, "-o", "table").stdout
    other = Stopped(tmp_path / "c").build()
    for cookie in Path(other.root).rglob("VERSION"):
        cookie.unlink()  # it would be the same bookie's
    words = ("space", bookie.root, other.root)
    dirs = {row["dir"] for row in from_ndjson(run_cli(*words).stdout)}
    shown = run_cli(*words, "-o", "table")
    assert (len(dirs), [each for each in dirs if each not in shown.stdout]) == (2, []), shown


def test_a_lost_index_is_no_garbage(run_cli: Run, tmp_path: Path) -> None:
    bookie = Stopped(tmp_path / "b").build()
    for name in ("locations", "ledgers"):
        shutil.rmtree(Path(bookie.root) / "l0" / "current" / name)
    done = run_cli("space", bookie.root)
    assert done.exit_code == 1
    assert "the index is lost" in done.stderr
    assert "'bkctl index rebuild --all' first" in done.stderr
    # Without a record in a log there is nothing that could be lost.
    for log in bookie.current().glob("*.log"):
        log.write_bytes(log.read_bytes()[:1024])
    empty = run_cli("space", bookie.root)
    assert (empty.exit_code, "the index is lost" in empty.stderr) == (0, False)


def test_space_of_files_knows_topics_by_metadata(run_cli: Run, tmp_path: Path) -> None:
    bookie = Stopped(tmp_path / "b").build()
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        instance_id = store.layout.initialise_cluster()
        cluster_of(store, [1, 7], "bookie:3181")
        found = store.ledgers.read_ledger(1)
        from dataclasses import replace

        named = replace(found.metadata, custom_metadata=custom("shop/eu/persistent/orders"))
        store.ledgers.update_ledger(1, named, found.version)
    for cookie in bookie.root.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace('"instance"', f'"{instance_id}"'))
    rows = from_ndjson(run_cli("space", bookie.root, "--metadata", uri, "--by", "topic").stdout)
    by_topic = {row["topic"]: row for row in rows}
    assert by_topic[ORDERS]["live_bytes"] > 0
    assert by_topic[None]["dead_bytes"] > 0, "of ledgers that do not exist any more"


def test_a_damaged_log_is_named(run_cli: Run, tmp_path: Path) -> None:
    bookie = Stopped(tmp_path / "b").build()
    log = bookie.current() / "0.log"
    content = bytearray(log.read_bytes())
    content[1024:1028] = b"\xff\xff\xff\xff"
    log.write_bytes(content)
    done = run_cli("space", bookie.root)
    assert (done.exit_code, str(log) in done.stderr) == (1, True)
    planned = run_cli("gc", "plan", bookie.root)
    assert planned.exit_code == 1
    # Each line names the log once.
    assert [line.count(str(log)) for line in planned.stderr.splitlines() if str(log) in line] == [1]
