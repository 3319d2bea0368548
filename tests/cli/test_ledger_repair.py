"""``bkctl ledger compare`` and ``repair`` against bookies of ours: damage, limbo, what is lost."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.codec.file_info import index_path
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.losses import Loss, Losses, decode_losses, encode_losses
from bkctl.errors import RefusedError, StorageError
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from bkctl.server.life.lost_disk import DiskRebuild
from bkctl.storage_kinds import DB, KINDS, StorageKind
from tests.support.admin_requests import ask, ask_json
from tests.support.grades import one_kept
from tests.support.java_cluster import free_port
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

ENTRIES = 12
PAGE = "/api/v1/bkctl/ledger/limbo?ledger_id="


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("replicas")) as running:
        yield running


@pytest.fixture
def env(cluster: LocalCluster) -> dict[str, str]:
    return {"BKCTL_METADATA_URI": cluster.metadata_uri}


class _Put(OperationMachine):
    """Overwrite an entry on one bookie with other bytes, as a copy does."""

    def __init__(self, access: LedgerAccess, bookie: str, entry: int, body: bytes) -> None:
        super().__init__()
        self._bookie, self._request = bookie, access.copy_request(entry, body)

    def _begin(self) -> None:
        self.exchange.send(self._bookie, self._request, lambda event: self.exchange.finish())


def written(cluster: LocalCluster, *quorums: int, close: bool = True) -> int:
    async def write() -> int:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create(*quorums)
            for number in range(ENTRIES):
                await ledger.append(b"payload %d" % number)
            if close:
                await ledger.close()
            return ledger.ledger

    return asyncio.run(write())


def corrupt(cluster: LocalCluster, ledger: int, bookie: str, *entries: int) -> None:
    """Let a bookie have bytes that no digest proves."""

    async def put() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            metadata = (await client.read_metadata(ledger)).metadata
            access = LedgerAccess.of(ledger, metadata)
            for entry in entries:
                body = bytearray(access.encode(entry, entry - 1, 0, b"broken"))
                body[-1] ^= 1
                await client.run(_Put(access, bookie, entry, bytes(body)))

    asyncio.run(put())


def emptied(bookie: EmbeddedBookie, ledger: int) -> None:
    """Let a bookie lose all of a ledger, as after a loss that was accepted: in limbo, its fence unknown."""
    assert bookie.service is not None
    engine = bookie.service.bookie
    assert engine is not None
    storage = engine.table.storage_of(ledger)
    key = cast("LedgerData", storage.ledgers.get(ledger)).master_key
    engine.table.forget(ledger)
    storage.delete_ledger(ledger)
    storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=key, limbo=True))


def row_of(bookie: EmbeddedBookie, ledger: int) -> LedgerData:
    assert bookie.service is not None
    engine = bookie.service.bookie
    assert engine is not None
    return cast("LedgerData", engine.table.storage_of(ledger).ledgers.get(ledger))


def test_replicas_are_compared_repaired_and_leave_limbo(
    run_cli: Run, env: dict[str, str], cluster: LocalCluster, tmp_path: Path
) -> None:
    ledger, striped = written(cluster, 3, 3, 2), written(cluster, 3, 2, 2)
    same = run_cli("ledger", "compare", ledger, env=env)
    assert same.exit_code == 0
    assert {row["state"] for row in from_ndjson(same.stdout)} == {"present"}
    assert len(from_ndjson(same.stdout)) == 3 * ENTRIES
    lost, broken = cluster.bookies[0], cluster.bookies[1].bookie_id
    corrupt(cluster, ledger, broken, 2, 3)
    for each in (ledger, striped):
        emptied(lost, each)
    assert ask_json(lost, "GET", f"{PAGE}{ledger}") == {"ledger_id": ledger, "limbo": True}
    assert ask(lost, "DELETE", f"{PAGE}{ledger}")[0] == 409, "it lacks entries"

    seen = run_cli("ledger", "compare", ledger, "--entry", "1-3", "--differences", "-o", "csv", env=env)
    assert seen.exit_code == 1
    assert "0 of 3 entries are on all" in seen.stderr
    assert f"bkctl: {lost.bookie_id}: 3 entries unknown\n" in seen.stderr
    assert f"bkctl: {broken}: 2 entries corrupt\n" in seen.stderr
    states = {
        (int(row["entry"]), row["bookie"]): row["state"] for row in csv.DictReader(io.StringIO(seen.stdout))
    }
    assert states[1, lost.bookie_id] == "unknown"
    assert (states[1, broken], states[2, broken]) == ("present", "corrupt")

    listed = tmp_path / "losses.json"
    listed.write_bytes(
        encode_losses(
            Losses(lost.bookie_id, "t", (Loss(ledger, ((0, 0),)), Loss(striped, (), maybe_more=True)))
        )
    )
    command = ("ledger", "repair", "--from", listed)
    assert run_cli(*command, env=env).exit_code == 4, "nobody said yes"
    planned = run_cli(*command, "--dry-run", env=env)
    assert planned.exit_code == 1, planned.stderr
    assert run_cli("ledger", "compare", ledger, env=env).exit_code == 1
    done = run_cli(*command, "--yes", env=env)
    assert done.exit_code == 0, done.stderr
    rows = {(row["ledger"], row["bookie"]): row for row in from_ndjson(done.stdout)}
    copied = {key: row["copied"] for key, row in rows.items()}
    assert copied == {(row["ledger"], row["bookie"]): row["copied"] for row in from_ndjson(planned.stdout)}
    assert rows[ledger, lost.bookie_id]["unknown"] == rows[ledger, lost.bookie_id]["copied"] == ENTRIES
    assert rows[ledger, broken]["corrupt"] == rows[ledger, broken]["copied"] == 2
    assert {rows[each, lost.bookie_id]["limbo"] for each in (ledger, striped)} == {"left"}
    for each in (ledger, striped):
        assert run_cli("ledger", "compare", each, env=env).exit_code == 0
        row = row_of(lost, each)
        assert (row.fenced, bool(row.limbo)) == (True, False)
    again = run_cli(*command, "--yes", env=env)
    assert (again.exit_code, {row["copied"] for row in from_ndjson(again.stdout)}) == (0, {0})


def test_limbo_stays_while_the_ledger_is_not_fenced_or_not_closed(
    cluster: LocalCluster, run_cli: Run, env: dict[str, str]
) -> None:
    ledger, still_open = written(cluster, 3, 3, 2), written(cluster, 3, 3, 2, close=False)
    bookie = cluster.bookies[0]
    for each in (ledger, still_open):
        assert bookie.service is not None
        engine = bookie.service.bookie
        assert engine is not None
        rows = engine.table.storage_of(each).ledgers
        rows.set(each, replace(row_of(bookie, each), limbo=True, fenced=False))
    status, text = ask(bookie, "DELETE", f"{PAGE}{ledger}")
    assert (status, "not fenced" in text) == (409, True)
    status, text = ask(bookie, "DELETE", f"{PAGE}{still_open}")
    assert (status, "OPEN, not closed" in text) == (409, True)
    assert ask(bookie, "GET", f"{PAGE}987654321")[0] == 404
    assert run_cli("ledger", "repair", ledger, "--yes", env=env).exit_code == 0
    assert not row_of(bookie, ledger).limbo
    refused = run_cli("ledger", "repair", still_open, "--yes", env=env)
    assert (refused.exit_code, "--recover" in from_ndjson(refused.stdout)[0]["error"]) == (3, True)
    assert run_cli("ledger", "repair", still_open, "--recover", "--yes", env=env).exit_code == 0
    assert not row_of(bookie, still_open).limbo


def test_what_no_replica_proves_is_lost_and_listed(
    cluster: LocalCluster, run_cli: Run, env: dict[str, str], tmp_path: Path
) -> None:
    ledger = written(cluster, 3, 3, 2)
    for bookie in cluster.bookies:
        corrupt(cluster, ledger, bookie.bookie_id, 4, 5, 9)
    found = tmp_path / "lost.json"
    done = run_cli("ledger", "repair", ledger, "--yes", "--losses", found, "-o", "json", env=env)
    assert done.exit_code == 3
    assert "with entries that no replica proves: 1" in done.stderr
    assert {json.dumps(row["lost"]) for row in json.loads(done.stdout)} == {"[[4, 5], [9, 9]]"}
    (loss,) = decode_losses(found.read_bytes()).losses
    assert (loss.ledger, loss.entries, loss.maybe_more) == (ledger, ((4, 5), (9, 9)), False)
    assert run_cli("ledger", "repair", ledger, "--yes", "--losses", found, env=env).exit_code == 4
    shown = json.loads(run_cli("ledger", "show", ledger, env=env).stdout)
    assert (shown["state"], shown["last_entry"]) == ("CLOSED", ENTRIES - 1)


def test_all_ledgers_of_a_bookie_and_what_cannot_be_meant(
    cluster: LocalCluster, run_cli: Run, env: dict[str, str]
) -> None:
    ledger, bookie = written(cluster, 3, 3, 2), cluster.bookies[2]
    emptied(bookie, ledger)
    done = run_cli("ledger", "repair", "--bookie", bookie.bookie_id, "--rate", "10M", "--yes", env=env)
    rows = {row["ledger"]: row for row in from_ndjson(done.stdout) if row["bookie"] is not None}
    assert (rows[ledger]["copied"], rows[ledger]["limbo"]) == (ENTRIES, "left")
    assert {row["bookie"] for row in rows.values()} == {bookie.bookie_id}
    for of in ([], [ledger]):
        unknown = run_cli("ledger", "repair", *of, "--bookie", "bookie-33:3181", "--yes", env=env)
        assert unknown.exit_code == 6
        assert "bookie-33:3181" in unknown.stderr
    assert run_cli("ledger", "repair", env=env).exit_code == 2
    assert run_cli("ledger", "repair", ledger, "--http", "x", env=env).exit_code == 2
    assert run_cli("ledger", "compare", ledger, "--entry", "5-99", env=env).exit_code == 2
    assert run_cli("ledger", "compare", 987654321, env=env).exit_code == 6


def files_of(folder: Path) -> dict[str, bytes]:
    """What is on the disks; databases have locks and logs that nobody reads."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("LOCK", "LOG"))
    return {str(path): path.read_bytes() for path in found}


