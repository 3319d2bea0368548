"""``bkctl pulsar orphans``: an orphan only where everything speaks for it, from nodes as brokers write them.

The messages are made by protobuf's own runtime out of Pulsar's declarations, of which the reader has no copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.codec.pulsar_metadata import decode_managed_cursor, decode_managed_ledger, decode_schema_locator
from bkctl.errors import CorruptionError
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import LedgerState
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

OLD_MS = 1_700_000_000_000
_TYPES = {"int64": 3, "int32": 5, "bool": 8, "string": 9, "message": 11, "bytes": 12}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
#: Of MLDataFormats.proto and SchemaStorageFormat.proto, the fields that brokers write.
_DECLARED = """
OffloadContext: optional int64 uidMsb 1, optional int64 uidLsb 2, optional bool complete 3, optional bool bookkeeperDeleted 4
LedgerInfo: required int64 ledgerId 1, optional int64 entries 2, optional int64 size 3, optional int64 timestamp 4, optional OffloadContext offloadContext 5
ManagedLedgerInfo: repeated LedgerInfo ledgerInfo 1, optional NestedPositionInfo terminatedPosition 2
NestedPositionInfo: required int64 ledgerId 1, required int64 entryId 2
LongProperty: required string name 1, required int64 value 2
ManagedCursorInfo: required int64 cursorsLedgerId 1, optional int64 markDeleteLedgerId 2, optional int64 markDeleteEntryId 3, repeated LongProperty properties 5, optional int64 lastActive 6
PositionInfo: required int64 ledgerId 1, required int64 entryId 2
IndexEntry: required int64 version 1, required PositionInfo position 2, required bytes hash 3
SchemaLocator: required IndexEntry info 1, repeated IndexEntry index 2
"""  # noqa: E501


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="pulsar_test.proto", package="t", syntax="proto2")
    for line in _DECLARED.strip().splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for each in fields.split(", "):
            label, kind, field, number = each.split()
            made = message.field.add(name=field, number=int(number), label=_LABELS[label])
            made.type = _TYPES.get(kind, _TYPES["message"])
            if kind not in _TYPES:
                made.type_name = f".t.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles(["pulsar_test.proto"], pool)


PB = {name.removeprefix("t."): kind for name, kind in _classes().items()}


def managed_ledger(*ledgers: int) -> bytes:
    made = PB["ManagedLedgerInfo"]()
    for ledger in ledgers:
        one = made.ledgerInfo.add(ledgerId=ledger, entries=50_000, size=1 << 33, timestamp=OLD_MS)
        one.offloadContext.complete = True
        one.offloadContext.uidMsb = -(1 << 62)
    return bytes(made.SerializeToString())


def cursor(ledger: int, compacted: int | None = None) -> bytes:
    made = PB["ManagedCursorInfo"](cursorsLedgerId=ledger, markDeleteLedgerId=7, markDeleteEntryId=-1)
    made.properties.add(name="other", value=-5)
    if compacted is not None:
        made.properties.add(name="CompactedTopicLedger", value=compacted)
    return bytes(made.SerializeToString())


def schema(*ledgers: int) -> bytes:
    def entry(ledger: int) -> Any:
        position = PB["PositionInfo"](ledgerId=ledger, entryId=0)
        return PB["IndexEntry"](version=0, position=position, hash=b"h" * 32)

    made = PB["SchemaLocator"](info=entry(ledgers[-1]), index=[entry(ledger) for ledger in ledgers])
    return bytes(made.SerializeToString())


def test_the_ledgers_that_brokers_name() -> None:
    assert decode_managed_ledger(b"") == []
    assert decode_managed_ledger(managed_ledger(1, 2**40, 7)) == [1, 2**40, 7]
    assert decode_managed_cursor(cursor(12)) == [12]
    assert decode_managed_cursor(cursor(-1)) == []
    assert decode_managed_cursor(cursor(12, compacted=2**33)) == [12, 2**33]
    assert decode_schema_locator(schema(4, 5)) == [5, 4, 5]


def test_what_is_cut_or_no_protobuf_is_refused_or_names_no_others() -> None:
    for decode, whole, ledgers in (
        (decode_managed_ledger, managed_ledger(1, 2), {1, 2}),
        (decode_managed_cursor, cursor(12, 13), {12, 13}),
        (decode_schema_locator, schema(4, 5), {4, 5}),
    ):
        for size in range(len(whole)):
            try:
                assert set(decode(whole[:size])) <= ledgers
            except CorruptionError:
                continue
        for data in (b"ledgerInfo { ledgerId: 3 }", b"\x47\x78\0\0\0\x02\x08\x02", b"\x0a\x05", b"\xff" * 12):
            with pytest.raises(CorruptionError):
                decode(data)


def test_a_required_field_that_is_missing_is_refused() -> None:
    for decode, data in (
        (decode_managed_ledger, b"\x0a\x02\x10\x05"),
        (decode_managed_ledger, b"\x08\x05"),
        (decode_managed_cursor, b""),
        (decode_managed_cursor, b"\x10\x05"),
        (decode_schema_locator, b""),
        (decode_schema_locator, b"\x0a\x02\x08\x01"),
    ):
        with pytest.raises(CorruptionError):
            decode(data)


class Cluster:
    """A metadata store with nodes of Pulsar's and ledgers."""

    def __init__(self, place: Path) -> None:
        self.uri = f"embedded://{place}/metadata.db"
        store = open_metadata_store(self.uri)
        assert isinstance(store, TreeMetadataStore)
        self.store = store
        store.layout.initialise_cluster()

    def node(self, path: str, data: bytes = b"") -> None:
        """Make a node, and the empty ones above it."""
        parts = path.strip("/").split("/")
        for count in range(1, len(parts)):
            above = "/" + "/".join(parts[:count])
            if self.store._tree.get(above) is None:
                self.store._tree.create(above)
        self.store._tree.create(path, data)

    def ledger(
        self, number: int, *pairs: tuple[str, bytes], ctime_ms: int | None = OLD_MS, **of: Any
    ) -> None:
        metadata = LedgerMetadata(
            metadata_version=3, write_quorum=2, ensemble_size=2, ack_quorum=2, length=500, last_entry=9,
            state=LedgerState.CLOSED, segments=(Segment(0, ("b1:1", "b2:1")),), password=b"",
            ctime_ms=ctime_ms, custom_metadata=pairs, **of,
        )  # fmt: skip
        self.store.ledgers.create_ledger(number, metadata)


