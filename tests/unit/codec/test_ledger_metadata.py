from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.ledger_metadata import (
    METADATA_BYTES_MAX,
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.errors import CorruptionError, UsageError
from bkctl.types import DigestType, LedgerState

JAVA = Path(__file__).parents[2] / "data" / "metadata" / "java-serialized.txt"
SAMPLES = dict(line.split("\t") for line in JAVA.read_text().splitlines())

KEY = b"BookieMetadataFormatVersion\t"
V3 = "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a"
B1, B2, B3 = "127.0.0.1:2311", "127.0.0.1:2312", "127.0.0.1:2313"

CLOSED = LedgerMetadata(
    metadata_version=3,
    write_quorum=2,
    ensemble_size=3,
    ack_quorum=2,
    length=1000,
    last_entry=9,
    state=LedgerState.CLOSED,
    segments=(Segment(0, (B1, B3, B2)),),
    digest_type=DigestType.CRC32C,
    password=b"pw",
    custom_metadata=(("application", b"pulsar"), ("component", b"managed-ledger")),
    c_token=0,
)
OPEN = LedgerMetadata(
    metadata_version=3,
    write_quorum=3,
    ensemble_size=3,
    ack_quorum=2,
    length=0,
    last_entry=-1,
    state=LedgerState.OPEN,
    segments=(Segment(0, (B2, B1, B3)),),
    digest_type=DigestType.MAC,
    password=b"pw",
    c_token=3405659085527294591,
)
ENSEMBLE_213 = (
    "32320a0e3132372e302e302e313a323331320a0e3132372e302e302e313a323331310a0e3132372e302e302e313a323331331000"
)
WORKED = {
    "a": (
        "7d0802100318e8072009280332320a0e3132372e302e302e313a323331310a0e3132372e302e302e313a323331330a0e3132372e"
        "302e302e313a32333132100038034202707748025a150a0b6170706c69636174696f6e120670756c7361725a1b0a09636f6d706f"
        "6e656e74120e6d616e616765642d6c65646765726000",
        CLOSED,
    ),
    "b": (
        "5908031003180020ffffffffffffffffff012801" + ENSEMBLE_213 + "380242027077480260ffc4be97cf9cd5a12f",
        OPEN,
    ),
    "c": (
        "5108031003180020ffffffffffffffffff012802" + ENSEMBLE_213 + "38024202707748026000",
        replace(OPEN, state=LedgerState.IN_RECOVERY, c_token=0),
    ),
    "d": (
        "490803100318fa0120042803" + ENSEMBLE_213 + "38024202707748026000",
        replace(OPEN, state=LedgerState.CLOSED, c_token=0, length=250, last_entry=4),
    ),
    "e": (
        "3d08021002181e2002280332220a0e3132372e302e302e313a323331330a0e3132372e302e302e313a323331321000380142004801"
        "50c388acef9f346000",
        LedgerMetadata(
            metadata_version=3,
            write_quorum=2,
            ensemble_size=2,
            ack_quorum=1,
            length=30,
            last_entry=2,
            state=LedgerState.CLOSED,
            segments=(Segment(0, (B3, B2)),),
            digest_type=DigestType.CRC32,
            password=b"",
            ctime_ms=1795261400131,
            c_token=0,
        ),
    ),
    "f": (
        "270801100118022000280332110a0d6d792d426f6f6b69655f352e78100038034202707748016000",
        LedgerMetadata(
            metadata_version=3,
            write_quorum=1,
            ensemble_size=1,
            ack_quorum=1,
            length=2,
            last_entry=0,
            state=LedgerState.CLOSED,
            segments=(Segment(0, ("my-Bookie_5.x",)),),
            digest_type=DigestType.CRC32C,
            password=b"pw",
            c_token=0,
        ),
    ),
}
TEXT = rb"""quorumSize: 2
ensembleSize: 3
length: 40
lastEntryId: 3
state: CLOSED
segment {
  ensembleMember: "127.0.0.1:2312"
  ensembleMember: "127.0.0.1:2313"
  ensembleMember: "127.0.0.1:2311"
  firstEntryId: 0
}
digestType: CRC32C
password: "sec\"ret"
ackQuorumSize: 2
ctime: 1795261430556
customMetadata {
  key: "k"
  value: "v\"\\x"
}
"""
TEXT_VALUES = LedgerMetadata(
    metadata_version=2,
    write_quorum=2,
    ensemble_size=3,
    ack_quorum=2,
    length=40,
    last_entry=3,
    state=LedgerState.CLOSED,
    segments=(Segment(0, (B2, B3, B1)),),
    digest_type=DigestType.CRC32C,
    password=b'sec"ret',
    ctime_ms=1795261430556,
    custom_metadata=(("k", b'v"\\x'),),
)
LINES = b"2\n3\n40\n0\tb1:3181\tb2:3181\tb3:3181\n"
LINES_VALUES = LedgerMetadata(
    metadata_version=1,
    write_quorum=2,
    ensemble_size=3,
    ack_quorum=2,
    length=40,
    last_entry=-1,
    state=LedgerState.OPEN,
    segments=(Segment(0, ("b1:3181", "b2:3181", "b3:3181")),),
)


def v3(body: bytes) -> bytes:
    assert len(body) < 128
    return bytes.fromhex(V3) + bytes([len(body)]) + body


MINIMAL = bytes.fromhex("08021002180020002803")


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples_of_format_3(name: str) -> None:
    text, values = WORKED[name]
    data = bytes.fromhex(V3 + text)
    assert decode_ledger_metadata(data) == values
    assert encode_ledger_metadata(values) == data


def test_worked_example_of_format_2() -> None:
    data = KEY + b"2\n" + TEXT
    assert decode_ledger_metadata(data) == TEXT_VALUES
    assert encode_ledger_metadata(TEXT_VALUES) == data


@pytest.mark.parametrize(
    ("last_line", "values"),
    [
        (b"", LINES_VALUES),
        (b"3\tCLOSED", replace(LINES_VALUES, state=LedgerState.CLOSED, last_entry=3)),
        (b"-102\tCLOSED", replace(LINES_VALUES, state=LedgerState.IN_RECOVERY)),
        (b"-1\tCLOSED", replace(LINES_VALUES, state=LedgerState.CLOSED)),
    ],
)
def test_worked_examples_of_format_1(last_line: bytes, values: LedgerMetadata) -> None:
    data = KEY + b"1\n" + LINES + last_line
    assert decode_ledger_metadata(data) == values
    assert encode_ledger_metadata(values) == data


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "cookie"])
def test_what_java_serialized(name: str) -> None:
    version, state = name.split()
    data = bytes.fromhex(SAMPLES[name])
    values = decode_ledger_metadata(data)
    assert (values.metadata_version, values.state) == (int(version), LedgerState(state))
    assert [segment.first_entry for segment in values.segments] == [0, 5]
    if values.metadata_version > 1:
        assert values.password == bytes(range(256))
        assert values.custom_metadata == (("ké\"'", bytes([0, 7, 11, 34, 39, 92, 127, 200])),)
    assert values.c_token == (42 if values.metadata_version == 3 else None)
    assert encode_ledger_metadata(values) == data


