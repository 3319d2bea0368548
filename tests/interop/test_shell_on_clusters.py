"""Commands of ``bookkeeper shell`` that make a cluster, its cookies and its audits, beside ours.

The shell works on one cluster and ours on another; both leave the same behind.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.interop.test_shell_side_by_side import _configured, _write_ledgers, shell
from tests.support.java_cluster import new_cluster, our_bookies
from tests.support.rows import from_ndjson
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]
Run = Callable[..., Any]


def nodes(server: ZooKeeperServer, root: str) -> dict[str, bytes]:
    """Every node below a root, with its data."""
    client = KazooClient(server.address)
    client.start()
    try:
        found, waiting = dict[str, bytes](), [root]
        while waiting:
            path = waiting.pop()
            found[path.removeprefix(root)] = client.get(path)[0]
            waiting += [f"{path}/{name}" for name in client.get_children(path)]
        return found
    finally:
        client.stop()
        client.close()


def root_of(uri: str) -> str:
    return "/" + uri.rpartition("/")[2]


def generated(out: Path, bookie: str) -> str:
    return f"cookie_generate -j /data/j -l /data/l1,/data/l2 -o {out} {bookie}"


def test_new_clusters_and_their_cookies_are_the_same(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    roots = [f"/ledgers-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    their_uri, our_uri = (f"zk+hierarchical://{zookeeper_server.address}{root}" for root in roots)
    conf = tmp_path / "bk_server.conf"
    conf.write_text(
        f"metadataServiceUri={their_uri}\njournalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n"
    )
    kept, changed, gone = (f"bookie-{number}:3181" for number in range(3))
    files = {bookie: tmp_path / bookie for bookie in (kept, changed, gone)}
    shell(
        conf, "initnewcluster",
        *(generated(path, bookie) for bookie, path in files.items()),
        *(f"cookie_create -cf {path} {bookie}" for bookie, path in files.items()),
        f"cookie_generate -j /elsewhere -l /data/l1,/data/l2 -o {tmp_path}/other {changed}",
        f"cookie_update -cf {tmp_path}/other {changed}", f"cookie_delete {gone}",
    )  # fmt: skip

    def ours(*words: object) -> None:
        done = run_cli(*words, "--metadata", our_uri)
        assert done.exit_code == 0, done.stderr

    ours("cluster", "init")
    for bookie in (kept, changed, gone):
        directories = ("--journal-dir", "/data/j", "--ledger-dir", "/data/l1", "--ledger-dir", "/data/l2")
        ours("cookie", "generate", bookie, *directories, "--out", tmp_path / f"our-{bookie}")
        ours("cookie", "create", bookie, "--file", tmp_path / f"our-{bookie}", "--yes")
    (tmp_path / "old").mkdir()
    directories = ("--journal-dir", "/elsewhere", "--ledger-dir", "/data/l1", "--ledger-dir", "/data/l2")
    ours("cookie", "generate", changed, *directories, "--out", tmp_path / "our-other")
    kept_in = ("--yes", "--backup-dir", tmp_path / "old")
    ours("cookie", "update", changed, "--file", tmp_path / "our-other", *kept_in)
    ours("cookie", "delete", gone, *kept_in)

    def without_instance(root: str) -> dict[str, bytes]:
        found = nodes(zookeeper_server, root)
        instance = found["/INSTANCEID"]
        return {path: data.replace(instance, b"ID") for path, data in found.items()}

    theirs, made = map(without_instance, roots)
    assert made == theirs
    assert b"/elsewhere" in made[f"/cookies/{changed}"]
    assert f"/cookies/{gone}" not in made


def test_the_auditor_is_named_and_triggered(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    uri = new_cluster(zookeeper_server)
    root = root_of(uri)

    def ours(*words: str) -> Any:
        done = run_cli(*words, "--metadata", uri, "-o", "json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    with our_bookies(
        tmp_path, uri, 2, httpServerEnabled="false", autoRecoveryDaemonEnabled="true"
    ) as bookies:
        conf = _configured(tmp_path, uri)
        said = shell(conf, "whoisauditor", "triggeraudit", "forceauditchecks -calc -ppc -rc")
        auditor = ours("autorecovery", "auditor")["auditor"]
        assert auditor in bookies
        assert auditor.partition(":")[2] in said["whoisauditor"]
        theirs = nodes(zookeeper_server, root)
        ours("autorecovery", "trigger")
        every = [word for check in ("ledgers", "placement", "replicas") for word in ("--check", check)]
        ours("autorecovery", "trigger", *every)
        made = nodes(zookeeper_server, root)
    for name in ("checkallledgersctime", "placementpolicycheckctime", "replicascheckctime"):
        path = f"/underreplication/{name}"
        assert path in theirs
        assert path in made


def test_local_commands_leave_the_same(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    uri = new_cluster(zookeeper_server)
    home, other = tmp_path / "bookie0", tmp_path / "bookie1"
    with our_bookies(tmp_path, uri, 2, httpServerEnabled="false") as bookies:
        _write_ledgers(uri)
        ids = list(bookies)
    conf = _configured(tmp_path, uri)
    with conf.open("a") as file:
        file.write(f"bookieId={ids[0]}\n")
    before = run_cli("index", "ledgers", home, "-o", "json")
    said = shell(conf, "localconsistencycheck", "rebuild-db-ledgers-index -v")
    assert "Check passed" in said["localconsistencycheck"]
    # Java's rebuild writes keys of 16 bytes, which its own bookie does not find again.
    found = from_ndjson(run_cli("index", "check", home, "-o", "ndjson").stdout)
    assert {row["kind"] for row in found} == {"wide_key"}
    assert run_cli("index", "repair", home, "--yes").exit_code == 0
    assert run_cli("index", "check", home).exit_code == 0
    after = run_cli("index", "ledgers", home, "-o", "json")
    assert [row["ledger"] for row in json.loads(after.stdout)] == [
        row["ledger"] for row in json.loads(before.stdout)
    ]
    shell(conf, "bookieformat -nonInteractive -force -deleteCookie")
    changed = {
        "bookieId": ids[1],
        "journalDirectories": f"{other}/journal",
        "ledgerDirectories": f"{other}/ledgers",
    }
    overrides = [word for key, value in changed.items() for word in ("-X", f"{key}={value}")]
    done = run_cli("bookie", "format", "--conf", conf, *overrides, "--yes", "--delete-cookie")
    assert done.exit_code == 0, done.stderr

    def left(place: Path) -> set[str]:
        # Ours keeps the directories that hold its locks.
        return {str(path.relative_to(place)) for path in place.rglob("*") if path.name != "current"}

    assert left(home) == left(other) == {"journal", "ledgers"}
    assert not any(name.startswith("/cookies/") for name in nodes(zookeeper_server, root_of(uri)))
