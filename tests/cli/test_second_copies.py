"""``bkctl entrylog salvage`` finds an entry that is damaged in its log in other logs, and under wrong ids."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.entrylog import log_name
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.errors import BookieIOError, CorruptionError, LedgerLimboError
from bkctl.scan.directory import QUARANTINE_NAME
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from tests.support.readable import readable
from tests.support.truthful_bookie import DELETED, Entry, TruthfulBookie, dumps, started

Run = Callable[..., Any]
#: The ids of logs that no bookie of these tests reaches by itself.
COPIES_ID = 0x77


@pytest.fixture
def log(bookie: TruthfulBookie) -> Path:
    """The log with the most records that the index serves."""
    return max(bookie.logs(), key=lambda path: len(served(path, bookie)))


def served(log: Path, bookie: TruthfulBookie) -> dict[Entry, int]:
    """Return the entries of a log that the index serves, with the offsets of their size words."""
    whole = readable(bookie.root).keys()
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        return {
            entry: batch.offset(index)
            for batch in scan.batches()
            for index, entry in enumerate(zip(batch.ledgers, batch.entries, strict=True))
            if entry in whole
        }


def write_log(folder: Path, log_id: int, bodies: list[bytes]) -> Path:
    """Write a rolled log of some records, as a replay leaves one that was cut off before its index."""
    filesystem = PosixFileSystem()
    path = folder / log_name(log_id)
    file = filesystem.create(str(path))
    log = LogWriter(log_id, file)
    log.write_header()
    sizes = list(map(len, bodies))
    log.write([body[:16] for body in bodies], bodies, sizes, log.fitting(sizes, OFFSET_MAX))
    log.finish()
    log.sync()
    file.close()
    return path


def rows(done: Any, code: int = 0) -> list[dict[str, Any]]:
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def overwrite(log: Path, offset: int, content: bytes) -> None:
    data = bytearray(log.read_bytes())
    data[offset : offset + len(content)] = content
    log.write_bytes(data)


def middle(log: Path, bookie: TruthfulBookie) -> tuple[Entry, int]:
    places = sorted(served(log, bookie).items(), key=lambda each: each[1])
    return places[len(places) // 2]


def test_a_whole_copy_in_another_log_takes_the_place_of_a_damaged_record(
    run_cli: Run, bookie: TruthfulBookie, log: Path
) -> None:
    whole = readable(bookie.root)
    entry, offset = middle(log, bookie)
    broken = bytearray(whole[entry])
    broken[-1] ^= 4
    write_log(log.parent, COPIES_ID, [whole[entry], bytes(broken)])
    overwrite(log, offset, b"\xee" * 40)
    before = {path: path.read_bytes() for path in bookie.root.rglob("*") if path.is_file()}
    words = ("entrylog", "salvage", log, "-o", "json")
    planned = rows(run_cli(*words, "--dry-run"))
    assert {path: path.read_bytes() for path in bookie.root.rglob("*") if path.is_file()} == before
    done = rows(run_cli(*words, "--yes"))
    assert done == planned
    assert not [row for row in done if row["kind"] == "lost"]
    (copy,) = (row for row in done if row["kind"] == "copy")
    assert "1 of them are second copies" in copy["detail"]
    assert readable(bookie.root) == whole
    with started(bookie.root, bookie.directories) as running:
        for each, body in whole.items():
            if each[0] != DELETED:
                assert running.reads.read(*each) == body
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 4  # it has run since


def test_a_damaged_copy_is_none(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    whole = readable(bookie.root)
    entry, offset = middle(log, bookie)
    broken = bytearray(whole[entry])
    broken[-1] ^= 4
    others = [body for each, body in whole.items() if each[0] == entry[0] and each != entry]
    write_log(log.parent, COPIES_ID, [*others, bytes(broken)])
    overwrite(log, offset, b"\xee" * 40)
    done = rows(run_cli("entrylog", "salvage", log, "--yes", "-o", "json"), 1)
    (lost,) = (row for row in done if row["kind"] == "lost")
    assert (lost["ledger"], lost["entries"]) == (entry[0], str(entry[1]))
    with (
        started(bookie.root, bookie.directories) as running,
        pytest.raises((LedgerLimboError, BookieIOError, CorruptionError)),
    ):
        running.reads.read(*entry)


def test_a_copy_in_quarantine_that_was_garbage_when_its_log_was_salvaged_is_found(
    run_cli: Run, bookie: TruthfulBookie, log: Path
) -> None:
    whole = readable(bookie.root)
    entry, offset = middle(log, bookie)
    other = write_log(log.parent, COPIES_ID, [whole[entry], b"".join([whole[entry][:16], bytes(60)])])
    overwrite(other, other.stat().st_size - 8, b"\xff" * 8)
    assert run_cli("entrylog", "salvage", other, "--yes").exit_code in (0, 1)
    assert (log.parent / QUARANTINE_NAME / other.name).exists()
    overwrite(log, offset, b"\xee" * 40)
    rows(run_cli("entrylog", "salvage", log, "--yes", "-o", "json"))
    assert readable(bookie.root) == whole


@pytest.mark.parametrize("with_metadata", [False, True])
@pytest.mark.parametrize("at", [4, 12])
def test_a_record_whose_digest_proves_other_ids_is_copied_with_them(
    run_cli: Run, bookie: TruthfulBookie, log: Path, tmp_path: Path, at: int, with_metadata: bool
) -> None:
    metadata = ("--metadata", dumps(tmp_path)["whole"]) if with_metadata else ()
    whole = readable(bookie.root)
    _, offset = middle(log, bookie)
    (said,) = struct.unpack_from(">q", log.read_bytes(), offset + at)
    overwrite(log, offset + at, struct.pack(">q", said ^ 1 << 40))
    assert readable(bookie.root) != whole
    done = rows(run_cli("entrylog", "salvage", log, *metadata, "--yes", "-o", "json"))
    (copy,) = (row for row in done if row["kind"] == "copy")
    assert "1 of them got the ids that their digests prove" in copy["detail"]
    assert readable(bookie.root) == whole
    assert run_cli("entrylog", "verify", copy["path"]).exit_code in (0, 3)


def test_an_older_copy_in_the_same_log_is_found(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    entry, offset = middle(log, bookie)
    body = readable(bookie.root)[entry]
    both = write_log(log.parent, COPIES_ID, [body, body])
    assert run_cli("index", "rebuild", bookie.root, "--yes").exit_code in (0, 1)
    whole = readable(bookie.root)
    overwrite(log, offset, b"\xee" * 40)
    overwrite(both, both.read_bytes().rindex(body), b"\xee" * 40)
    assert entry not in readable(bookie.root)
    rows(run_cli("entrylog", "salvage", both, "--yes", "-o", "json"))
    assert readable(bookie.root) == whole