def broken_off(*_: object) -> None:
    raise StorageError("as after a kill")


def keys_of_two_disks(others: LocalCluster, mine: Path, kind: StorageKind) -> dict[str, str]:
    """The configuration of a bookie with two ledger directories and a journal."""
    return {
        "metadataServiceUri": others.metadata_uri,
        "bookieId": "mine",
        "bookiePort": str(free_port()),
        "journalDirectories": str(mine / "journal"),
        "ledgerDirectories": f"{mine / 'l0'},{mine / 'l1'}",
        "httpServerEnabled": "true",
        "httpServerHost": "127.0.0.1",
        "httpServerPort": str(free_port()),
        "allowLoopback": "true",
        "ledgerStorageClass": kind.classes[0],
    }


def home_of(mine: Path, ledger: int, kind: StorageKind) -> str:
    """The directory of a ledger's index: by its id, or where its file is."""
    if kind is DB:
        return f"l{ledger % 2}"
    below = f"current/{index_path(ledger)}"
    return next(name for name in ("l0", "l1") if (mine / name / below).exists())


@pytest.mark.parametrize(
    "kind", one_kept("a disk as with the other storage", *KINDS), ids=lambda kind: kind.name
)
def test_a_lost_disk_is_filled_again(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: StorageKind
) -> None:
    """One of two ledger directories is lost, then all of them with the journal, then the journal alone."""
    with LocalCluster(2, tmp_path / "others") as others:
        mine, conf = tmp_path / "mine", tmp_path / "bk_server.conf"
        keys = keys_of_two_disks(others, mine, kind)
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

        def bookie() -> EmbeddedBookie:
            return EmbeddedBookie(mine, metadata_uri=others.metadata_uri, overrides=keys)

        uri = {"BKCTL_METADATA_URI": others.metadata_uri}
        rebuild = ("bookie", "rebuild", "--conf", conf)
        with bookie():
            ledgers = [written(others, 3, 3, 2) for _ in range(4)]
            left_open = written(others, 3, 3, 2, close=False)
            assert run_cli(*rebuild, "--yes").exit_code == 4, "it runs"
        nothing = run_cli(*rebuild, "--yes")
        assert (nothing.exit_code, from_ndjson(nothing.stdout)) == (0, [])
        for gone in (["l1"], ["l0", "l1", "journal"], ["journal"]):
            homes = {each: home_of(mine, each, kind) for each in (*ledgers, left_open)}
            for name in gone:
                shutil.rmtree(mine / name)
                (mine / name).mkdir()
            with pytest.raises(RefusedError, match="bookie rebuild"):
                bookie().start()
            assert run_cli(*rebuild).exit_code == 4, "nobody said yes"
            planned = run_cli(*rebuild, "--dry-run")
            assert not any((mine / name / "current").exists() for name in gone)
            before = files_of(mine)
            assert run_cli(*rebuild, "--yes").exit_code == 0
            undone = run_cli("repair", "undo", mine, "--yes")
            assert (undone.exit_code, files_of(mine)) == (0, before), undone.stderr
            for step in ("_stamp", "_unmark"):
                with monkeypatch.context() as killed:
                    killed.setattr(DiskRebuild, step, broken_off)
                    assert run_cli(*rebuild, "--yes").exit_code == 7
                assert files_of(mine) != before
            done = run_cli(*rebuild, "--yes")
            assert done.exit_code == 0, done.stderr
            assert "ledger repair --bookie mine" in done.stderr
            rows = {Path(row["dir"]).name: row["ledgers"] for row in from_ndjson(done.stdout)}
            assert rows == {Path(row["dir"]).name: row["ledgers"] for row in from_ndjson(planned.stdout)}
            lost = [each for each, home in homes.items() if home in gone or gone == ["journal"]]
            assert sum(rows.values()) == len(lost)
            with bookie() as running:
                assert all(ask_json(running, "GET", f"{PAGE}{each}")["limbo"] for each in lost)
                # An open ledger goes on being unknown there until it is closed.
                filled = run_cli("ledger", "repair", "--bookie", "mine", "--yes", env=uri)
                assert filled.exit_code == (3 if gone == ["l1"] else 0), filled.stderr
                if gone == ["l1"]:
                    assert (
                        run_cli("ledger", "repair", left_open, "--recover", "--yes", env=uri).exit_code == 0
                    )
                for each in (*ledgers, left_open):
                    assert run_cli("ledger", "compare", each, env=uri).exit_code == 0
                    assert not ask_json(running, "GET", f"{PAGE}{each}")["limbo"]
        with bookie():  # the rows are durable
            for each in ledgers:
                assert run_cli("ledger", "compare", each, env=uri).exit_code == 0