@pytest.mark.parametrize(
    "body",
    [
        MINIMAL,  # nothing optional but lastEntryId
        bytes.fromhex("080210021800" + "2801"),  # no lastEntryId
        MINIMAL + bytes.fromhex("4802"),  # ack quorum, though it is the default
        MINIMAL + bytes.fromhex("4200" + "48015000" + "6000"),  # explicit zeros, no digest type
        MINIMAL + bytes.fromhex("7801" + "82010161"),  # unknown fields 15 and 16
        MINIMAL + bytes.fromhex("3809"),  # a digest type from the future
        bytes.fromhex("08021002180020002803" + "32080a016210001a0178"),  # unknown field in a segment
    ],
)
def test_presence_and_unknown_fields_survive(body: bytes) -> None:
    data = v3(body)
    assert encode_ledger_metadata(decode_ledger_metadata(data)) == data


def test_absent_ack_quorum_is_the_write_quorum() -> None:
    values = decode_ledger_metadata(v3(MINIMAL))
    assert (values.ack_quorum, values.ack_quorum_stored) == (2, False)
    assert decode_ledger_metadata(encode_ledger_metadata(replace(values, ack_quorum=1))).ack_quorum == 1


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(b"\n", b" "),
        TEXT.replace(b"\n", b" ; ").replace(b"{ ;", b"{").replace(b"} ;", b"}"),
        TEXT.replace(b"segment {", b"segment: <", 1).replace(b"}\ndigest", b">\ndigest"),
        TEXT.replace(b"state: CLOSED", b"state: 3") + b"newField: 1\n",
        TEXT.replace(b'"sec\\"ret"', b"'sec' \"\\x22r\\145t\"") + b"# end",
    ],
)
def test_other_spellings_of_format_2(text: bytes) -> None:
    assert decode_ledger_metadata(KEY + b"2\n" + text) == TEXT_VALUES