def of_topic(name: str, *more: tuple[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    kind = (("application", b"pulsar"), ("component", b"managed-ledger"))
    return (*kind, ("pulsar/managed-ledger", name.encode()), *more)


ORDERS = "shop/eu/persistent/orders"
TOPIC = f"/managed-ledgers/{ORDERS}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    # Nodes of a test are as young as the test.
    later_s = time.time() + 40 * 86_400
    monkeypatch.setattr("bkctl.commands.pulsar.time.time", lambda: later_s)
    made.node(TOPIC, managed_ledger(1, 2))
    made.node(f"{TOPIC}/sub", cursor(3))
    made.node("/schemas/shop/eu/orders", schema(4))
    made.ledger(1, *of_topic(ORDERS))
    made.ledger(3, *of_topic(ORDERS, ("pulsar/cursor", b"sub")))
    named = (("application", b"pulsar"), ("component", b"schema"), ("pulsar/schemaId", b"shop/eu/orders"))
    made.ledger(4, *named)
    made.ledger(90)
    made.ledger(91, ("application", b"distributedlog"))
    with made.store:
        yield made


def orphans(run_cli: Run, cluster: Cluster, *words: str) -> tuple[int, dict[int, tuple[str, str]], str]:
    found = run_cli("pulsar", "orphans", "--metadata", cluster.uri, *words, "-o", "ndjson")
    rows = {row["ledger"]: (row["standing"], row["why"] or "") for row in from_ndjson(found.stdout)}
    return found.exit_code, rows, found.stderr


def test_where_all_is_named_there_is_none(run_cli: Run, cluster: Cluster) -> None:
    assert orphans(run_cli, cluster)[:2] == (0, {})
    _, rows, said = orphans(run_cli, cluster, "--all")
    assert {ledger: standing for ledger, (standing, _) in rows.items()} == dict.fromkeys((1, 3, 4), "named")
    assert "3 ledgers of Pulsar's: 3 named, 0 orphan, 0 unknown" in said


def test_orphans_of_each_kind(run_cli: Run, cluster: Cluster) -> None:
    cluster.ledger(10, *of_topic(ORDERS))
    cluster.ledger(11, *of_topic("shop/eu/persistent/removed"))
    cluster.ledger(12, *of_topic(ORDERS, ("pulsar/cursor", b"old")))
    cluster.ledger(
        13, ("application", b"pulsar"), ("component", b"schema"), ("pulsar/schemaId", b"shop/eu/x")
    )
    code, rows, _ = orphans(run_cli, cluster)
    assert (code, rows) == (1, dict.fromkeys((10, 11, 12, 13), ("orphan", "")))
    [row] = from_ndjson(
        run_cli("pulsar", "orphans", "--metadata", cluster.uri, "-o", "ndjson", "--limit", "1").stdout
    )
    assert (row["bytes"], row["topic"], row["state"]) == (1000, "persistent://shop/eu/orders", "closed")
    assert cluster.store.ledgers.ledger_exists(10), "nothing is deleted"


def test_what_cannot_be_proved_is_unknown(run_cli: Run, cluster: Cluster) -> None:
    cluster.ledger(20, ("application", b"pulsar"), ("component", b"compacted-ledger"),
                   ("pulsar/compactedTopic", b"persistent://shop/eu/orders"))  # fmt: skip
    cluster.ledger(21, *of_topic("other/ns/persistent/t"))
    cluster.ledger(22, *of_topic("my-ledger"))
    cluster.ledger(23, ("application", b"pulsar"), ("component", b"delayed-index-bucket"))
    cluster.ledger(24, *of_topic(ORDERS), ctime_ms=int((time.time() - 43_200) * 1000))
    code, rows, _ = orphans(run_cli, cluster)
    assert code == 0
    assert {standing for standing, _ in rows.values()} == {"unknown"}
    for ledger, why in (
        (20, "compacted-ledger"),
        (21, "other/ns"),
        (22, "which topic"),
        (23, "bucket"),
        (24, "young"),
    ):
        assert why in rows[ledger][1]
    code, rows, _ = orphans(run_cli, cluster, "--older-than", "1h")
    assert (code, rows[24]) == (1, ("orphan", ""))


def test_the_node_counts_where_metadata_lack_the_time(run_cli: Run, cluster: Cluster) -> None:
    cluster.ledger(10, *of_topic(ORDERS), ctime_ms=None)
    assert orphans(run_cli, cluster)[1] == {10: ("orphan", "")}
    assert "young" in orphans(run_cli, cluster, "--older-than", "60d")[1][10][1]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/managed-ledgers/shop/eu/persistent/bad", b"ledgerInfo { ledgerId: 10 }"),
        ("/managed-ledgers/shop/eu/persistent/packed", b"\x47\x78\0\0\0\x04\x08\x02\x10\x0a"),
        (f"{TOPIC}/halved", b"\x10\x05"),
        (f"{TOPIC}/sub/deeper", b"\x08\x05"),
        ("/managed-ledgers/shop/eu/stray", b"\x0a\x02\x08\x0a"),
        ("/schemas/shop/eu/bad", b"\xff"),
    ],
)
def test_one_node_that_does_not_decode_makes_all_unknown(
    run_cli: Run, cluster: Cluster, path: str, data: bytes
) -> None:
    cluster.ledger(10, *of_topic(ORDERS))
    cluster.node(path, data)
    code, rows, said = orphans(run_cli, cluster)
    assert (code, rows[10][0]) == (3, "unknown")
    assert path in said


