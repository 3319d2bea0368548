"""``bkctl gc explain | plan | run --url`` against a running bookie of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.sync import BookKeeperSync
from bkctl.server.life.embedded import EmbeddedBookie

Run = Callable[..., Any]
OVERRIDES = {
    "httpServerEnabled": "true",
    "httpServerPort": "0",
    "logSizeLimit": "20000",
    "minorCompactionThreshold": "0.2",
    "majorCompactionThreshold": "0.9",
    "compactionRateByEntries": "1000000",
}
PAYLOAD = b"x" * 1000
#: Size word, header, CRC32C.
RECORD_BYTES = 4 + 32 + 4 + len(PAYLOAD)
ENTRIES = 20


class Work:
    """Four ledgers in one bookie, flushed."""

    def __init__(self, bookie: EmbeddedBookie, client: BookKeeperSync) -> None:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        self.client = client
        self.engine = bookie.service.bookie
        self.url = f"http://127.0.0.1:{bookie.http_port}"
        writers = [client.create(1, 1, 1) for _ in range(4)]
        for _ in range(ENTRIES):
            for writer in writers:
                writer.append(PAYLOAD)
            self.engine.checkpoint()
        for writer in writers:
            writer.close()
        self.ledgers = [writer.ledger for writer in writers]

    def delete(self, *numbers: int) -> None:
        for number in numbers:
            self.client.delete(self.ledgers[number])

    def check(self, number: int) -> None:
        reader = self.client.open(self.ledgers[number])
        assert reader is not None
        assert [entry.payload for entry in reader.read(0, ENTRIES - 1)] == [PAYLOAD] * ENTRIES


@pytest.fixture(params=["single", "per-ledger"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    overrides = {**OVERRIDES, "entryLogPerLedgerEnabled": str(request.param == "per-ledger").lower()}
    with (
        EmbeddedBookie(tmp_path, overrides=overrides) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        yield Work(bookie, client)


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def explained(run_cli: Run, work: Work) -> dict[int, dict[str, Any]]:
    done = run_cli("gc", "explain", "--url", work.url, "-o", "ndjson")
    assert done.exit_code == 0, done.stderr
    return {row["log_id"]: row for row in rows_of(done.stdout)}


def test_explain_before_and_after_the_first_pass(run_cli: Run, work: Work) -> None:
    rows = explained(run_cli, work)
    logger = work.engine.storages[0].entry_logger
    assert sorted(rows) == logger.log_ids()
    # Before the first pass by the ledgers maps; nothing but what is being written is unknown.
    for log_id, row in rows.items():
        written = log_id in logger.unflushed_log_ids
        assert row["why"] == ("it is being written" if written else row["why"])
        assert row["source"] == ("none" if written else "map")
        assert (row["live_bytes"] is None) == written
        assert row["bytes"] == Path(row["path"]).stat().st_size
    settled = [row for row in rows.values() if row["live_bytes"] is not None]
    assert settled
    assert {row["live_ratio"] for row in settled} == {1.0}
    assert all(sum(each["bytes"] for each in row["live_ledgers"]) == row["live_bytes"] for row in settled)
    work.delete(0, 1)
    assert run_cli("bookie", "gc", "--url", work.url).exit_code == 0
    after = explained(run_cli, work)
    named = {each["ledger"] for row in after.values() for each in row["live_ledgers"]}
    assert named <= set(work.ledgers[2:])
    work.check(2)


def test_explain_tells_what_a_compaction_waits_for(run_cli: Run, tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        work = Work(bookie, client)
        work.delete(0, 1)
        run_cli("bookie", "gc", "--url", work.url)
        (some, *_) = [row for row in explained(run_cli, work).values() if row["eligible"] == "major"]
        assert some["live_ratio"] == pytest.approx(0.5, abs=0.1)
        assert "below 90%; major is due in 86" in some["why"]
        said = run_cli("bookie", "compact", "--suspend", "--major", "--url", work.url).stderr
        assert said == (
            f"bkctl: {work.url}: major compactions are suspended until --resume or the bookie's next start\n"
        )
        assert "major is suspended" in explained(run_cli, work)[some["log_id"]]["why"]
        one = run_cli("gc", "explain", "--url", work.url, "--log", some["log_id"], "-o", "json")
        assert [row["log_id"] for row in json.loads(one.stdout)] == [some["log_id"]]
        assert run_cli("gc", "explain", "--url", work.url, "--log", "9999").exit_code == 6


def test_explain_names_damage(run_cli: Run, tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        work = Work(bookie, client)
        path = Path(work.engine.storages[0].entry_logger.path(0))
        data = bytearray(path.read_bytes())
        data[:1024] = bytes(1024)
        data[3000:4000] = b"\xee" * 1000
        path.write_bytes(data)
        assert run_cli("bookie", "gc", "--url", work.url).exit_code == 1
        done = run_cli("gc", "explain", "--url", work.url)
        assert done.exit_code == 1
        assert f"{path}: damaged, set aside" in done.stderr
        assert [row["log_id"] for row in rows_of(done.stdout) if row["damaged"]] == [0]
        assert run_cli("gc", "plan", "--url", work.url).exit_code == 1


def test_plan_draws_the_curve_and_the_steps(run_cli: Run, tmp_path: Path) -> None:
    with (
        EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        work = Work(bookie, client)
        work.delete(0, 1, 2)
        run_cli("bookie", "gc", "--url", work.url)
        rows = rows_of(run_cli("gc", "plan", "--url", work.url).stdout)
        assert [row["threshold"] for row in rows] == [tenths / 10 for tenths in range(1, 10)]
        assert rows[0]["logs"] == 0
        assert rows[-1]["logs"] > 2
        assert rows[-1]["freed_bytes"] > 0
        live = sum(
            row["live_bytes"]
            for row in explained(run_cli, work).values()
            if row["eligible"] in ("minor", "major")
        )
        assert rows[-1]["copied_bytes"] == live
        steps = rows_of(run_cli("gc", "plan", "--url", work.url, "--threshold", "0.9").stdout)
        assert len(steps) == rows[-1]["logs"]
        assert {step["action"] for step in steps} == {"compact"}
        work.check(3)


def test_run_collects_and_compacts(run_cli: Run, work: Work) -> None:
    done = run_cli("gc", "run", "--url", work.url, "--yes")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"bkctl: {work.url}: collected; there was nothing to delete, remove or compact\n"
    work.delete(0, 1)
    assert run_cli("gc", "run", "--url", work.url).exit_code == 4
    done = run_cli("gc", "run", "--url", work.url, "--major", "--yes")
    assert done.exit_code == 0, done.stderr
    rows = rows_of(done.stdout)
    assert rows[0]["action"] == "delete_ledgers"
    assert rows[0]["ledgers"] == 2
    logs = rows[1:]
    assert {row["action"] for row in logs} <= {"remove", "compact"}
    assert logs
    assert all(row["done"] and not Path(row["path"]).exists() for row in logs)
    assert sum(row["freed_bytes"] for row in logs) > ENTRIES * RECORD_BYTES
    for number in (2, 3):
        work.check(number)


def test_one_log_for_each_ledger_comes_back_without_any_copying(run_cli: Run, tmp_path: Path) -> None:
    overrides = {**OVERRIDES, "entryLogPerLedgerEnabled": "true"}
    with (
        EmbeddedBookie(tmp_path, overrides=overrides) as bookie,
        BookKeeperSync(bookie.config.metadata.uri) as client,
    ):
        work = Work(bookie, client)
        work.delete(0, 1)
        # The first pass deletes the ledgers, whose current logs end with that; the second takes these too.
        freed = 0
        for _ in range(2):
            done = run_cli("gc", "run", "--url", work.url, "--yes")
            assert done.exit_code == 0
            rows = rows_of(done.stdout)
            assert sum(row["copied_bytes"] for row in rows) == 0
            freed += sum(row["freed_bytes"] for row in rows)
        assert freed > 2 * ENTRIES * RECORD_BYTES
        for number in (2, 3):
            work.check(number)


def test_what_does_not_go_together(run_cli: Run, tmp_path: Path) -> None:
    url = "http://127.0.0.1:1"
    for words in (
        ("explain", tmp_path, "--url", url),
        ("explain", "--url", url, "--quick"),
        ("plan", "--url", url, "--metadata", "x"),
        ("run", "--url", url, "--threshold", "0.5", "--yes"),
        ("run", "--url", url, "--delete-ledgers", "--yes"),
        ("run", tmp_path, "--major"),
        ("run", "--url", "localhost:8080", "--yes"),
        ("explain",),
        ("plan",),
        ("run",),
    ):
        assert run_cli("gc", *words).exit_code == 2, words
    done = run_cli("gc", "run", "--url", url, "--dry-run")
    assert (done.exit_code, "'bkctl gc plan --url' says what would be done" in done.stderr) == (2, True)
    for words in (("explain", "--url", url), ("plan", "--url", url), ("run", "--url", url, "--yes")):
        assert run_cli("gc", *words).exit_code == 5, words


def test_a_bookie_deletes_nothing_by_a_store_that_was_brought_back_from_an_older_copy(
    run_cli: Run, tmp_path: Path
) -> None:
    """The instance id is the same, and every listing is complete; only the next ledger id gives it away."""
    with EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie:
        uri = bookie.config.metadata.uri
        with BookKeeperSync(uri) as client:
            for _ in range(2):
                client.create(1, 1, 1).close()
    store = tmp_path / "metadata.db"
    older = {path.name: path.read_bytes() for path in tmp_path.glob("metadata.db*")}
    with EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie, BookKeeperSync(uri) as client:
        newer = Work(bookie, client)
    for path in tmp_path.glob("metadata.db*"):
        path.unlink()
    for name, data in older.items():
        (tmp_path / name).write_bytes(data)
    assert store.exists()
    with EmbeddedBookie(tmp_path, overrides=OVERRIDES) as bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        url = f"http://127.0.0.1:{bookie.http_port}"
        logs = bookie.service.bookie.storages[0].entry_logger.log_ids()
        done = run_cli("gc", "run", "--url", url, "--major", "--yes", "-o", "ndjson")
        assert done.exit_code == 4, done.stderr
        left = [row for row in rows_of(done.stdout) if row["action"] == "left"]
        assert left[0]["ledgers"] == len(newer.ledgers)
        assert any("brought back from an older copy" in row["detail"] for row in left)
        assert set(bookie.service.bookie.storages[0].entry_logger.log_ids()) >= set(logs)
        assert set(newer.ledgers) <= set(bookie.service.bookie.storages[0].ledgers.ledgers())
