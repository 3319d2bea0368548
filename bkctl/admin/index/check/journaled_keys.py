"""Master keys in the journals that the next start replays, and those of which some bytes were changed.

Nothing in a journal proves a key. A start compares each with the row of its ledger, and is refused where the
two are nearly the same: one of them is damaged. Only the password in the metadata says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bkctl.admin.index.check.master_keys import MetadataOf, is_damaged_key, key_of_metadata
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.second_keys import BLOB_AT, alike
from bkctl.engine.torn_records import lacks_sector
from bkctl.errors import NotFoundError
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import BookieDirectory
from bkctl.scan.journal import JournalScan, unsynced_from
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class JournaledKey:
    """The master key in a key record of a journal; ``offset`` is the record's."""

    ledger: int
    path: str
    journal_id: int
    offset: int
    key: bytes


@dataclass(frozen=True, slots=True)
class WrongKey:
    """A journaled key that is not that of its ledger, and the ``right`` one, None where nobody can tell."""

    found: JournaledKey
    right: bytes | None


def journaled_keys(fs: FileSystem, directory: BookieDirectory, mark: LastMark) -> Iterator[JournaledKey]:
    """Yield the keys that a replay from ``mark`` takes, in its order. Raises StorageError.

    Those that a hole or a power cut has taken a part of are left out, as a replay does.
    """
    newest = max((journal.journal_id for journal in directory.journals), default=0)
    for journal in directory.journals:
        if journal.journal_id < mark.journal_id:
            continue
        start = mark.offset if journal.journal_id == mark.journal_id else 0
        hole_from = unsynced_from(journal.journal_id, newest, mark)
        try:
            scan = JournalScan(fs, journal.path, start=start)
        except NotFoundError:
            continue  # a running bookie trimmed it since it was listed
        with scan:
            for item in without_cut_keys(scan):
                if not isinstance(item, MarkedRecord) or item.kind is not RecordKind.MASTER_KEY:
                    continue
                key = item.body[BLOB_AT:]
                may_be_torn = hole_from is not None and item.offset >= hole_from
                if not is_blank(key) and not (may_be_torn and lacks_sector(item.offset, item.body)):
                    yield JournaledKey(item.ledger, journal.path, journal.journal_id, item.offset, key)


def wrong_keys(
    keys: Iterable[JournaledKey], rows: Mapping[int, bytes], metadata_of: MetadataOf | None
) -> Iterator[WrongKey]:
    """Yield the keys of which some bytes were changed, and those that nearly match a row without a proof.

    ``rows`` has the keys of ledgers with a row. What is wrong of a row alone, which the metadata prove as
    well, is not among them. Raises BkctlError as the metadata do.
    """
    held = list(keys)
    present = dict(rows)
    metadata = metadata_of({each.ledger for each in held}) if metadata_of is not None and held else {}
    for each in held:
        right = key_of_metadata(metadata.get(each.ledger))
        before = present.get(each.ledger, b"")
        is_doubtful = before != each.key and not is_blank(before) and alike(before, each.key)
        if not is_doubtful:
            present[each.ledger] = each.key
        if right is not None and len(right) == len(each.key) and is_damaged_key(each.key, right):
            yield WrongKey(each, right)
        elif is_doubtful and each.key != right:
            yield WrongKey(each, None)
