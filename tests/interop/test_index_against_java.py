"""Index rows and files: what the two kinds of storage of BookKeeper read and write, and what we do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.codec import entry_log_metadata, file_info, ledger_data, location
from bkctl.codec.ledger_path import ledger_path
from bkctl.errors import CorruptionError
from bkctl.kvstore.rocksdb import open_read_only
from tests.support.java_bookkeeper import (
    JavaDriver,
    JavaError,
    copy_directory,
    sample_directory,
    start_driver,
)

pytestmark = pytest.mark.interop

DB_SAMPLES = ["a/l", "a18/l", "b/l", "d/l", "g/l", "m/i1", "m/i2", "r/l", "s/l"]
IDX_SAMPLES = ["i/l", "i0/l", "pl/l", "v4/l"]
LEDGER_IDS = [0, 5, 255, 256, 0xA0B, 0x1234567, 2**31 - 2, 2**31 - 1, 2**31, 10**10, 2**63 - 2]
KEY = bytes(range(20))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


# --- DbLedgerStorage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", DB_SAMPLES)
def test_a_database_of_java_has_the_same_rows_for_us(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    current = copy_directory(sample_directory(sample, corpora), tmp_path / "l") / "current"
    for name in ("locations", "ledgers", "metadata-cache"):
        if (current / name).is_dir():
            assert our_rows(current / name) == java.rocksdb_rows(current, name)


@pytest.mark.parametrize("sample", DB_SAMPLES)
def test_locations_mean_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    current = copy_directory(sample_directory(sample, corpora), tmp_path / "l") / "current"
    rows = our_rows(current / "locations")
    columns = location.decode_rows(rows)
    ours = {
        (ledger, entry): (log_id, offset)
        for ledger, entry, log_id, offset in zip(
            columns.ledgers, columns.entries, columns.log_ids, columns.offsets, strict=True
        )
    }
    assert ours == java.db_locations(current, *sorted(set(columns.ledgers)))
    assert rows == [
        (location.encode_key(*ids), location.encode_value(location.Location(*place)))
        for ids, place in ours.items()
    ]


@pytest.mark.parametrize("sample", DB_SAMPLES)
def test_ledgers_mean_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    current = copy_directory(sample_directory(sample, corpora), tmp_path / "l") / "current"
    theirs = java.db_ledgers(current)
    seen = set()
    for key, value in our_rows(current / "ledgers"):
        ledger, _ = ledger_data.decode_ledger_key(key)
        if ledger == ledger_data.FLAGS_ID:
            assert ledger_data.encode_flags(ledger_data.decode_flags(value)) == value
            continue
        data = ledger_data.decode_ledger_data(value)
        assert ledger_data.encode_ledger_data(data) == value == java.ledger_data(value)
        lac = None if data.explicit_lac is None else data.explicit_lac.hex()
        ours = (data.fenced, data.master_key.hex(), lac, bool(data.limbo))
        their = theirs[ledger]
        assert ours == (their["fenced"], their["master_key"], their["explicit_lac"], their["limbo"])
        seen.add(ledger)
    assert seen == set(theirs)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("limbo", [None, False, True])
@pytest.mark.parametrize("lac", [None, b"", bytes(36)])
def test_java_serializes_a_ledgers_row_as_we_do(
    java: JavaDriver, fenced: bool, limbo: bool | None, lac: bytes | None
) -> None:
    for key in (b"", KEY, bytes(200)):
        value = ledger_data.encode_ledger_data(ledger_data.LedgerData(fenced, key, lac, limbo))
        assert java.ledger_data(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0801",
        "08011000",
        "08011000 1a05 01",
        "0801 1000 1a00 ff",
        "0801 1000 1a00 07",
        "0801 1000 1a00 0a",
    ],
)
def test_java_and_we_refuse_the_same_ledgers_rows(java: JavaDriver, value: str) -> None:
    with pytest.raises(JavaError, match=r"InvalidProtocolBuffer|missing required"):
        java.ledger_data(bytes.fromhex(value))
    with pytest.raises(CorruptionError):
        ledger_data.decode_ledger_data(bytes.fromhex(value))


def test_a_metadata_cache_row_means_the_same(java: JavaDriver) -> None:
    metadata = entry_log_metadata.EntryLogMetadata(28, 4096, 1024, ((5, 1000), (2**62, 24)))
    value = entry_log_metadata.encode_entry_log_metadata(metadata)
    theirs = java.entry_log_metadata(value)
    assert (theirs["log_id"], theirs["total_size"], theirs["remaining_size"]) == (28, 4096, 1024)
    assert {int(ledger): size for ledger, size in theirs["ledgers"].items()} == dict(metadata.ledgers)
    again = entry_log_metadata.decode_entry_log_metadata(bytes.fromhex(theirs["bytes"]))
    assert dict(again.ledgers) == dict(metadata.ledgers)


# --- SortedLedgerStorage and InterleavedLedgerStorage -------------------------------------------------------


@pytest.mark.parametrize("sample", IDX_SAMPLES)
def test_idx_files_mean_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    assert compare_idx_files(java, copy_directory(sample_directory(sample, corpora), tmp_path / "l"))


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "perledger"])
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_idx_files_of_real_bookies_mean_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, storage: str, state: str
) -> None:
    """A crash can come before the first flush makes a file."""
    source = corpora(storage) / state / "bookie1/ledgers"
    assert compare_idx_files(java, copy_directory(source, tmp_path / "ledgers")) or state == "crash"


def compare_idx_files(java: JavaDriver, ledger_dir: Path) -> int:
    theirs = java.idx_ledgers(ledger_dir)
    current = ledger_dir / "current"
    ours = {}
    for path in current.rglob("*.idx"):
        data = path.read_bytes()
        header = file_info.decode_header(data)
        assert file_info.encode_header(header) == data[: file_info.HEADER_BYTES]
        slots = file_info.decode_slots(data[file_info.HEADER_BYTES :])
        ours[file_info.parse_index_path(str(path.relative_to(current))).ledger] = {
            "master_key": header.master_key.hex(),
            "fenced": header.fenced,
            "explicit_lac": None if header.explicit_lac is None else header.explicit_lac.hex(),
            "locations": [
                [entry, packed >> 32, packed & location.OFFSET_MAX]
                for entry, packed in zip(slots.entries, slots.locations, strict=True)
            ],
        }
    assert ours == {
        ledger: {name: value for name, value in row.items() if name != "ledger"}
        for ledger, row in theirs.items()
    }
    return len(ours)


@pytest.mark.parametrize("version", file_info.VERSIONS)
@pytest.mark.parametrize("fenced", [False, True])
def test_java_reads_an_idx_file_that_we_wrote(
    java: JavaDriver, tmp_path: Path, version: int, fenced: bool
) -> None:
    lac = bytes(range(20)) if version else None
    header = file_info.FileInfoHeader(version, KEY, file_info.FENCED if fenced else 0, lac)
    slots = {0: (3, 1028), 1023: (3, 2000), 1024: (4, 1028), 5000: (2**31 - 1, 2**32 - 1)}
    for ledger in LEDGER_IDS:
        path = tmp_path / "current" / file_info.index_path(ledger)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(file_info.encode_header(header))
            pairs = ((entry, location.pack_location(*place)) for entry, place in slots.items())
            for offset, page in file_info.encode_slots(pairs):
                file.seek(offset)
                file.write(page)
    theirs = java.idx_ledgers(tmp_path)
    assert set(theirs) == set(LEDGER_IDS)
    for row in theirs.values():
        assert row["master_key"] == KEY.hex()
        assert row["fenced"] is fenced
        assert row["explicit_lac"] == (None if lac is None else lac.hex())
        assert row["locations"] == [[entry, *place] for entry, place in slots.items()]


def test_java_and_we_name_index_files_and_znodes_the_same(java: JavaDriver) -> None:
    for ledger, theirs in zip(LEDGER_IDS, java.paths(*LEDGER_IDS), strict=True):
        assert file_info.index_path(ledger) == theirs["index"]
        assert ledger_path(ledger) == theirs["znode"]


def our_rows(directory: Path) -> list[tuple[bytes, bytes]]:
    reader = open_read_only(str(directory))
    try:
        return list(reader.iterate())
    finally:
        reader.close()