def test_compacted_topics_that_a_cursor_names(run_cli: Run, cluster: Cluster) -> None:
    cluster.node(f"{TOPIC}/__compaction", cursor(-1, compacted=20))
    cluster.ledger(20, ("application", b"pulsar"), ("component", b"compacted-ledger"))
    assert orphans(run_cli, cluster)[:2] == (0, {})


def test_topics_of_before_pulsar_2(run_cli: Run, cluster: Cluster) -> None:
    cluster.node("/managed-ledgers/t/c/ns/persistent/x", managed_ledger(30))
    cluster.node("/managed-ledgers/t/c/ns/persistent/x/sub", cursor(31))
    for number in (30, 31, 32):
        cluster.ledger(number, *of_topic("t/c/ns/persistent/x"))
    assert orphans(run_cli, cluster)[1] == {32: ("orphan", "")}


def test_pulsars_root_is_where_it_is_said_to_be(run_cli: Run, cluster: Cluster) -> None:
    code, _, said = orphans(run_cli, cluster, "--root", "/pulsar")
    assert code == 6
    assert "--root" in said
    cluster.node("/pulsar/managed-ledgers/other/ns/persistent/t", managed_ledger(21))
    cluster.ledger(21, *of_topic("other/ns/persistent/t"))
    assert orphans(run_cli, cluster, "--root", "/", "--root", "/pulsar")[:2] == (0, {})
    assert orphans(run_cli, cluster)[1][21][0] == "unknown"


def test_without_schemas_none_of_them_is_an_orphan(run_cli: Run, cluster: Cluster) -> None:
    for path in ("/schemas/shop/eu/orders", "/schemas/shop/eu", "/schemas/shop", "/schemas"):
        cluster.store._tree.delete(path)
    assert orphans(run_cli, cluster)[1][4] == ("unknown", "there is no node of schemas")
