import base64
import json
from pathlib import Path

import pytest

from bkctl.codec.cookie import decode_cookie, encode_cookie
from bkctl.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.metadata_dump import DumpEnd, DumpKind, decode_metadata_dump, load_metadata_dump
from bkctl.types import DigestType, LedgerState
from bkctl.vfs.memory import MemoryFileSystem

SAMPLE = Path(__file__).parents[2] / "data" / "metadata" / "zk-sample.json"


def node(data: bytes, version: object = 0, ephemeral: object = False) -> dict[str, object]:
    return {"data": base64.b64encode(data).decode(), "version": version, "ephemeral": ephemeral}


GOOD = decode_metadata_dump(SAMPLE.read_bytes()).znodes["/ledgers/00/0000/L0003"].data


def dump(**nodes: object) -> bytes:
    return json.dumps(nodes).encode()


def test_sample() -> None:
    tree = load_metadata_dump(MemoryFileSystem({"zk.json": SAMPLE.read_bytes()}), "zk.json")
    assert tree.root == "/ledgers"
    assert list(tree.ledgers) == [0, 1, 2, 3, 5, 6, 29, 31, 123456800, 8589934610]
    assert tree.ledger_paths[8589934610] == "/ledgers/000/0000/0085/8993/L4610"
    digests = [tree.ledgers[ledger].digest_type for ledger in (0, 1, 2, 3)]
    assert digests == [DigestType.CRC32, DigestType.CRC32C, DigestType.MAC, DigestType.DUMMY]
    assert tree.ledgers[5].custom_metadata == (("owner", b"test"), ("application", b"corpus"))
    assert tree.ledgers[31].state is LedgerState.OPEN
    assert tree.znodes["/ledgers/available/127.0.0.1:4100"].ephemeral
    assert sorted(tree.cookies) == ["127.0.0.1:4100", "127.0.0.1:4101"]
    assert decode_cookie(tree.cookies["127.0.0.1:4101"]).bookie_host == "127.0.0.1:4101"


def test_every_value_encodes_to_the_same_bytes() -> None:
    tree = decode_metadata_dump(SAMPLE.read_bytes())
    for ledger, path in tree.ledger_paths.items():
        assert encode_ledger_metadata(tree.ledgers[ledger]) == tree.znodes[path].data
    for cookie in tree.cookies.values():
        assert encode_cookie(decode_cookie(cookie)) == cookie


def test_reprs_hold_no_secrets() -> None:
    tree = decode_metadata_dump(dump(**{"/l": node(b""), "/l/L0000000004": node(GOOD)}))
    assert "data" not in repr(tree.znodes)
    assert "password" not in repr(tree)


@pytest.mark.parametrize("root", ["", "/ledgers", "/a/b"])
@pytest.mark.parametrize("leaf", ["/L0000000004", "/00/0000/L0004", "/000/0000/0000/0000/L0004"])
@pytest.mark.parametrize("with_root", [True, False])
def test_roots_and_layouts(root: str, leaf: str, with_root: bool) -> None:
    nodes = {
        root + leaf: node(GOOD),
        f"{root}/cookies/b:1": node(b"c"),
        f"{root}/underreplication/x": node(b""),
    }
    if with_root:
        nodes[root or "/"] = node(b"")
    tree = decode_metadata_dump(json.dumps(nodes).encode())
    assert tree.root == root
    assert tree.ledgers == {4: decode_ledger_metadata(GOOD)}
    assert tree.cookies == {"b:1": b"c"}


END = {"kind": "cluster", "complete": True, "time_ms": 5, "nodes": 2, "next_ledger": 9}


def test_the_end_marker_tells_kind_time_and_next_ledger() -> None:
    tree = decode_metadata_dump(dump(**{"/l": node(b""), "/l/INSTANCEID": node(b"id"), "end": END}))
    assert tree.end == DumpEnd(DumpKind.CLUSTER, 5, 2, 9)
    assert (tree.has_root, tree.instance_id, len(tree.znodes)) == (True, "id", 2)


def test_a_dump_without_an_end_marker_has_none() -> None:
    tree = decode_metadata_dump(SAMPLE.read_bytes())
    assert tree.end is None
    assert tree.has_root


@pytest.mark.parametrize(
    "end",
    [
        {**END, "nodes": 3},
        {**END, "nodes": -1},
        {**END, "complete": False},
        {**END, "kind": "part"},
        {**END, "time_ms": "5"},
        {**END, "next_ledger": True},
        {"kind": "cluster"},
        True,
    ],
)
def test_an_end_marker_that_does_not_fit_is_damage(end: object) -> None:
    with pytest.raises(CorruptionError):
        decode_metadata_dump(dump(**{"/l": node(b""), "/l/a": node(b""), "end": end}))


def test_nothing_follows_the_end_marker() -> None:
    with pytest.raises(CorruptionError, match="nothing behind it"):
        decode_metadata_dump(dump(**{"/l": node(b""), "end": END, "/l/a": node(b"")}))


def test_damaged_znode_is_named() -> None:
    data = dump(**{"/l": node(b""), "/l/00/0000/L0007": node(GOOD[:-1])})
    with pytest.raises(CorruptionError) as caught:
        load_metadata_dump(MemoryFileSystem({"zk.json": data}), "zk.json")
    assert str(caught.value).startswith("zk.json: znode /l/00/0000/L0007: ledger metadata at offset 30")


def test_ledger_in_two_places() -> None:
    data = dump(**{"/l": node(b""), "/l/00/0000/L0007": node(GOOD), "/l/L0000000007": node(GOOD)})
    with pytest.raises(CorruptionError) as caught:
        decode_metadata_dump(data)
    assert "/l/00/0000/L0007" in str(caught.value)
    assert "/l/L0000000007" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"/l": 1}',
        b'{"/l": {"data": 1}}',
        b'{"/l": {"data": "?"}}',
        b'{"/l": {"data": "\\u00e9"}}',
        b'{"/l": {"data": "", "version": "1"}}',
        b'{"/l": {"data": "", "version": -1}}',
        b'{"/l": {"data": "", "ephemeral": 1}}',
        b'{"l": {"data": ""}}',
        b'{"/l": {"data": "", "version": ' + b"9" * 5000 + b"}}",
        b'{"/a": {"data": ""}, "/b": {"data": ""}}',
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_metadata_dump(data)


def test_missing_file() -> None:
    with pytest.raises(NotFoundError):
        load_metadata_dump(MemoryFileSystem(), "zk.json")
