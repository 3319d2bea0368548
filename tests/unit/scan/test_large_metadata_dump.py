"""Dumps of very many ledgers: what is held of them, and that nothing of them is cut short."""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.ops.create import NewLedger
from bkctl.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from bkctl.codec.ledger_path import LedgerLayout, ledger_path
from bkctl.errors import CorruptionError
from bkctl.scan import json_members, metadata_dump
from bkctl.scan.json_members import members, parse_member
from bkctl.scan.metadata_dump import MetadataDump, decode_metadata_dump, load_metadata_dump
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem

METADATA = NewLedger(3, 3, 2, DigestType.CRC32C, b"password")
ENSEMBLE = ("10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181")
LEDGERS = 3000

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


class File:
    """A file in memory that tells what was read of it, and whether it is open."""

    path = "zk.json"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[int] = []
        self.closed = False

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        assert not self.closed
        self.reads.append(length)
        return self.data[offset : offset + length]

    def close(self) -> None:
        self.closed = True


class Files(MemoryFileSystem):
    """Opens one file."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.file = file

    def open(self, path: str) -> Any:
        return self.file


def node(data: bytes, version: int = 0) -> dict[str, object]:
    return {"data": base64.b64encode(data).decode(), "version": version, "ephemeral": False}


def nodes_of(ledgers: range) -> dict[str, dict[str, object]]:
    """A cluster as it is dumped, some of its ledgers with ids too long for the first tree."""
    nodes = {"/l": node(b""), "/l/INSTANCEID": node(b"id"), "/l/cookies/b:1": node(b"cookie")}
    for ledger in ledgers:
        data = encode_ledger_metadata(METADATA.metadata(ENSEMBLE))
        nodes["/l" + ledger_path(ledger, LedgerLayout.HIERARCHICAL)] = node(data, ledger % 7)
    return nodes


def with_end(nodes: dict[str, dict[str, object]]) -> bytes:
    end = {"kind": "cluster", "complete": True, "time_ms": 1, "nodes": len(nodes), "next_ledger": 2**40}
    return json.dumps({**nodes, "end": end}).encode()


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(json_members, "WINDOW_BYTES", 700)
    return


@given(
    st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=6),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
    st.integers(1, 40),
)
def test_members_are_those_of_the_object(
    value: dict[str, object], ascii_only: bool, indent: int | str | None, window: int
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_members, "WINDOW_BYTES", window)
        found = list(members(File(data), "it"))
        assert {member.name: member.value for member in found} == value
        for member in found:
            piece = data[member.offset : member.offset + member.length]
            if ascii_only:
                assert parse_member(piece) == (member.name, member.value)
        for cut in range(len(data)):
            with pytest.raises(CorruptionError):
                list(members(File(data[:cut]), "it"))
        with pytest.raises(CorruptionError):
            list(members(File(data + b"x"), "it"))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{,}", b'{"a" 1}', b'{"a": 1 "b": 2}', b'{"a": 1,}', b"{1: 2}", b'{"a": 1}]'],
)
def test_what_is_no_object_is_damage_that_tells_where(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="it") as caught:
        list(members(File(data), "it"))
    assert caught.value.offset is None or caught.value.offset <= len(data)


def test_a_member_without_end_is_not_looked_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_members, "MEMBER_CHARS_MAX", 5000)
    file = File(b'{"a": "' + b"x" * 1_000_000)
    with pytest.raises(CorruptionError):
        list(members(file, "it"))
    assert sum(file.reads) < 10_000


def check_equals(dump: MetadataDump, nodes: dict[str, dict[str, object]]) -> None:
    """The dump is what decoding all of it at once gives."""
    data = {path: base64.b64decode(str(value["data"])) for path, value in nodes.items()}
    ledgers = {path: content for path, content in data.items() if "/L" in path}
    assert list(dump.ledgers) == sorted(dump.ledgers) == list(dump.ledger_paths)
    assert sorted(dump.ledger_paths.values()) == sorted(ledgers)
    for ledger, path in dump.ledger_paths.items():
        assert dump.ledgers[ledger] == decode_ledger_metadata(ledgers[path])
        assert "/l" + ledger_path(ledger, LedgerLayout.HIERARCHICAL) == path
    assert {path: found.data for path, found in dump.znodes.items()} == data
    assert {path: found.version for path, found in dump.znodes.items()} == {
        path: value["version"] for path, value in nodes.items()
    }
    assert list(dump.ledgers.with_versions()) == [
        (ledger, dump.ledgers[ledger], dump.znodes[path].version)
        for ledger, path in dump.ledger_paths.items()
    ]
    assert len(dump.znodes) == len(nodes)
    assert dump.cookies == {"b:1": b"cookie"}
    assert (dump.root, dump.instance_id, dump.has_root) == ("/l", "id", True)


def test_a_dump_read_in_windows_is_the_whole_dump() -> None:
    nodes = nodes_of(range(2**31 - 40, 2**31 + 60)) | nodes_of(range(10))
    file = File(with_end(nodes))
    check_equals(load_metadata_dump(Files(file), "zk.json"), nodes)
    assert max(file.reads) <= 700
    # In the opposite order, and with a node that is larger than a window.
    turned = dict(reversed([*nodes.items(), ("/l/big", node(b"b" * 5000))]))
    check_equals(decode_metadata_dump(with_end(turned)), turned)


def test_of_a_ledger_its_id_and_its_place_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_members, "WINDOW_BYTES", 1 << 16)
    file = File(with_end(nodes_of(range(LEDGERS))))
    held = []
    for data in (with_end(nodes_of(range(10))), file.data):
        file.data = data
        gc.collect()
        tracemalloc.start()
        dump = load_metadata_dump(Files(file), "zk.json")
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert len(dump.ledgers) == LEDGERS
    assert (held[1] - held[0]) / LEDGERS < 50  # it was 1.07 KiB


def test_the_file_is_open_as_long_as_the_dump_is_used() -> None:
    file = File(with_end(nodes_of(range(10))))
    dump = load_metadata_dump(Files(file), "zk.json")
    ledgers = dump.ledgers
    del dump
    gc.collect()
    assert ledgers[3] == METADATA.metadata(ENSEMBLE)
    assert 10 not in ledgers
    assert ledgers.get(11) is None
    del ledgers
    gc.collect()
    assert file.closed
    broken = File(b"{")
    with pytest.raises(CorruptionError, match=r"zk\.json"):
        load_metadata_dump(Files(broken), "zk.json")
    assert broken.closed


def test_a_file_that_is_changed_since_is_an_error_and_no_missing_ledger() -> None:
    file = File(with_end(nodes_of(range(10))))
    dump = load_metadata_dump(Files(file), "zk.json")
    assert 5 in dump.ledgers
    for changed in (file.data[50:], file.data[:500], b"", file.data.replace(b"L0005", b"L0015")):
        file.data = changed
        with pytest.raises(CorruptionError, match="as when it was read"):
            dump.ledgers.get(5)


def test_a_dump_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_dump, "DUMP_BYTES_MAX", 10)
    file = File(with_end(nodes_of(range(10))))
    with pytest.raises(CorruptionError, match="at most 10 bytes"):
        load_metadata_dump(Files(file), "zk.json")
    assert (file.reads, file.closed) == ([], True)


def test_ledgers_of_another_root_are_nodes_like_others() -> None:
    nodes = nodes_of(range(3))
    nodes["/l/elsewhere/00/0000/L0007"] = node(b"no metadata")
    dump = decode_metadata_dump(with_end(nodes))
    assert list(dump.ledgers) == [0, 1, 2]
    assert dump.znodes["/l/elsewhere/00/0000/L0007"].data == b"no metadata"
    assert "/l/elsewhere/00/0000/L0008" not in dump.znodes
    assert len(dump.znodes) == len(nodes)