@pytest.mark.parametrize(
    "data",
    [
        b"",
        KEY,
        KEY + b"3",
        KEY + b"3\n",
        KEY + b"4\n",
        KEY + b"0\n",
        KEY + b"-1\n",
        KEY + b"99999999999\n",
        b"x" + KEY,
        KEY + b"1\r\n" + LINES,
        v3(MINIMAL) + b"x",
        v3(MINIMAL)[:-1],
        v3(MINIMAL[:-2]),  # no state
        v3(MINIMAL[:-1] + b"\x09"),  # state 9
        v3(bytes.fromhex("0802100218002803")),  # closed without lastEntryId
        v3(MINIMAL + bytes.fromhex("32030a0162")),  # segment without firstEntryId
        v3(MINIMAL + bytes.fromhex("32050a01ff1000")),  # bookie id that is no UTF-8
        v3(MINIMAL + b"\x0b" * 100),  # groups without end
        v3(MINIMAL + b"\xff"),
        bytes.fromhex(V3) + b"\xff" * 11,
        KEY + b"2\n",
        KEY + b"2\n" + TEXT.replace(b"quorumSize: 2\n", b"", 1),
        KEY + b"2\n" + TEXT.replace(b"lastEntryId: 3\n", b""),
        KEY + b"2\n" + TEXT.replace(b"  firstEntryId: 0\n", b""),
        KEY + b"2\n" + TEXT.replace(b"length: 40", b"length: 99999999999999999999"),
        KEY + b"1\n",
        KEY + b"1\n2\n3\n",
        KEY + b"1\n 2\n3\n40\n",
        KEY + b"1\n2147483648\n3\n40\n",
        KEY + b"1\n2\n3\n99999999999999999999\n",
        KEY + b"1\n" + LINES + b"\n",
        KEY + b"1\n" + LINES + b"5\n",
        KEY + b"1\n" + LINES + b"5\t\n",
        KEY + b"1\n" + LINES + b"5\tb\xff\n",
        KEY + b"1\n" + LINES + b"3\tCLOSED\nrest",
        KEY + b"1\n" + b" " * METADATA_BYTES_MAX,
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_ledger_metadata(data)


def test_offset_of_a_line() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_ledger_metadata(KEY + b"1\n" + LINES + b"x\tb\n")
    assert caught.value.offset == len(KEY + b"1\n" + LINES)


@pytest.mark.parametrize(
    "change",
    [
        {"ack_quorum": 1},
        {"digest_type": DigestType.MAC},
        {"password": b""},
        {"ctime_ms": 0},
        {"custom_metadata": (("a", b""),)},
        {"unknown_fields": b"\x78\x01"},
        {"last_entry": 5},
        {"state": LedgerState.CLOSED, "last_entry": -102},
        {"length": 2**63},
        {"segments": (Segment(0, ()),)},
        {"segments": (Segment(0, ("a\tb",)),)},
        {"segments": (Segment(0, ("CLOSED",)),)},
        {"segments": (Segment(0, ("\ud800",)),)},
    ],
)
def test_format_1_refuses_what_it_has_no_place_for(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        encode_ledger_metadata(replace(LINES_VALUES, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_values_that_do_not_fit(version: int) -> None:
    values = replace(CLOSED, metadata_version=version)
    for wrong in (
        replace(values, length=2**63),
        replace(values, write_quorum=2**31),
        replace(values, segments=(Segment(0, ("\ud800",)),)),
    ):
        with pytest.raises(UsageError):
            encode_ledger_metadata(wrong)


def test_format_2_refuses_unknown_fields_and_there_is_no_format_4() -> None:
    with pytest.raises(UsageError):
        encode_ledger_metadata(replace(TEXT_VALUES, unknown_fields=b"\x78\x01"))
    with pytest.raises(UsageError):
        encode_ledger_metadata(replace(TEXT_VALUES, metadata_version=4))


def test_password_is_not_in_the_repr() -> None:
    assert "password" not in repr(replace(CLOSED, password=b"sesame"))
    assert "sesame" not in repr(replace(CLOSED, password=b"sesame"))
