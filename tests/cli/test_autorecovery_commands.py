"""``bkctl autorecovery`` and ``bkctl maintenance``: status, switches, marks, verdicts, records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.codec.underreplication import CheckKind
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.autorecovery_nodes import holder_text
from tests.support.rows import from_ndjson

Run = Callable[..., Any]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"embedded://{tmp_path}/metadata.db"


@pytest.fixture
def store(uri: str) -> Iterator[MetadataStore]:
    with open_metadata_store(uri) as opened:
        opened.layout.initialise_cluster()
        yield opened


def elect(store: MetadataStore, bookie: str) -> None:
    """Put an auditor's vote where Java's puts it."""
    assert isinstance(store, TreeMetadataStore)
    path = f"{store.root}/underreplication/auditorelection/V_0000000000"
    store._tree.create_with_parents(path, holder_text(bookie), below=store.root)


def one(result: Any) -> dict[str, Any]:
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_status_tells_switch_auditor_delay_and_marks(run_cli: Run, uri: str, store: MetadataStore) -> None:
    known = store.underreplication
    known.mark(7, ["a:1"], 1_000)
    known.mark(2**40, [], None)
    known.set_lost_bookie_recovery_delay(90)
    known.set_checked_at(CheckKind.ALL_LEDGERS, 5_000)
    elect(store, "b:1")
    row = one(run_cli("autorecovery", "status", "--metadata", uri))
    assert row == {
        "enabled": True,
        "auditor": "b:1",
        "lost_bookie_recovery_delay_s": 90,
        "marked": 2,
        "ledgers_checked_ms": 5_000,
        "placement_checked_ms": None,
        "replicas_checked_ms": None,
        "maintenance": None,
    }


def test_the_switch_is_turned(run_cli: Run, uri: str, store: MetadataStore) -> None:
    assert one(run_cli("autorecovery", "disable", "--metadata", uri)) == {"enabled": False}
    assert not store.underreplication.enabled()
    assert one(run_cli("autorecovery", "enable", "--metadata", uri)) == {"enabled": True}
    assert store.underreplication.enabled()


def test_the_delay_is_shown_and_set(run_cli: Run, uri: str, store: MetadataStore) -> None:
    assert run_cli("autorecovery", "delay", "--metadata", uri).exit_code == 6
    row = one(run_cli("autorecovery", "delay", "30m", "--metadata", uri))
    assert row == {"lost_bookie_recovery_delay_s": 1800, "changed": True}
    row = one(run_cli("autorecovery", "delay", "--metadata", uri))
    assert row == {"lost_bookie_recovery_delay_s": 1800, "changed": False}


def test_trigger_writes_what_an_auditor_watches(run_cli: Run, uri: str, store: MetadataStore) -> None:
    known = store.underreplication
    assert run_cli("autorecovery", "trigger", "--metadata", uri).exit_code == 6
    assert run_cli("autorecovery", "auditor", "--metadata", uri).exit_code == 6
    elect(store, "b:1")
    known.set_lost_bookie_recovery_delay(90)
    before = known.lost_bookie_recovery_delay_written()
    assert before is not None
    row = one(run_cli("autorecovery", "trigger", "--metadata", uri))
    assert row == {"auditor": "b:1", "checks": ["bookies"]}
    assert known.lost_bookie_recovery_delay_written() == (90, before[1] + 1)
    known.set_checked_at(CheckKind.PLACEMENT, 5_000)
    row = one(run_cli("autorecovery", "trigger", "--check", "placement", "--metadata", uri))
    assert row["checks"] == ["placement"]
    assert known.checked_at(CheckKind.PLACEMENT) == 0
    assert known.lost_bookie_recovery_delay_written() == (90, before[1] + 1)
    assert one(run_cli("autorecovery", "auditor", "--metadata", uri)) == {"auditor": "b:1"}


NOBODY = (
    "bkctl: no auditor is elected: ledgers that lack replicas may not be marked; "
    "'bkctl autorecovery start' runs one\n"
)
OFF = "bkctl: autorecovery is switched off: nobody copies; 'bkctl autorecovery enable' switches it on\n"


def test_an_empty_list_that_nobody_fills_is_not_taken_for_good_news(
    run_cli: Run, uri: str, store: MetadataStore
) -> None:
    clean = f"bkctl: marks of under-replicated ledgers in {uri}, nothing found\n"
    assert run_cli("autorecovery", "list", "--metadata", uri) == (0, "", clean + NOBODY)
    assert run_cli("autorecovery", "status", "--metadata", uri).stderr == NOBODY
    store.underreplication.set_enabled(False)
    assert run_cli("autorecovery", "status", "--metadata", uri).stderr == OFF
    assert run_cli("autorecovery", "list", "--metadata", uri).stderr == clean + OFF
    elect(store, "b:1")
    store.underreplication.set_enabled(True)
    for form, stdout in (("table", ""), ("json", "[]\n"), ("ndjson", "")):
        assert run_cli("autorecovery", "list", "--metadata", uri, "-o", form) == (0, stdout, clean)
    assert run_cli("--quiet", "autorecovery", "list", "--metadata", uri) == (0, "", "")
    named = run_cli("autorecovery", "list", "--missing", "b:1", "--metadata", uri)
    assert named.stderr == f"bkctl: marks that name b:1 in {uri}, nothing found\n"
    assert run_cli("autorecovery", "status", "--metadata", uri).stderr == ""


def test_list_tells_age_and_the_lock(run_cli: Run, uri: str, store: MetadataStore) -> None:
    assert run_cli("autorecovery", "list", "--metadata", uri).exit_code == 0
    known = store.underreplication
    known.prepare()
    known.mark(7, ["a:1"], 1_000)
    known.mark(8, ["b:1"], None)
    taken = known.acquire_ledger(7, host="worker-host")
    assert taken is not None
    result = run_cli("autorecovery", "list", "--metadata", uri)
    assert result.exit_code == 1
    seven, eight = from_ndjson(result.stdout)
    assert seven["age_s"] > 1_000_000
    assert (seven["missing_on"], seven["back"], seven["worker"]) == (["a:1"], [], "worker-host")
    assert seven["locked_s"] >= 0
    assert (eight["age_s"], eight["worker"], eight["verdict"]) == (None, None, None)
    only = run_cli("autorecovery", "list", "--missing", "b:1", "--metadata", uri)
    assert [row["ledger"] for row in from_ndjson(only.stdout)] == [8]
    assert run_cli("autorecovery", "list", "--dry-run", "--metadata", uri).exit_code == 2


def test_a_maintenance_is_begun_warned_of_and_ended(run_cli: Run, uri: str, store: MetadataStore) -> None:
    known = store.underreplication
    known.set_lost_bookie_recovery_delay(60)
    assert run_cli("maintenance", "status", "--metadata", uri).exit_code == 0
    planned = one(run_cli("maintenance", "begin", "--dry-run", "--metadata", uri))
    assert (planned["on"], planned["enabled"], known.enabled()) == (False, True, True)
    begin = ("maintenance", "begin", "--by", "ops@here", "--reason", "kernels", "--metadata", uri)
    row = one(run_cli(*begin))
    assert (row["on"], row["by"], row["delay_before_s"], row["enabled_before"]) == (
        True,
        "ops@here",
        60,
        True,
    )
    assert (known.enabled(), known.lost_bookie_recovery_delay_s()) == (False, 3600)
    refused = run_cli(*begin)
    assert refused.exit_code == 4
    assert "ops@here (kernels)" in refused.stderr
    assert run_cli("maintenance", "status", "--metadata", uri).exit_code == 1
    looks = ("autorecovery status", "autorecovery list", "bookies list", "cluster info")
    for words in map(str.split, looks):
        assert "begun by ops@here" in run_cli(*words, "--metadata", uri).stderr
    store.cookies.create_cookie("gone:3181", b"5\n")
    asked = run_cli("maintenance", "end", "--metadata", uri)
    assert asked.exit_code == 4
    assert "gone:3181" in asked.stderr
    row = one(run_cli("maintenance", "end", "--yes", "--metadata", uri))
    assert (row["on"], row["kept"], row["down"]) == (False, [], ["gone:3181"])
    assert (known.enabled(), known.lost_bookie_recovery_delay_s()) == (True, 60)
    assert run_cli("maintenance", "end", "--metadata", uri).exit_code == 6


def test_the_end_keeps_what_somebody_has_set_since(run_cli: Run, uri: str, store: MetadataStore) -> None:
    known = store.underreplication
    known.set_lost_bookie_recovery_delay(60)
    run_cli("maintenance", "begin", "--metadata", uri)
    known.set_lost_bookie_recovery_delay(600)
    row = one(run_cli("maintenance", "end", "--metadata", uri))
    assert (row["enabled"], row["lost_bookie_recovery_delay_s"]) == (True, 600)
    assert "600 s" in row["kept"][0]
    assert known.lost_bookie_recovery_delay_s() == 600


def test_what_was_off_and_longer_before_stays_so(run_cli: Run, uri: str, store: MetadataStore) -> None:
    known = store.underreplication
    known.set_lost_bookie_recovery_delay(7200)
    known.set_enabled(False)
    run_cli("maintenance", "begin", "--metadata", uri)
    assert known.lost_bookie_recovery_delay_s() == 7200
    row = one(run_cli("maintenance", "end", "--metadata", uri))
    assert (row["enabled"], row["lost_bookie_recovery_delay_s"]) == (False, 7200)


def test_verdicts_and_marks_that_say_nothing(run_cli: Run, tmp_path: Path) -> None:
    """One ledger lacks a bookie that is gone, one lacks nothing, one is deleted."""
    with LocalCluster(3, tmp_path) as cluster:
        ledgers = []
        with BookKeeperSync(cluster.metadata_uri, ClientSettings()) as client:
            for _ in range(2):
                with client.create(2, 2, 2) as handle:
                    handle.append_all([b"x" * 100] * 5)
                ledgers.append(handle.ledger)
        uri = cluster.metadata_uri
        with open_metadata_store(uri) as store:
            known = store.underreplication
            known.prepare()
            broken, whole = ledgers
            stored = store.ledgers.read_ledger(broken)
            member = stored.metadata.segments[0].bookies[0]
            known.mark(broken, [member], 1_000)
            known.mark(4711, [member], 1_000)
            down = next(bookie for bookie in cluster.bookies if bookie.bookie_id == member)
            with BookKeeperSync(uri, ClientSettings()) as client:
                while member in store.ledgers.read_ledger(whole).metadata.segments[0].bookies:
                    with client.create(2, 2, 2) as handle:
                        handle.append_all([b"y"])
                    whole = handle.ledger
            known.mark(whole, [member], 1_000)
            down.stop()
            listed = run_cli("autorecovery", "list", "--explain", "--metadata", uri)
            assert listed.exit_code == 1, listed.stderr
            verdicts = {row["ledger"]: row for row in from_ndjson(listed.stdout)}
            assert verdicts[broken]["verdict"] == "repairable"
            assert member in verdicts[broken]["waits_for"]
            assert verdicts[whole]["verdict"] == "whole"
            assert verdicts[4711]["verdict"] == "ledger_gone"
            clear = ("autorecovery", "list", "--clear-whole", "--metadata", uri)
            assert run_cli(*clear).exit_code == 4
            planned = {row["ledger"]: row for row in from_ndjson(run_cli(*clear, "--dry-run").stdout)}
            assert {ledger for ledger, row in planned.items() if row["cleared"]} >= {whole, 4711}
            assert known.mark_of(4711) is not None
            cleared = run_cli(*clear, "--yes")
            assert cleared.exit_code == 1
            assert known.mark_of(whole) is None
            assert known.mark_of(4711) is None
            assert known.mark_of(broken) is not None
            assert known.lock_of(broken) is None
