"""Commands of ``bookkeeper shell`` and their equivalents here, on one cluster: both say the same.

One JVM runs the commands of a call one after the other. Which of ours stands beside which of the shell's is
said in docs/coming-from-bookkeeper-shell.md.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.sync import BookKeeperSync
from tests.support.java_bookkeeper import SHELL_LOGGING, require_jars
from tests.support.java_cluster import SETTINGS, new_cluster, our_bookies
from tests.support.rows import from_ndjson
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]
Run = Callable[..., Any]


def answers(conf: Path, *commands: str) -> dict[str, tuple[int, str]]:
    """The exit code of each command of the shell, and what it says."""
    jars = require_jars()
    logging = f"-Dlog4j.configurationFile={SHELL_LOGGING}"
    words = jars.quick_command("org.apache.bookkeeper.bookie.Shells", str(conf), log_level="INFO")
    words.insert(1, logging)
    done = subprocess.run(
        words, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=100, check=False
    )
    parts = re.split(r"^== (-?\d+)\n", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, done.stderr
    codes = map(int, parts[1::2])
    return dict(zip(commands, zip(codes, parts[0::2], strict=False), strict=True))


def shell(conf: Path, *commands: str) -> dict[str, str]:
    """What the shell says to each command, which must succeed."""
    said = answers(conf, *commands)
    assert {code for code, _ in said.values()} == {0}, said
    return {command: text for command, (_, text) in said.items()}


def numbers(pattern: str, said: str) -> list[int]:
    return [int(found) for found in re.findall(pattern, said)]


def test_online_commands_say_the_same(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    uri = new_cluster(zookeeper_server)

    def ours(*words: str) -> list[dict[str, Any]]:
        done = run_cli(*words, "-o", "ndjson", env={"BKCTL_METADATA_URI": uri})
        assert done.exit_code == 0, done.stderr
        return from_ndjson(done.stdout)

    with our_bookies(tmp_path, uri, 2, httpServerEnabled="false") as bookies:
        _write_ledgers(uri)
        ours("autorecovery", "delay", "30s")
        conf = _configured(tmp_path, uri)
        one = min(bookies)
        said = shell(
            conf, "listbookies -rw", "whatisinstanceid", "listledgers", "ledgermetadata -ledgerid 1",
            "readledger -ledgerid 1 -msg", "bookieinfo", f"endpointinfo -b {one}", f"cookie_get {one}",
            "queryautorecoverystatus", "lostbookierecoverydelay -get", "listunderreplicated",
            "autorecovery -disable", "clusterinfo",
            f"readledger -ledgerid 1 -lastentryid 5 -bookie {one} -msg",
        )  # fmt: skip
        assert set(re.findall(r"BookieID:(\S+),", said["listbookies -rw"])) == set(bookies)
        assert {row["bookie"] for row in ours("bookies", "list")} == set(bookies)
        [info] = ours("cluster", "info")
        assert f"InstanceId: {info['instance_id']}\n" in said["whatisinstanceid"]
        assert numbers(r"ledgerID: (\d+)", said["listledgers"]) == [
            row["ledger"] for row in ours("ledger", "list")
        ]
        [shown] = ours("ledger", "show", "1")
        for text in (
            f"length={shown['length']}",
            f"lastEntryId={shown['last_entry']}",
            f"state={shown['state']}",
        ):
            assert text in said["ledgermetadata -ledgerid 1"]
        read = ours("ledger", "read", "1", "--payload", "text")
        told = said["readledger -ledgerid 1 -msg"]
        assert numbers(r"Eid=(\d+)", told) == [row["entry"] for row in read]
        assert re.findall(r"^(entry \d)$", told, re.MULTILINE) == [row["payload"] for row in read]
        capacity = numbers(r"Total: (\d+)", said["bookieinfo"])
        assert sorted(capacity) == sorted(row["total_bytes"] for row in ours("bookies", "info"))
        [endpoint] = [row["endpoints"][0] for row in ours("bookies", "list") if row["bookie"] == one]
        assert f"Address: {endpoint['host']} : {endpoint['port']}" in said[f"endpointinfo -b {one}"]
        [cookie] = ours("cookie", "get", one)
        assert f'instanceId: "{cookie["instance_id"]}"' in said[f"cookie_get {one}"]
        assert f'journalDir: "{cookie["journal_dirs"][0]}"' in said[f"cookie_get {one}"]
        assert "No Ledger is being recovered" in said["queryautorecoverystatus"]
        assert "count: 0" in said["listunderreplicated"]
        assert ours("autorecovery", "list") == []
        [status] = ours("autorecovery", "status")
        assert not status["enabled"], "the shell has switched it off"
        # With a bookie the shell leaves the last entry out that it is asked for.
        told = said[f"readledger -ledgerid 1 -lastentryid 5 -bookie {one} -msg"]
        held = [row["entry"] for row in ours("ledger", "compare", "1") if row["bookie"] == one]
        assert numbers(r"Eid=(\d+)", told) == held == [0, 1, 2, 3, 4]
        assert numbers(r": (\d+)\s*$", said["lostbookierecoverydelay -get"]) == [30]
        assert f'"writableBookiesCount" : {len(info["writable_bookies"])}' in said["clusterinfo"]
        assert (
            f'"ledgerReplicationEnabled" : {str(info["autorecovery_enabled"]).lower()}' in said["clusterinfo"]
        )


@pytest.mark.thorough("runs the shell ten times; test_our_client.py makes and deletes")
def test_each_sees_what_the_other_made_and_deleted_and_files_are_the_same(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    uri = new_cluster(zookeeper_server)
    home = tmp_path / "bookie0"

    def ours(*words: object) -> list[dict[str, Any]]:
        done = run_cli(*map(str, words), "-o", "ndjson", env={"BKCTL_METADATA_URI": uri})
        assert done.exit_code == 0, done.stderr
        return from_ndjson(done.stdout)

    with our_bookies(tmp_path, uri, 2, httpServerEnabled="false"):
        _write_ledgers(uri)
        conf = _configured(tmp_path, uri)
        test = "simpletest -ensemble 2 -writeQuorum 2 -ackQuorum 2 -numEntries 3"
        said = shell(conf, test, "deleteledger -ledgerid 2 -force")
        assert "3 entries written to ledger 3" in said[test]
        assert [row["ledger"] for row in ours("ledger", "list")] == [0, 1], "the test's own is gone as well"
        ours("ledger", "delete", "0", "--yes", "--undo-file", tmp_path / "undo")
    [journal] = (home / "journal/current").glob("*.txn")
    said = shell(
        conf, "listledgers", "lastmark", "listfilesondisc -txn -log", "readlog 0", "readlogmetadata 0",
        "readlog -sp 1100 -ep 1250 0",
        f"readjournal {journal}", "ledger 1", "activeledgers -l 0 -t 9000",
        "check-db-ledgers-index", "rebuild-db-ledger-locations-index",
    )  # fmt: skip
    assert numbers(r"ledgerID: (\d+)", said["listledgers"]) == [1]
    [mark] = [row for row in ours("lastmark", "show", home) if row["counts"]]
    assert f"{mark['journal_id']}({mark['journal']}), Pos - {mark['offset']}\n" in said["lastmark"]
    listed = said["listfilesondisc -txn -log"]
    for noun in ("journal", "entrylog"):
        for row in ours(noun, "list", home):
            assert f"{row['path']}\n" in listed
    scanned = [(str(row["ledger"]), str(row["entry"])) for row in ours("entrylog", "scan", home)]
    assert re.findall(r"Lid=(\d+), Eid=(\d+)", said["readlog 0"]) == scanned
    touching = [
        (str(row["ledger"]), str(row["entry"]))
        for row in ours("entrylog", "scan", home, "--log", "0", "--bytes", "1100-1250")
    ]
    assert re.findall(r"Lid=(\d+), Eid=(\d+)", said["readlog -sp 1100 -ep 1250 0"]) == touching
    assert 1 < len(touching) < len(scanned)
    [log] = ours("entrylog", "show", home / "ledgers/current/0.log")
    told = re.findall(r"Lid=(\d+), TotalSizeOfEntriesOfLedger=(\d+)", said["readlogmetadata 0"])
    assert sorted(told) == sorted((str(one["ledger"]), str(one["bytes"])) for one in log["ledgers"])
    entries = [row for row in ours("journal", "scan", home) if row["kind"] == "entry"]
    assert said[f"readjournal {journal}"].count("Type:           DATA") == len(entries)
    rows = [
        (str(row["entry"]), str(row["offset"])) for row in ours("index", "scan", home) if row["ledger"] == 1
    ]
    assert re.findall(r"entry (\d+)\t:\t\(log: 0, pos: (\d+)\)", said["ledger 1"]) == rows
    assert ours("index", "check", home) == [], "the index that Java has rebuilt is right"
    assert numbers(r"(\d+)", said["activeledgers -l 0 -t 9000"].splitlines()[-1])[-1:] == [1]


def _write_ledgers(uri: str) -> None:
    with BookKeeperSync(uri, metadata=SETTINGS) as client:
        for _ in range(3):
            with client.create(2, 2, 2) as writer:
                for number in range(5):
                    writer.append(b"entry %d" % number)


def _configured(folder: Path, uri: str) -> Path:
    home = folder / "bookie0"
    conf = folder / "bk_server.conf"
    conf.write_text(
        f"metadataServiceUri={uri}\njournalDirectories={home}/journal\nledgerDirectories={home}/ledgers\n"
        "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\nallowLoopback=true\n"
    )
    return conf
