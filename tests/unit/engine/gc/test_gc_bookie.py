"""Whole bookies that collect: through their port, their HTTP admin and the commands; and after a deletion."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bkctl.admin.gc import over_http
from bkctl.client.sync import BookKeeperSync
from bkctl.engine.ledger_table import BURIED_S
from bkctl.errors import LedgerFencedError, NoLedgerError, UsageError
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.cluster_removal import format_cluster
from tests.support.command_line import invoke
from tests.support.engine_rig import EngineRig, small_settings

OVERRIDES = {
    "httpServerEnabled": "true",
    "httpServerPort": "0",
    "logSizeLimit": "20000",
    "minorCompactionThreshold": "0.2",
    "majorCompactionThreshold": "0.9",
    "compactionRateByEntries": "1000000",
}
PAYLOAD = b"x" * 1000


@pytest.fixture
def bookie(tmp_path: Path):  # type: ignore[no-untyped-def]
    with EmbeddedBookie(tmp_path, overrides=OVERRIDES) as running:
        yield running


def url_of(bookie: EmbeddedBookie) -> str:
    return f"http://127.0.0.1:{bookie.http_port}"


def call(bookie: EmbeddedBookie, method: str, path: str, body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url_of(bookie) + path, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def logs_of(bookie: EmbeddedBookie) -> dict[str, int]:
    (directory,) = bookie.config.directories.ledgers
    return {path.name: path.stat().st_size for path in Path(directory, "current").glob("*.log")}


def run(*words: str) -> tuple[int, list[dict[str, object]]]:
    result = invoke([*words, "-o", "json"])
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def written(client: BookKeeperSync, ledgers: int, entries: int) -> list[int]:
    writers = [client.create(1, 1, 1) for _ in range(ledgers)]
    for _ in range(entries):
        for writer in writers:
            writer.append(PAYLOAD)
    for writer in writers:
        writer.close()
    return [writer.ledger for writer in writers]


def test_deleted_ledgers_are_collected_and_compacted_on_request(bookie: EmbeddedBookie) -> None:
    uri = bookie.config.metadata.uri
    with BookKeeperSync(uri) as client:
        first = written(client, 4, 20)
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        bookie.service.bookie.checkpoint()
        before = sum(logs_of(bookie).values())
        for ledger in first[:3]:
            client.delete(ledger)
        code, rows = run("bookie", "gc", "--url", url_of(bookie))
        assert code == 0
        assert rows[0]["deleted_ledgers"] == 3
        assert rows[0]["compaction"] is None
        code, rows = run("bookie", "compact", "--major", "--url", url_of(bookie))
        assert code == 0
        assert rows[0]["compaction"] == "major"
        assert rows[0]["compacted_logs"]
        assert rows[0]["major_compactions"] == 1
        assert before - sum(logs_of(bookie).values()) > 40_000
        if reader := client.open(first[3]):
            assert [entry.payload for entry in reader.read(0, 19)] == [PAYLOAD] * 20
        status, text = call(bookie, "GET", "/api/v1/bookie/gc_details")
        assert status == 200
        (details,) = json.loads(text)
        assert details["majorCompactionCounter"] == 1
        assert not details["forceCompacting"]


def test_the_paths_of_a_java_bookie(bookie: EmbeddedBookie) -> None:
    assert call(bookie, "GET", "/api/v1/bookie/gc") == (200, '{"is_in_force_gc": "false"}')
    suspension = "/api/v1/bookie/gc/suspend_compaction"
    assert call(bookie, "PUT", suspension, {"suspendMajor": True})[0] == 200
    assert json.loads(call(bookie, "GET", suspension)[1]) == {
        "isMajorGcSuspended": "true",
        "isMinorGcSuspended": "false",
    }
    assert over_http.suspended(url_of(bookie)) == (True, False)
    assert call(bookie, "PUT", "/api/v1/bookie/gc/resume_compaction", {"resumeMajor": True})[0] == 200
    assert over_http.suspended(url_of(bookie)) == (False, False)
    for body in ([], "x", {"forceMajor": 1}):
        assert call(bookie, "PUT", "/api/v1/bookie/gc", body)[0] == 400
    assert call(bookie, "PUT", suspension, {})[0] == 400
    assert call(bookie, "DELETE", "/api/v1/bookie/gc")[0] == 405
    status, text = call(bookie, "PUT", "/api/v1/bookie/gc")
    assert status == 200
    assert text.startswith("Triggered GC on BookieServer: ")
    assert over_http.wait(url_of(bookie), 20, lambda _: None)
    (found,) = over_http.details(url_of(bookie))
    assert found.compaction == "major"


def test_suspend_and_resume_by_command(bookie: EmbeddedBookie) -> None:
    assert run("bookie", "compact", "--suspend", "--minor", "--url", url_of(bookie))[0] == 0
    assert over_http.suspended(url_of(bookie)) == (False, True)
    # Naming a kind overrides the suspension.
    assert run("bookie", "compact", "--minor", "--url", url_of(bookie))[1][0]["compaction"] == "minor"
    assert run("bookie", "compact", "--resume", "--url", url_of(bookie))[0] == 0
    assert over_http.suspended(url_of(bookie)) == (False, False)


def test_held_deletions_want_a_confirmation(tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        ledgers = written(client, 6, 1)
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        (collector,) = bookie.service.bookie.collectors
        object.__setattr__(collector._settings, "deletions_ledgers_max", 3)
        for ledger in ledgers:
            client.delete(ledger)
        code, rows = run("bookie", "gc", "--url", url_of(bookie))
        assert (code, rows[0]["held_deletions"]) == (4, 6)
        code, rows = run("bookie", "gc", "--confirm-deletions", "--url", url_of(bookie))
        assert (code, rows[0]["deleted_ledgers"]) == (0, 6)


def test_a_formatted_cluster_deletes_nothing(bookie: EmbeddedBookie) -> None:
    with BookKeeperSync(bookie.config.metadata.uri) as client:
        (ledger,) = written(client, 1, 3)
        format_cluster(client.store)
        code, rows = run("bookie", "gc", "--url", url_of(bookie))
        assert code == 3
        assert "cluster instance" in str(rows[0]["stopped_by"])
    assert bookie.service is not None
    assert bookie.service.bookie is not None
    assert bookie.service.bookie.storages[0].ledgers.get(ledger) is not None


def test_the_url_is_one() -> None:
    with pytest.raises(UsageError):
        over_http.trigger("localhost:8080", major=True, minor=True)


def rig_with_a_deleted_ledger(*, fenced: bool) -> EngineRig:
    rig = EngineRig(small_settings())
    rig.start()
    rig.add(7, 0)
    if fenced:
        assert rig.fence(7) is None
    rig.bookie.checkpoint()
    assert rig.bookie.collect_ledger(7)
    rig.bookie.checkpoint()
    return rig


def test_mutant_4462_a_ledger_that_was_fenced_and_deleted_takes_no_more_adds() -> None:
    """Its first writer may still believe in it; what it adds would be lost with the ledger's metadata."""
    with rig_with_a_deleted_ledger(fenced=True) as rig:
        with pytest.raises(LedgerFencedError):
            rig.add(7, 1)
        assert rig.bookie.storages[0].ledgers.get(7) is None
        rig.clock.advance(BURIED_S + 1)
        rig.add(7, 1)


