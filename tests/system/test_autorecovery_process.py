"""Autorecovery as an operator has it: a process beside bookies, and within one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.waiting import WAIT_S, until

KEYS = {
    "bookieId": "recoverer:3181",
    "httpServerEnabled": "true",
    "httpServerPort": "0",
    "auditorPeriodicCheckInterval": "0",
    "lostBookieRecoveryDelay": "0",
}


@contextmanager
def autorecovery(folder: Path, uri: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The process and the row that it prints when it runs."""
    command = [sys.executable, "-m", "bkctl", "autorecovery", "start", "-o", "ndjson", "--metadata", uri]
    for key, value in KEYS.items():
        command += ["-X", f"{key}={value}"]
    with (folder / "autorecovery.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "autorecovery.log").read_text()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def work_of(port: int) -> dict[str, Any]:
    """Return what the auditor and the worker of a process say of themselves."""
    return dict(json.loads(get(port, "/api/v1/bkctl/autorecovery")))


def test_a_lost_bookies_replicas_are_put_back_until_sigterm(tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        uri = cluster.metadata_uri
        with BookKeeperSync(uri, ClientSettings()) as client, client.create(2, 2, 2) as handle:
            handle.append_all([b"entry %d" % number for number in range(20)])
        ledger = handle.ledger
        with open_metadata_store(uri) as store, autorecovery(tmp_path, uri) as (process, row):
            assert row["name"] == "recoverer:3181"
            until(lambda: store.underreplication.auditor() == "recoverer:3181")
            gone = store.ledgers.read_ledger(ledger).metadata.segments[0].bookies[0]
            next(one for one in cluster.bookies if one.bookie_id == gone).stop()
            until(lambda: gone not in store.ledgers.read_ledger(ledger).metadata.segments[0].bookies)
            until(lambda: store.underreplication.mark_of(ledger) is None)
            # The mark goes before the worker counts the ledger as replicated.
            until(lambda: work_of(row["http_port"])["worker"]["replicated"] >= 1)
            metrics = get(row["http_port"], "/metrics")
            assert "\nreplication_worker_NUM_ENTRIES_WRITTEN 20" in metrics
            assert 'auditor_AUDIT_BOOKIES_TIME_count{success="true"}' in metrics
            assert json.loads(get(row["http_port"], "/api/v1/autorecovery/status")) == {"enabled": True}
            assert work_of(row["http_port"])["auditor"]["elected"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
            assert store.underreplication.auditor() is None


def test_bookies_do_it_within_themselves(tmp_path: Path) -> None:
    keys = {
        "autoRecoveryDaemonEnabled": "true",
        "auditorPeriodicCheckInterval": "0",
        "httpServerEnabled": "true",
    }
    with LocalCluster(3, tmp_path / "cluster", overrides=keys | {"httpServerPort": "0"}) as cluster:
        uri = cluster.metadata_uri
        with BookKeeperSync(uri, ClientSettings()) as client, client.create(2, 2, 2) as handle:
            handle.append_all([b"entry %d" % number for number in range(20)])
        with open_metadata_store(uri) as store:
            until(lambda: store.underreplication.auditor() is not None)
            gone = store.ledgers.read_ledger(handle.ledger).metadata.segments[0].bookies[0]
            next(one for one in cluster.bookies if one.bookie_id == gone).stop()
            # The auditor is as old as the first bookie: one that came and went between two of its looks it
            # has never seen, so that an audit is asked for.
            store.underreplication.set_lost_bookie_recovery_delay(0)
            until(lambda: gone not in store.ledgers.read_ledger(handle.ledger).metadata.segments[0].bookies)
            until(lambda: store.underreplication.mark_of(handle.ledger) is None)
            up = next(one for one in cluster.bookies if one.bookie_id != gone)
            assert up.report is not None
            assert up.report.http_port is not None
            assert "\nreplication_replication_worker_NUM_ENTRIES_WRITTEN" in get(
                up.report.http_port, "/metrics"
            )


def test_without_a_cluster_it_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bkctl", "autorecovery", "start", "-X", "bookieId=recoverer"]
    command += ["--metadata", f"embedded://{tmp_path}/metadata.db"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 6, done.stderr
    assert "no cluster" in done.stderr
