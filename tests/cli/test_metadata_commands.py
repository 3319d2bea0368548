"""``bkctl metadata``: dump and show."""

from __future__ import annotations

import base64
import json
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.metadata_dump import DumpedNode, cluster_dump, write_dump_file
from bkctl.clock import SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata
from bkctl.codec.underreplication import UnderreplicatedMark, mark_path
from bkctl.errors import RefusedError
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.metadata_dump import DumpKind, load_metadata_dump
from bkctl.types import DigestType, LedgerState
from bkctl.vfs import PosixFileSystem
from tests.support.autorecovery_nodes import holder_text, mark_text
from tests.support.cluster_removal import format_cluster

Run = Callable[..., Any]

METADATA = LedgerMetadata(
    3,
    2,
    2,
    2,
    0,
    -1,
    LedgerState.OPEN,
    (Segment(0, ("a:1", "b:1")),),
    DigestType.MAC,
    b"secret",
    1_700_000_000_000,
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        store.layout.initialise_cluster()
        store.cookies.create_cookie("a:1", b"5\nbookieHost: ...\n")
        for ledger in (0, 7, 2**40):
            store.ledgers.create_ledger(ledger, METADATA)
        store.ledgers.update_ledger(7, METADATA, 0)
    return uri


def test_a_dump_is_what_scan_reads(run_cli: Run, uri: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    result = run_cli("metadata", "dump", "--out", path, "--metadata", uri)
    row = json.loads(result.stdout)
    assert (result.exit_code, row["path"], row["root"]) == (0, str(path), "/ledgers")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    dump = load_metadata_dump(PosixFileSystem(), str(path))
    assert dump.root == "/ledgers"
    assert dump.ledgers == {0: METADATA, 7: METADATA, 2**40: METADATA}
    assert dump.znodes[dump.ledger_paths[7]].version == 1
    assert dump.cookies == {"a:1": b"5\nbookieHost: ...\n"}
    assert "/ledgers/INSTANCEID" in dump.znodes
    assert row["nodes"] == len(dump.znodes)


def test_a_dump_ends_with_a_marker_of_what_it_is(run_cli: Run, uri: str, tmp_path: Path) -> None:
    with open_metadata_store(uri) as store:
        assert [store.ledgers.new_ledger_id() for _ in range(8)][-1] == 7
    path = tmp_path / "dump.json"
    before_ms = time.time() * 1000
    assert run_cli("metadata", "dump", "--out", path, "--metadata", uri).exit_code == 0
    raw = json.loads(path.read_text())
    assert list(raw)[-1] == "end"
    assert raw["end"]["complete"] is True
    dump = load_metadata_dump(PosixFileSystem(), str(path))
    assert dump.end is not None
    assert (dump.end.kind, dump.end.next_ledger, dump.end.nodes) == (DumpKind.CLUSTER, 8, len(dump.znodes))
    assert before_ms - 1 <= dump.end.time_ms <= time.time() * 1000 + 1
    with open_metadata_store(uri) as store:
        assert dump.instance_id == store.layout.instance_id()
        assert store.ledgers.new_ledger_id() == 8, "the dump took no id"


def test_an_undo_file_is_of_another_kind(run_cli: Run, uri: str, tmp_path: Path) -> None:
    undo = tmp_path / "undo.json"
    assert run_cli("ledger", "delete", "7", "--yes", "--undo-file", undo, "--metadata", uri).exit_code == 0
    dump = load_metadata_dump(PosixFileSystem(), str(undo))
    assert dump.end is not None
    assert (dump.end.kind, dump.end.next_ledger, list(dump.ledgers)) == (DumpKind.UNDO, None, [7])
    assert (dump.has_root, dump.instance_id) == (False, None)
    row = json.loads(run_cli("inspect", undo, "-o", "ndjson").stdout)
    assert row["facts"]["dump_kind"] == "undo"


def test_a_cluster_that_is_formatted_while_it_is_dumped_leaves_no_file(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_metadata_store(uri) as store:
        dump = cluster_dump(store, SystemClock())

        def formatted_in_the_middle() -> Iterator[DumpedNode]:
            for at, node in enumerate(dump.nodes):
                if at == 3:
                    format_cluster(store)
                yield node

        path = tmp_path / "dump.json"
        with pytest.raises(RefusedError, match="formatted while it was read"):
            write_dump_file(str(path), replace(dump, nodes=formatted_in_the_middle()))
    assert not path.exists()


def test_a_dump_never_replaces_a_file(run_cli: Run, uri: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text("mine")
    assert run_cli("metadata", "dump", "--out", path, "--metadata", uri).exit_code == 4
    assert path.read_text() == "mine"


def test_a_dump_that_fails_leaves_no_file(run_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    result = run_cli("metadata", "dump", "--out", path, "--metadata", f"embedded://{tmp_path}/nothing.db")
    assert result.exit_code == 6
    assert not path.exists()


def test_passwords_go_to_stdout_only_when_asked_for(run_cli: Run, uri: str) -> None:
    assert run_cli("metadata", "dump", "--metadata", uri).exit_code == 2
    result = run_cli("metadata", "dump", "--show-secrets", "--metadata", uri)
    nodes = json.loads(result.stdout)
    assert base64.b64decode(nodes["/ledgers/00/0000/L0007"]["data"]) == encode_ledger_metadata(METADATA)


def test_show_the_cluster(run_cli: Run, uri: str) -> None:
    row = json.loads(run_cli("metadata", "show", "--metadata", uri).stdout)
    assert (row["uri"], row["root"], row["layout"]) == (uri, "/ledgers", "hierarchical")
    assert (row["bookies"], row["cookies"]) == ([], ["a:1"])
    assert len(row["instance_id"]) == 36


@pytest.mark.parametrize("path", ["/ledgers/00/0000/L0007", "00/0000/L0007"])
def test_show_a_ledgers_node_without_its_password(run_cli: Run, uri: str, path: str) -> None:
    result = run_cli("metadata", "show", path, "--metadata", uri)
    row = json.loads(result.stdout)
    assert (row["kind"], row["version"], row["value"]["ledger"], row["value"]["state"]) == (
        "ledger",
        1,
        7,
        "OPEN",
    )
    assert "data" not in row
    assert b"secret".hex() not in result.stdout
    shown = json.loads(run_cli("metadata", "show", path, "--show-secrets", "--metadata", uri).stdout)
    assert base64.b64decode(shown["data"]) == encode_ledger_metadata(METADATA)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("cookies/a:1", "cookie"), ("LAYOUT", "layout"), ("INSTANCEID", "text"), ("00", "empty")],
)
def test_show_other_nodes(run_cli: Run, uri: str, path: str, kind: str) -> None:
    assert json.loads(run_cli("metadata", "show", path, "--metadata", uri).stdout)["kind"] == kind


def test_no_such_node(run_cli: Run, uri: str) -> None:
    result = run_cli("metadata", "show", "nothing", "--metadata", uri)
    assert result.exit_code == 6
    assert "no node /ledgers/nothing" in result.stderr


def test_autorecovery_is_shown_as_a_whole(run_cli: Run, uri: str) -> None:
    """What bookkeeper shell's listunderreplicated tells, and a cluster without it is no error."""

    def shown(path: str = "underreplication") -> dict[str, Any]:
        result = run_cli("metadata", "show", path, "--metadata", uri, "-o", "json")
        assert result.exit_code == 0, result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    assert shown() == {
        "path": "/ledgers/underreplication",
        "kind": "underreplication",
        "value": {
            "enabled": True,
            "auditor": None,
            "lost_bookie_recovery_delay_s": None,
            "marked": 0,
            "ledgers": [],
        },
    }
    with open_metadata_store(uri) as store:
        assert isinstance(store, TreeMetadataStore)
        marks = {2: UnderreplicatedMark(("b:1",), 1_700_000_000_000), 7: UnderreplicatedMark(())}
        nodes = {mark_path(ledger): mark_text(mark) for ledger, mark in marks.items()}
        nodes["underreplication/locks/urL0000000007"] = holder_text("worker-1")
        nodes["underreplication/disable"] = b""
        for path, data in nodes.items():
            store._tree.create_with_parents(f"{store.root}/{path}", data, below=store.root)
    of_two = {"ledger": 2, "missing_on": ["b:1"], "marked_ms": 1_700_000_000_000}
    value = shown("/ledgers/underreplication/")["value"]
    assert (value["enabled"], value["marked"]) == (False, 2)
    assert value["ledgers"] == [
        {**of_two, "replicator": None},
        {"ledger": 7, "missing_on": [], "marked_ms": None, "replicator": "worker-1"},
    ]
    mark = shown(mark_path(2))
    assert (mark["kind"], mark["value"]) == ("underreplicated_ledger", of_two)
    lock = shown("underreplication/locks/urL0000000007")
    assert (lock["kind"], lock["value"]) == ("replicator", {"ledger": 7, "replicator": "worker-1"})
