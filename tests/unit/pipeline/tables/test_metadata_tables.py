"""Tables of ledger metadata, from a dump and from a store; digests that are known from it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.client.sync import BookKeeperSync
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment, encode_ledger_metadata
from bkctl.errors import CorruptionError, NotFoundError, UsageError
from bkctl.pipeline.tables import ledgers as metadata_tables
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import DigestType, LedgerState
from tests.support.log_builder import MAC, PASSWORD, EntryLogBuilder, entry_body
from tests.support.table_rows import table_rows


def metadata(
    state: LedgerState,
    segments: dict[int, tuple[str, ...]],
    last_entry: int = -1,
    digest: DigestType = DigestType.CRC32C,
    password: bytes = b"",
) -> LedgerMetadata:
    width = len(next(iter(segments.values())))
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=2,
        ensemble_size=width,
        ack_quorum=2,
        length=1000,
        last_entry=last_entry,
        state=state,
        segments=tuple(Segment(first, bookies) for first, bookies in segments.items()),
        digest_type=digest,
        password=password,
        ctime_ms=123,
        custom_metadata=(("application", b"\x00pulsar"),),
    )


def dump(path: Path, ledgers: dict[int, LedgerMetadata]) -> Path:
    tree = {"/ledgers": {"data": "", "version": 0, "ephemeral": False}}
    for ledger, found in ledgers.items():
        data = base64.b64encode(encode_ledger_metadata(found)).decode()
        tree[f"/ledgers/00/0000/L{ledger:04}"] = {"data": data, "version": 3, "ephemeral": False}
    path.write_text(json.dumps(tree))
    return path


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return dump(
        tmp_path / "zk.json",
        {
            1: metadata(LedgerState.CLOSED, {0: ("a", "b", "c"), 10: ("a", "d", "c")}, 24),
            2: metadata(LedgerState.OPEN, {0: ("a", "b")}),
            3: metadata(LedgerState.CLOSED, {0: ("a", "b"), 7: ("c", "d")}, 6),
            4: metadata(LedgerState.CLOSED, {0: ("a", "b")}, -1),
        },
    )


def test_ledgers_have_the_columns_of_the_command_line(three: Path) -> None:
    rows = table_rows("ledgers", [three])
    assert [row["ledger"] for row in rows] == [1, 2, 3, 4]
    first = rows[0]
    assert (first["state"], first["digest"], first["last_entry"], first["version"]) == (
        "CLOSED", "crc32c", 24, 3,
    )  # fmt: skip
    assert first["ensembles"] == [
        {"first_entry": 0, "bookies": ["a", "b", "c"]},
        {"first_entry": 10, "bookies": ["a", "d", "c"]},
    ]
    assert first["custom_metadata"] == [("application", base64.b64encode(b"\x00pulsar").decode())]
    assert "password" not in first
    assert (first["application"], first["topic"]) == ("\x00pulsar", None)


def test_a_ledger_of_pulsars_has_its_topic(tmp_path: Path) -> None:
    found = replace(
        metadata(LedgerState.CLOSED, {0: ("a", "b")}, 6),
        custom_metadata=(
            ("application", b"pulsar"),
            ("component", b"managed-ledger"),
            ("pulsar/managed-ledger", b"tenant/space/persistent/a%2Fb"),
        ),
    )
    (row,) = table_rows("ledgers", [dump(tmp_path / "zk.json", {1: found})])
    assert (row["application"], row["topic"]) == ("pulsar", "persistent://tenant/space/a/b")


def test_fragments_end_where_the_next_begins_and_empty_ones_are_left_out(three: Path) -> None:
    rows = table_rows("fragments", [three])
    found = {
        (row["ledger"], row["first_entry"], row["last_entry"], row["slot"]): row["bookie"] for row in rows
    }
    assert {key: bookie for key, bookie in found.items() if key[0] == 1} == {
        (1, 0, 9, 0): "a", (1, 0, 9, 1): "b", (1, 0, 9, 2): "c",
        (1, 10, 24, 0): "a", (1, 10, 24, 1): "d", (1, 10, 24, 2): "c",
    }  # fmt: skip
    assert [key for key in found if key[0] == 2] == [(2, 0, None, 0), (2, 0, None, 1)]
    assert [key for key in found if key[0] == 3] == [(3, 0, 6, 0), (3, 0, 6, 1)]
    assert not [key for key in found if key[0] == 4]
    assert {row["write_quorum"] for row in rows} == {2}


def test_only_wanted_ledgers_are_read(three: Path) -> None:
    assert [row["ledger"] for row in table_rows("ledgers", [three], TableOptions(ledgers=((2, 3),)))] == [
        2,
        3,
    ]


def test_a_store_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_tables, "_LEDGERS_PER_SPLIT", 2)
    with (
        LocalCluster(1, tmp_path / "c", overrides={"httpServerEnabled": "false"}) as cluster,
        BookKeeperSync(cluster.metadata_uri) as client,
    ):
        for count in range(5):
            with client.create(1, 1, 1) as ledger:
                ledger.append_all([b"x"] * count)
        options = TableOptions(metadata=cluster.metadata_uri)
        assert len(TABLES["ledgers"].plan([], options)) == 3
        rows = table_rows("ledgers", [], options)
        client.delete(rows[0]["ledger"])
        planned = TABLES["fragments"].plan([cluster.metadata_uri], TableOptions())
        client.delete(rows[1]["ledger"])
        left = [
            row["ledger"]
            for split in planned
            for batch in TABLES["fragments"].read(split, ["ledger"], TableOptions())
            for row in batch.to_pylist()
        ]
    assert [row["last_entry"] for row in rows] == [-1, 0, 1, 2, 3]
    assert sorted(set(left)) == [row["ledger"] for row in rows[2:]]


def test_digests_are_known_from_metadata(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    log.add(entry_body(5, 0, b"one", MAC))
    log.add(entry_body(6, 0, b"two"))
    (tmp_path / "1.log").write_bytes(log.roll().data)
    wrong = metadata(LedgerState.OPEN, {0: ("a", "b")}, digest=DigestType.CRC32)
    source = dump(
        tmp_path / "zk.json",
        {5: metadata(LedgerState.OPEN, {0: ("a", "b")}, digest=DigestType.MAC, password=PASSWORD), 6: wrong},
    )
    options = TableOptions(metadata=str(source), damage="rows")
    rows = table_rows("entries", [tmp_path / "1.log"], options, ["ledger", "digest", "digest_ok", "payload"])
    assert rows == [
        {"ledger": 5, "digest": "mac", "digest_ok": True, "payload": b"one"},
        {"ledger": 6, "digest": "crc32", "digest_ok": False, "payload": rows[1]["payload"]},
    ]
    (split,) = TABLES["entries"].plan([str(tmp_path / "1.log")], options)
    assert len(split.known) == 2
    assert base64.b64encode(PASSWORD).decode() not in repr(split)


def test_bad_metadata_is_told_with_its_node(tmp_path: Path) -> None:
    path = tmp_path / "zk.json"
    path.write_text(
        json.dumps({"/ledgers/00/0000/L0001": {"data": "AAAA", "version": 0, "ephemeral": False}})
    )
    with pytest.raises(CorruptionError, match="L0001"):
        table_rows("ledgers", [path])
    with pytest.raises(NotFoundError):
        table_rows("ledgers", [tmp_path / "none.json"])
    with pytest.raises(UsageError, match="metadata"):
        table_rows("ledgers", [])
