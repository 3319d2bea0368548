"""``bkctl ledger``, against bookies of ours in this process."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.ledgers import ledger_deletion, ledger_doctor
from bkctl.admin.ledgers.writer_watch import LedgerReading
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import HandleFencedError
from bkctl.codec.ledger_metadata import encode_ledger_metadata
from bkctl.codec.underreplication import UnderreplicatedMark, mark_path
from bkctl.commands.ledger.listing import LedgerListing
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import DigestType
from tests.support.autorecovery_nodes import mark_text
from tests.support.command_line import invoke
from tests.support.live_writer import live_writer
from tests.support.rows import from_ndjson, same_in_every_format
from tests.support.waiting import until

Run = Callable[..., Any]

#: For ledgers whose writers are gone: there is nothing to watch for.
SHORT = ("--watch", "10ms")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("ledger-commands")) as running:
        yield running


@pytest.fixture
def env(cluster: LocalCluster) -> dict[str, str]:
    return {"BKCTL_METADATA_URI": cluster.metadata_uri}


def written(cluster: LocalCluster, entries: int, *, close: bool = True, **how: Any) -> int:
    """The id of a new ledger with entries ``0``, ``1``, ..."""

    async def write() -> int:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create(3, 2, 2, **how)
            for number in range(entries):
                await ledger.append(b"%d" % number)
            if close:
                await ledger.close()
            return ledger.ledger

    return asyncio.run(write())


def run_write(env: dict[str, str], data: bytes, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = invoke(["ledger", "write", *arguments], input=data, env=env)
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert f"writing ledger {row['ledger']}" in result.stderr
    return row["ledger"], row


def payloads(run_cli: Run, env: dict[str, str], ledger: int, *arguments: str) -> list[bytes]:
    result = run_cli("ledger", "read", ledger, *arguments, env=env)
    assert result.exit_code == 0, result.stderr
    return [base64.b64decode(row["payload"]) for row in from_ndjson(result.stdout)]


# --- create, write, read ------------------------------------------------------------------------------------


def test_create_leaves_an_open_empty_ledger(run_cli: Run, env: dict[str, str]) -> None:
    result = run_cli(
        "ledger", "create", "-e", 2, "-w", 2, "-a", 1, "--digest", "crc32", "--custom", "a=b", env=env
    )
    row = json.loads(result.stdout)
    assert (row["state"], row["ensemble_size"], row["write_quorum"], row["ack_quorum"]) == ("OPEN", 2, 2, 1)
    assert (row["digest"], row["last_entry"], row["length"], row["version"]) == ("crc32", -1, 0, 0)
    assert row["custom_metadata"] == {"a": base64.b64encode(b"b").decode()}
    assert len(row["ensembles"][0]["bookies"]) == 2
    assert json.loads(run_cli("ledger", "show", row["ledger"], env=env).stdout) == row


def test_create_with_an_id_that_is_taken(run_cli: Run, env: dict[str, str]) -> None:
    assert run_cli("ledger", "create", "--ledger", 777, env=env).exit_code == 0
    result = run_cli("ledger", "create", "--ledger", 777, env=env)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "ledger 777" in result.stderr


def test_create_with_more_bookies_than_there_are(run_cli: Run, env: dict[str, str]) -> None:
    result = run_cli("ledger", "create", "-e", 4, env=env)
    assert result.exit_code == 5
    assert "needs 4 writable bookies, 3 can be chosen; bkctl bookies list shows" in result.stderr


def test_create_spreads_over_racks(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], tmp_path: Path
) -> None:
    far, *near = [bookie.bookie_id for bookie in cluster.bookies]
    table = tmp_path / "racks"
    table.write_text(f"# ours\n{far} /far\n" + "".join(f"{bookie} /near\n" for bookie in near))
    for _ in range(8):
        row = json.loads(run_cli("ledger", "create", "-e", 2, "--racks", table, env=env).stdout)
        assert far in row["ensembles"][0]["bookies"]
    table.write_text("a line of four words\n")
    assert run_cli("ledger", "create", "--racks", table, env=env).exit_code == 2
    assert run_cli("ledger", "create", "--racks", tmp_path / "none", env=env).exit_code == 6
    script = tmp_path / "fails"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o700)
    assert run_cli("ledger", "create", "--rack-script", script, env=env).exit_code == 5


def test_write_takes_a_line_as_an_entry(run_cli: Run, env: dict[str, str]) -> None:
    ledger, row = run_write(env, b"first\n\nthird without newline")
    assert row == {"ledger": ledger, "state": "CLOSED", "last_entry": 2, "length": 26, "entries": 3}
    assert payloads(run_cli, env, ledger) == [b"first", b"", b"third without newline"]


def test_write_takes_chunks(run_cli: Run, env: dict[str, str]) -> None:
    ledger, row = run_write(
        env, bytes(range(256)) * 10, "--chunk", "1K", "--digest", "mac", "--password", "pw"
    )
    assert (row["entries"], row["length"]) == (3, 2560)
    assert b"".join(payloads(run_cli, env, ledger)) == bytes(range(256)) * 10


def test_write_refuses_chunks_that_no_frame_holds(run_cli: Run, env: dict[str, str]) -> None:
    result = run_cli("ledger", "write", "--chunk", "1T", env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--chunk: no frame holds" in result.stderr
    assert "writing ledger" not in result.stderr


def test_write_nothing(run_cli: Run, env: dict[str, str]) -> None:
    ledger, row = run_write(env, b"")
    assert (row["state"], row["last_entry"], row["entries"]) == ("CLOSED", -1, 0)
    assert payloads(run_cli, env, ledger) == []


def test_read_in_every_format(run_cli: Run, cluster: LocalCluster) -> None:
    ledger = written(cluster, 12)
    rows = same_in_every_format(run_cli, "ledger", "read", ledger, "--metadata", cluster.metadata_uri)
    assert [row["entry"] for row in rows] == list(range(12))
    assert rows[11] == {
        "ledger": ledger,
        "entry": 11,
        "lac": 10,
        "ledger_length": 14,
        "payload_bytes": 2,
        "payload": base64.b64encode(b"11").decode(),
    }


def test_read_some_entries_in_another_form(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 12)
    result = run_cli("ledger", "read", ledger, "--entry", "3-5", "--payload", "text", env=env)
    assert [row["payload"] for row in from_ndjson(result.stdout)] == ["3", "4", "5"]
    (row,) = from_ndjson(run_cli("ledger", "read", ledger, "--entry", 7, "--payload", "none", env=env).stdout)
    assert (row["entry"], "payload" in row) == (7, False)


def test_read_entries_that_are_not_there(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 3)
    result = run_cli("ledger", "read", ledger, "--entry", "2-9", env=env)
    assert result.exit_code == 6
    assert [row["entry"] for row in from_ndjson(result.stdout)] == [2]
    assert f"ledger {ledger} has no entries 3 to 9: its last entry is 2" in result.stderr
    result = run_cli("ledger", "read", ledger, "--entry", "7", env=env)
    assert (result.exit_code, result.stdout) == (6, "")


def test_read_of_an_open_ledger_stops_at_what_is_confirmed(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    ledger = written(cluster, 3, close=False)
    assert payloads(run_cli, env, ledger) == [b"0", b"1"]
    assert payloads(run_cli, env, ledger, "--unconfirmed") == [b"0", b"1", b"2"]
    result = run_cli("ledger", "read", ledger, "--entry", 2, env=env)
    assert result.exit_code == 6
    assert "--unconfirmed" in result.stderr


def test_read_with_the_wrong_password(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 1, password=b"right", digest=DigestType.MAC)
    assert run_cli("ledger", "read", ledger, "--password", "wrong", env=env).exit_code == 4
    assert payloads(run_cli, env, ledger, "--password-hex", b"right".hex()) == [b"0"]
    assert payloads(run_cli, env, ledger) == [b"0"]


def test_tail_ends_with_a_closed_ledger(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 15)
    rows = from_ndjson(run_cli("ledger", "tail", ledger, "--payload", "text", env=env).stdout)
    assert [row["payload"] for row in rows] == [str(number) for number in range(5, 15)]
    rows = from_ndjson(run_cli("ledger", "tail", ledger, "--from", 12, env=env).stdout)
    assert [row["entry"] for row in rows] == [12, 13, 14]
    rows = json.loads(run_cli("ledger", "tail", ledger, "-n", 1, "-o", "json", env=env).stdout)
    assert [row["entry"] for row in rows] == [14]
    assert run_cli("ledger", "tail", ledger, "-n", 0, env=env).stdout == ""


def test_tail_prints_entries_while_they_are_written(cluster: LocalCluster, env: dict[str, str]) -> None:
    async def check() -> None:
        async with await BookKeeper.connect(cluster.metadata_uri) as client:
            ledger = await client.create(3, 2, 2)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "bkctl", "ledger", "tail", str(ledger.ledger), "--payload", "text"),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **env},
            )
            assert process.stdout is not None
            async with asyncio.timeout(30):
                for number in range(3):
                    await ledger.append(b"%d" % number)
                    await ledger.flush_last_add_confirmed()
                    row = json.loads(await process.stdout.readline())
                    assert (row["entry"], row["payload"]) == (number, str(number))
                await ledger.close()
                assert await process.stdout.read() == b""
                assert await process.wait() == 0

    asyncio.run(check())


def test_tail_ends_well_on_ctrl_c(cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 3, close=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "bkctl", "ledger", "tail", str(ledger), "--from", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    assert [json.loads(process.stdout.readline())["entry"] for _ in range(2)] == [0, 1]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "bkctl: interrupted\n")
    assert process.returncode == 130


@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table"])
def test_read_prints_what_stands_before_an_entry_that_cannot_be_read(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], form: str
) -> None:
    """All of it comes in one batch; from 5 on nobody has what metadata says is there."""
    ledger = written(cluster, 5)
    with open_metadata_store(cluster.metadata_uri) as store:
        stored = store.ledgers.read_ledger(ledger)
        longer = replace(stored.metadata, last_entry=8)
        store.ledgers.update_ledger(ledger, longer, stored.version)
    result = run_cli("ledger", "read", ledger, "--payload", "text", "-o", form, env=env)
    assert result.exit_code == 6
    assert f"ledger {ledger}, entry 5: no such entry" in result.stderr
    if form == "ndjson":
        assert [row["entry"] for row in from_ndjson(result.stdout)] == [0, 1, 2, 3, 4]
    elif form == "json":
        assert [row["entry"] for row in json.loads(result.stdout)] == [0, 1, 2, 3, 4]
    else:
        assert len(result.stdout.splitlines()) >= 6


@pytest.mark.parametrize("verb", ["tail", "read", "show", "recover", "fence", "doctor", "delete"])
def test_no_such_ledger(run_cli: Run, env: dict[str, str], verb: str) -> None:
    result = run_cli("ledger", verb, 999_999_999, env=env)
    assert (result.exit_code, result.stdout) == (6, "")
    assert "ledger 999999999" in result.stderr


@pytest.mark.parametrize("text", ["-1", "x", str(2**63), "1.5"])
def test_what_is_no_ledger_id(run_cli: Run, env: dict[str, str], text: str) -> None:
    assert run_cli("ledger", "show", "--", text, env=env).exit_code == 2


# --- list, show ---------------------------------------------------------------------------------------------


def test_list_with_filters(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    mine = (("suite", b"list"),)
    closed = written(cluster, 1, custom_metadata=mine)
    opened = written(cluster, 1, close=False, custom_metadata=(*mine, ("more", b"x")))

    def ids(*arguments: object) -> list[int]:
        result = run_cli("ledger", "list", "--custom", "suite=list", *arguments, env=env)
        assert result.exit_code == 0
        return [row["ledger"] for row in from_ndjson(result.stdout)]

    assert ids() == [closed, opened]
    assert ids("--state", "OPEN") == [opened]
    assert ids("--state", "OPEN", "--state", "CLOSED") == [closed, opened]
    assert ids("--custom", "more") == [opened]
    assert ids("--older-than", "1h") == []
    assert ids("--newer-than", "1h") == [closed, opened]
    assert ids("--bookie", cluster.bookies[0].bookie_id) == [closed, opened]
    assert run_cli("ledger", "list", "--bookie", "nobody:1", env=env).exit_code == 6
    assert ids("--state", "open") == [opened], "in any case"
    assert run_cli("ledger", "list", "--state", "shut", env=env).exit_code == 2
    assert run_cli("ledger", "list", "--older-than", "soon", env=env).exit_code == 2


def test_list_and_show_agree_in_every_format(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    written(cluster, 2)
    rows = same_in_every_format(run_cli, "ledger", "list", "--metadata", cluster.metadata_uri)
    shown = from_ndjson(
        run_cli("ledger", "show", *(row["ledger"] for row in rows), "-o", "ndjson", env=env).stdout
    )
    assert shown == rows


def test_show_hides_the_password(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 1, password=b"secret")
    assert b"secret".hex() not in run_cli("ledger", "show", ledger, env=env).stdout
    row = json.loads(run_cli("ledger", "show", ledger, "--show-secrets", env=env).stdout)
    assert row["password"] == b"secret".hex()


# --- recover, fence, doctor ---------------------------------------------------------------------------------


def test_recover_says_first_what_it_would_do_then_does_it(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    ledger = written(cluster, 5, close=False)
    plan = json.loads(run_cli("ledger", "recover", ledger, "--dry-run", env=env).stdout)
    assert (plan["dry_run"], plan["previous_state"], plan["state"]) == (True, "OPEN", "OPEN")
    assert (plan["lac_found"], plan["last_entry"], plan["length"], plan["entries_rewritten"]) == (3, 4, 5, 1)
    assert [one["first_entry"] for one in plan["rewrites"]] == [4]
    assert all(one["answered"] and one["fenced"] is None for one in plan["replicas"])
    assert max(one["last_entry"] for one in plan["replicas"]) == 4
    assert json.loads(run_cli("ledger", "show", ledger, env=env).stdout)["version"] == 0

    result = run_cli("ledger", "recover", ledger, *SHORT, env=env)
    done = json.loads(result.stdout)
    assert (result.exit_code, done["state"], done["dry_run"], done["adopted"]) == (0, "CLOSED", False, False)
    same = ("ledger", "last_entry", "length", "entries_rewritten", "lac_found", "rewrites", "previous_state")
    assert {key: done[key] for key in same} == {key: plan[key] for key in same}
    assert "entry 5 is missing on 1 of its 2 bookies" in done["why"]
    assert any(one["fenced"] for one in done["replicas"])
    shown = json.loads(run_cli("ledger", "show", ledger, env=env).stdout)
    assert (shown["state"], shown["last_entry"], shown["length"]) == ("CLOSED", 4, 5)

    again = json.loads(run_cli("ledger", "recover", ledger, env=env).stdout)
    assert (again["entries_rewritten"], again["adopted"], again["state"]) == (0, True, "CLOSED")
    assert "closed before" in again["why"]


def test_recover_several_goes_on_past_one_that_fails(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    ids = [written(cluster, 2, close=False) for _ in range(3)]
    result = run_cli(
        "ledger", "recover", ids[0], 999_999_999, ids[1], ids[2], "--concurrency", 2, "--yes", env=env
    )
    rows = {row["ledger"]: row for row in from_ndjson(result.stdout)}
    assert result.exit_code == 3
    assert {rows[ledger]["state"] for ledger in ids} == {"CLOSED"}
    assert "ledger 999999999" in rows[999_999_999]["error"]
    assert "1 of 4 ledgers could not be recovered" in result.stderr


def test_recover_all_open_asks(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    mine = (("suite", b"all-open"),)
    ids = [written(cluster, 2, close=False, custom_metadata=mine) for _ in range(5)]
    written(cluster, 2, custom_metadata=mine)
    command = ("ledger", "recover", "--all-open", "--custom", "suite=all-open")
    refused = run_cli(*command, env=env)
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "recover 5 ledgers" in refused.stderr
    assert from_ndjson(run_cli(*command, "--older-than", "1h", "--yes", env=env).stdout) == []
    rows = from_ndjson(run_cli(*command, *SHORT, "--yes", env=env).stdout)
    assert sorted(row["ledger"] for row in rows) == ids
    none = run_cli(*command, "--yes", env=env)
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr == "bkctl: none of these ledgers is OPEN or IN_RECOVERY\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["1", "--all-open"],
        ["1", "--older-than", "1h"],
        ["1", "--concurrency", "0"],
        ["1", "--stop-writers"],
    ],
)
def test_recover_of_what(run_cli: Run, env: dict[str, str], arguments: list[str]) -> None:
    assert run_cli("ledger", "recover", *arguments, env=env).exit_code == 2


def test_recover_asks_before_it_stops_a_writer_that_is_at_work(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    with live_writer(cluster.metadata_uri) as writer:
        refused = run_cli("ledger", "recover", writer.ledger, env=env)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert f"would stop a writer that is at work (ledger {writer.ledger}: LAC " in refused.stderr
        assert json.loads(run_cli("ledger", "show", writer.ledger, env=env).stdout)["state"] == "OPEN"
        assert writer.error is None
        done = run_cli("ledger", "recover", writer.ledger, "--yes", env=env)
        assert (done.exit_code, json.loads(done.stdout)["state"]) == (0, "CLOSED")
        until(lambda: writer.error is not None)
        assert isinstance(writer.error, HandleFencedError)
        assert json.loads(done.stdout)["last_entry"] >= writer.appended - 1


def test_recover_all_open_leaves_ledgers_to_writers_that_are_at_work(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    mine = (("suite", b"live"),)
    left = written(cluster, 2, close=False, custom_metadata=mine)
    command = ("ledger", "recover", "--all-open", "--custom", "suite=live", "--yes")
    with live_writer(cluster.metadata_uri, custom_metadata=mine) as writer:
        result = run_cli(*command, env=env)
        rows = {row["ledger"]: row for row in from_ndjson(result.stdout)}
        assert result.exit_code == 3
        assert (rows[left]["state"], rows[writer.ledger]["state"]) == ("CLOSED", "OPEN")
        assert rows[writer.ledger]["why"].startswith("left alone: a writer is active, LAC ")
        assert "1 ledger is being written and was left alone" in result.stderr
        assert writer.error is None
        result = run_cli(*command, "--stop-writers", env=env)
        assert (result.exit_code, from_ndjson(result.stdout)[0]["state"]) == (0, "CLOSED")
        until(lambda: writer.error is not None)


def test_a_ledger_that_was_deleted_since_the_listing_is_no_failure(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = (("suite", b"deleted-meanwhile"),)
    stays, goes = (written(cluster, 2, close=False, custom_metadata=mine) for _ in range(2))
    real = LedgerListing.__iter__

    def listed(self: LedgerListing) -> Iterator[StoredLedger]:
        yield from list(real(self))
        with open_metadata_store(cluster.metadata_uri) as store:
            store.ledgers.delete_ledger(goes, store.ledgers.read_ledger(goes).version)

    monkeypatch.setattr(LedgerListing, "__iter__", listed)
    command = ("ledger", "recover", "--all-open", "--custom", "suite=deleted-meanwhile", "--yes", *SHORT)
    result = run_cli(*command, env=env)
    assert result.exit_code == 0
    assert [row["ledger"] for row in from_ndjson(result.stdout)] == [stays]
    assert f"ledger {goes} was deleted meanwhile" in result.stderr


def test_the_shape_of_json_follows_from_the_arguments(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    """One id gives an object; several, or a search, give an array, however many ledgers that comes to."""
    mine = (("suite", b"shape"),)
    ledger = written(cluster, 1, close=False, custom_metadata=mine)
    recover = ("ledger", "recover", "-o", "json", "--yes")
    search = ("--all-open", "--custom", "suite=shape", *SHORT)
    assert isinstance(json.loads(run_cli(*recover, ledger, env=env).stdout), dict)
    assert len(json.loads(run_cli(*recover, ledger, ledger, env=env).stdout)) == 1
    assert json.loads(run_cli(*recover, *search, env=env).stdout) == []
    ledger = written(cluster, 1, close=False, custom_metadata=mine)
    assert [row["ledger"] for row in json.loads(run_cli(*recover, *search, env=env).stdout)] == [ledger]
    assert isinstance(json.loads(run_cli("ledger", "show", ledger, "-o", "json", env=env).stdout), dict)
    assert len(json.loads(run_cli("ledger", "show", ledger, ledger, "-o", "json", env=env).stdout)) == 2


def test_fence_stops_the_writer_and_says_so(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 2, close=False)
    result = run_cli("ledger", "fence", ledger, env=env)
    row = json.loads(result.stdout)
    assert (result.exit_code, row["state"], row["covered"]) == (0, "OPEN", True)
    assert row["guarantee"].startswith("3 of 3 bookies have fenced it")
    assert all(one["fenced"] for one in row["replicas"])
    assert json.loads(run_cli("ledger", "show", ledger, env=env).stdout)["state"] == "OPEN"


def test_doctor_of_a_healthy_and_of_an_open_ledger(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    result = run_cli("ledger", "doctor", written(cluster, 3), env=env)
    row = json.loads(result.stdout)
    assert (result.exit_code, row["verdict"], row["next_command"]) == (0, "healthy", None)
    ledger = written(cluster, 3, close=False)
    result = run_cli("ledger", "doctor", ledger, *SHORT, env=env)
    row = json.loads(result.stdout)
    assert (result.exit_code, row["verdict"], row["would_close_at"]) == (1, "recoverable", 2)
    assert row["next_command"] == f"bkctl ledger recover {ledger}"
    assert json.loads(run_cli("ledger", "show", ledger, env=env).stdout)["version"] == 0
    row = json.loads(run_cli("ledger", "doctor", written(cluster, 0, close=False), *SHORT, env=env).stdout)
    assert "a recovery would close it empty and write 0 entries again" in row["findings"][-1]


def test_doctor_says_whose_the_ledger_is(run_cli: Run, env: dict[str, str]) -> None:
    names = ("application=pulsar", "pulsar/managed-ledger=shop/eu/persistent/orders")
    words = [word for name in names for word in ("--custom", name)]
    made = json.loads(run_cli("ledger", "create", "-e", "1", "-w", "1", "-a", "1", *words, env=env).stdout)
    row = json.loads(run_cli("ledger", "doctor", made["ledger"], *SHORT, env=env).stdout)
    assert (row["application"], row["topic"]) == ("pulsar", "persistent://shop/eu/orders")


def test_doctor_leaves_a_ledger_to_its_writer(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    with live_writer(cluster.metadata_uri) as writer:
        result = run_cli("ledger", "doctor", writer.ledger, env=env)
        row = json.loads(result.stdout)
        assert (result.exit_code, row["verdict"], row["next_command"]) == (0, "open", None)
        assert row["would_close_at"] is None
        before, after = re.match(
            r"it is open, and a writer is active: LAC (-?\d+) -> (\d+) within 2 s\Z", row["findings"][0]
        ).groups()  # type: ignore[union-attr]
        assert int(before) < int(after)
        assert writer.error is None


def test_doctor_of_a_ledger_that_is_closed_while_it_is_looked_at(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = written(cluster, 3, close=False)
    real = ledger_doctor.read_ledger_now
    looks = 0

    async def read(client: BookKeeper, ledger: int, *, password: bytes | None = None) -> LedgerReading:
        nonlocal looks
        looks += 1
        if looks == 2:
            await client.recover(ledger)
        return await real(client, ledger, password=password)

    monkeypatch.setattr(ledger_doctor, "read_ledger_now", read)
    result = run_cli("ledger", "doctor", ledger, *SHORT, env=env)
    row = json.loads(result.stdout)
    assert (result.exit_code, row["state"], row["verdict"]) == (0, "CLOSED", "healthy")
    assert "it was closed while it was looked at" in row["findings"]


def test_doctor_misses_the_copies_of_a_bookie_that_is_gone(run_cli: Run, tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        env = {"BKCTL_METADATA_URI": cluster.metadata_uri}
        ledger, two_copies = written(cluster, 6), written(cluster, 1)
        with open_metadata_store(cluster.metadata_uri) as store:
            segments = store.ledgers.read_ledger(two_copies).metadata.segments
        third = segments[0].bookies[2]
        gone = next(bookie for bookie in cluster.bookies if bookie.bookie_id == third)
        gone.stop()

        result = run_cli("ledger", "doctor", ledger, env=env)
        row = json.loads(result.stdout)
        assert (result.exit_code, row["verdict"], row["absent"]) == (1, "under_replicated", [third])
        assert f"bookie {third} is not registered: 4 entries have one copy fewer" in row["findings"]
        assert row["findings"][-1].startswith("autorecovery is on but has no auditor")
        assert row["next_command"] == (
            f"bkctl pipeline run replication-audit PATH... --metadata {cluster.metadata_uri} "
            f"--bookies-gone {third} --out audit"
        )
        # The one entry of the other ledger is on the first two bookies.
        row = json.loads(run_cli("ledger", "doctor", two_copies, env=env).stdout)
        assert (row["verdict"], row["absent"]) == ("healthy", [third])

        gone.start()
        assert json.loads(run_cli("ledger", "doctor", ledger, env=env).stdout)["verdict"] == "healthy"
        with open_metadata_store(cluster.metadata_uri) as store:
            cookie = store.cookies.read_cookie(third)
            assert cookie is not None
            store.cookies.delete_cookie(third, cookie.version)
            store.underreplication.set_enabled(False)
        row = json.loads(run_cli("ledger", "doctor", ledger, env=env).stdout)
        assert row["verdict"] == "under_replicated"
        assert f"bookie {third} has no cookie: 4 entries have one copy fewer" in row["findings"]
        assert row["findings"][-1].startswith("autorecovery is switched off")


def test_with_bookies_down(run_cli: Run, tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        env = {"BKCTL_METADATA_URI": cluster.metadata_uri}
        closed, opened = written(cluster, 3), written(cluster, 3, close=False)
        gone = [bookie.bookie_id for bookie in cluster.bookies[:2]]
        for bookie in cluster.bookies[:2]:
            bookie.stop()

        failed = run_cli("ledger", "recover", opened, *SHORT, env=env)
        assert (failed.exit_code, failed.stdout) == (3, "")
        assert f"ledger {opened}" in failed.stderr
        assert any(bookie in failed.stderr for bookie in gone)

        fenced = run_cli("ledger", "fence", opened, env=env)
        assert (fenced.exit_code, json.loads(fenced.stdout)["covered"]) == (3, False)

        doctor = run_cli("ledger", "doctor", opened, *SHORT, env=env)
        row = json.loads(doctor.stdout)
        assert (doctor.exit_code, row["verdict"], row["would_close_at"]) == (1, "needs_bookies", None)
        assert all(bookie in row["next_command"] for bookie in gone)
        assert row["absent"] == sorted(gone)

        doctor = run_cli("ledger", "doctor", closed, env=env)
        row = json.loads(doctor.stdout)
        assert (doctor.exit_code, row["verdict"]) == (1, "unreadable")
        assert any("cannot be read" in finding for finding in row["findings"])


def test_doctor_looks_at_every_write_set(run_cli: Run, tmp_path: Path) -> None:
    """With two of three bookies down one write set of the three is gone, and not the same one each time."""
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        env = {"BKCTL_METADATA_URI": cluster.metadata_uri}
        ledgers = [written(cluster, 3) for _ in range(8)]
        for bookie in cluster.bookies[:2]:
            bookie.stop()
        for ledger in ledgers:
            row = json.loads(run_cli("ledger", "doctor", ledger, env=env).stdout)
            assert row["verdict"] == "unreadable"
            assert sum("cannot be read" in finding for finding in row["findings"]) == 1


def test_doctor_tells_of_autorecoverys_mark(run_cli: Run, cluster: LocalCluster, env: dict[str, str]) -> None:
    ledger = written(cluster, 3)
    mark = UnderreplicatedMark(("gone:3181",), 1795263329069)
    with open_metadata_store(cluster.metadata_uri) as store:
        assert isinstance(store, TreeMetadataStore)
        store._tree.create_with_parents(
            f"{store.root}/{mark_path(ledger)}", mark_text(mark), below=store.root
        )
    row = json.loads(run_cli("ledger", "doctor", ledger, env=env).stdout)
    assert "it is marked as missing replicas on gone:3181; nobody works on that now" in row["findings"]


def test_doctor_goes_on_over_a_mark_that_cannot_be_read(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str]
) -> None:
    ledger = written(cluster, 1)
    with open_metadata_store(cluster.metadata_uri) as store:
        assert isinstance(store, TreeMetadataStore)
        store._tree.create_with_parents(f"{store.root}/{mark_path(ledger)}", b"garbage", below=store.root)
    row = json.loads(run_cli("ledger", "doctor", ledger, env=env).stdout)
    assert row["verdict"] == "healthy"
    assert [one for one in row["findings"] if one.startswith("whether it is marked as missing replicas")]


# --- delete, restore ----------------------------------------------------------------------------------------


def test_delete_asks_and_restore_brings_it_back_byte_for_byte(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], tmp_path: Path
) -> None:
    ledger = written(cluster, 3, password=b"secret")
    undo = tmp_path / "undo.json"
    with open_metadata_store(cluster.metadata_uri) as store:
        before = store.ledgers.read_ledger(ledger)

    assert run_cli("ledger", "delete", ledger, env=env).exit_code == 4
    (planned,) = from_ndjson(run_cli("ledger", "delete", ledger, "--dry-run", env=env).stdout)
    assert (planned["deleted"], planned["undo_file"]) == (False, None)
    assert run_cli("ledger", "show", ledger, env=env).exit_code == 0

    result = run_cli("ledger", "delete", ledger, "--yes", "--undo-file", undo, env=env)
    (row,) = from_ndjson(result.stdout)
    assert row == {
        "ledger": ledger, "state": "CLOSED", "length": 3, "deleted": True, "undo_file": str(undo)
    }  # fmt: skip
    assert stat.S_IMODE(undo.stat().st_mode) == 0o600
    assert run_cli("ledger", "show", ledger, env=env).exit_code == 6

    (planned,) = from_ndjson(run_cli("ledger", "restore", undo, "--dry-run", env=env).stdout)
    assert planned == {"ledger": ledger, "state": "CLOSED", "version": None}
    assert run_cli("ledger", "show", ledger, env=env).exit_code == 6
    (row,) = from_ndjson(run_cli("ledger", "restore", undo, env=env).stdout)
    assert row == {"ledger": ledger, "state": "CLOSED", "version": 0}
    with open_metadata_store(cluster.metadata_uri) as store:
        after = store.ledgers.read_ledger(ledger)
    assert encode_ledger_metadata(after.metadata) == encode_ledger_metadata(before.metadata)
    assert payloads(run_cli, env, ledger) == [b"0", b"1", b"2"]
    assert run_cli("ledger", "restore", undo, env=env).exit_code == 4


def test_delete_leaves_what_somebody_else_changes_meanwhile(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, gone, same = (written(cluster, 1) for _ in range(3))
    real = ledger_deletion.write_undo_file

    def interfere(path: str, store: MetadataStore, ledgers: Sequence[StoredLedger], time_ms: int) -> None:
        real(path, store, ledgers, time_ms)
        other, lost = (store.ledgers.read_ledger(ledger) for ledger in (changed, gone))
        store.ledgers.update_ledger(changed, replace(other.metadata, c_token=7), other.version)
        store.ledgers.delete_ledger(gone, lost.version)

    monkeypatch.setattr(ledger_deletion, "write_undo_file", interfere)
    words = (changed, gone, same, "--yes", "--undo-file", tmp_path / "undo.json")
    result = run_cli("ledger", "delete", *words, env=env)
    assert result.exit_code == 3
    assert f"ledger {changed}: somebody changed it meanwhile; not deleted" in result.stderr
    rows = from_ndjson(result.stdout)
    assert {row["ledger"]: row["deleted"] for row in rows} == {changed: False, gone: True, same: True}
    assert run_cli("ledger", "show", changed, env=env).exit_code == 0


def test_delete_never_replaces_an_undo_file(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], tmp_path: Path
) -> None:
    ledger = written(cluster, 1)
    undo = tmp_path / "undo.json"
    undo.write_text("mine")
    assert run_cli("ledger", "delete", ledger, "--yes", "--undo-file", undo, env=env).exit_code == 4
    assert run_cli("ledger", "show", ledger, env=env).exit_code == 0


def test_restore_one_of_a_dump(
    run_cli: Run, cluster: LocalCluster, env: dict[str, str], tmp_path: Path
) -> None:
    ledger = written(cluster, 1)
    dump = tmp_path / "dump.json"
    run_cli("metadata", "dump", "--out", dump, env=env)
    run_cli("ledger", "delete", ledger, "--yes", "--undo-file", tmp_path / "undo.json", env=env)
    assert run_cli("ledger", "restore", dump, env=env).exit_code == 4, "a whole cluster needs --yes"
    assert run_cli("ledger", "restore", dump, "--ledger", 999_999_999, env=env).exit_code == 6
    (row,) = from_ndjson(run_cli("ledger", "restore", dump, "--ledger", ledger, env=env).stdout)
    assert row["ledger"] == ledger


# --- which cluster ------------------------------------------------------------------------------------------


def test_without_a_cluster_to_ask_the_usage_is_wrong(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_cli("ledger", "list", env={"BKCTL_METADATA_URI": None})
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_data_directory_here_is_the_default(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bkctl-data").mkdir()
    with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as store:
        store.layout.initialise_cluster()
    monkeypatch.chdir(tmp_path)
    result = run_cli("ledger", "list", env={"BKCTL_METADATA_URI": None})
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_configuration_of_another_kind_of_bookie_will_do(
    run_cli: Run, cluster: LocalCluster, tmp_path: Path
) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(
        f"metadataServiceUri={cluster.metadata_uri}\n"
        "ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage\n"
    )
    assert run_cli("ledger", "list", "--conf", conf, env={"BKCTL_METADATA_URI": None}).exit_code == 0
    assert run_cli("ledger", "list", "-X", f"metadataServiceUri={cluster.metadata_uri}").exit_code == 0