def test_a_fence_or_an_explicit_lac_does_not_make_a_deleted_ledger_anew() -> None:
    """BookKeeper's TestFencing.testConcurrentFenceAndDeleteLedger: there is no such ledger any more."""
    with rig_with_a_deleted_ledger(fenced=True) as rig:
        with pytest.raises(NoLedgerError):
            rig.fence(7)
        with pytest.raises(LedgerFencedError):
            rig.write_lac(7, 0)
        assert rig.bookie.storages[0].ledgers.get(7) is None
        with pytest.raises(NoLedgerError):
            rig.bookie.reads.last_add_confirmed(7)


def test_mutant_4462_without_the_grave_the_add_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.engine.ledger_table.LedgerTable.bury", lambda *_: None)
    with rig_with_a_deleted_ledger(fenced=True) as rig:
        rig.add(7, 1)


def test_a_ledger_that_was_not_fenced_may_come_anew() -> None:
    with rig_with_a_deleted_ledger(fenced=False) as rig:
        with pytest.raises(NoLedgerError):
            rig.bookie.reads.read(7, 0)
        rig.add(7, 1)


def test_a_ledger_being_written_is_not_collected() -> None:
    with EngineRig(small_settings()) as rig:
        rig.start()
        rig.add(7, 0)
        assert not rig.bookie.collect_ledger(7)
        rig.bookie.checkpoint()
        assert rig.bookie.collect_ledger(7)
