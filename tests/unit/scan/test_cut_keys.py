"""Master keys of a journal that end in front of a hole."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.admin.index.rebuild.journal_facts import read_journals
from bkctl.codec.journal import RecordKind, master_key_record
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.log_builder import JournalBuilder, entry_body, plain_payload

FILES = PosixFileSystem()
KEY = bytes(range(1, 21))
CUT = KEY[:12] + bytes(8)


def written(folder: Path, key: bytes, *, hole: bool, behind: bool) -> str:
    """A journal with an entry, a key, and perhaps a hole and an entry behind it."""
    builder = JournalBuilder()
    builder.add(entry_body(6, 0, plain_payload(6, 0, 100)))
    builder.special(master_key_record(5, key))
    end = len(builder.build().data)
    builder.add(entry_body(5, 0, plain_payload(5, 0, 300)))
    if behind:
        builder.add(entry_body(6, 1, plain_payload(6, 1, 100)))
    data = bytearray(builder.build().data)
    if hole:
        data[end : end + 200] = bytes(200)
    path = folder / "1.txn"
    path.write_bytes(data if behind or not hole else bytes(data[:end]) + bytes(4096))
    return str(path)


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("hole", [True, False])
@pytest.mark.parametrize("key", [KEY, CUT])
def test_only_a_key_of_zeros_in_front_of_a_hole_is_none(
    tmp_path: Path, key: bytes, hole: bool, behind: bool
) -> None:
    path = written(tmp_path, key, hole=hole, behind=behind)
    expected = bytes(20) if key == CUT and hole else key
    with JournalScan(FILES, path) as scan:
        plain = list(scan)
    with JournalScan(FILES, path) as scan:
        found = list(without_cut_keys(scan))
    assert [type(item) for item in found] == [type(item) for item in plain]
    (record,) = [
        item for item in found if isinstance(item, MarkedRecord) and item.kind is RecordKind.MASTER_KEY
    ]
    assert (record.ledger, record.body[20:]) == (5, expected)
    facts = read_journals(FILES, [JournalFile(path, 1, 0)])
    assert facts.master_keys == {5: expected}
