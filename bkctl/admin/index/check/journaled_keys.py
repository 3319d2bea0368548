"""Master keys in the journals that the next start replays, and those of which some bytes were changed.

Nothing in a journal proves a key. A start compares each with the row of its ledger, and is refused where the
two are nearly the same: one of them is damaged. Only the password in the metadata says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bkctl.admin.index.check.master_keys import MetadataOf, is_damaged_key, key_of_metadata
from bkctl.codec.last_mark import LastMark
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.second_keys import alike, key_that_counts
from bkctl.scan.cut_keys import without_cut_keys
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import BookieDirectory
from bkctl.scan.files.journals import scans_from
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
    """A journaled key that is not that of its ledger, and the ``right`` one, None where it is not known."""

    found: JournaledKey
    right: bytes | None


def journaled_keys(fs: FileSystem, directory: BookieDirectory, mark: LastMark) -> Iterator[JournaledKey]:
    """Yield the keys that a replay from ``mark`` takes, in its order. Raises StorageError.

    Those that a hole or a power cut has taken a part of are left out, as a replay does.
    """
    for journal, scan in scans_from(fs, directory, mark):
        for item in without_cut_keys(scan):
            if isinstance(item, MarkedRecord) and (key := key_that_counts(scan, item)) is not None:
                yield JournaledKey(item.ledger, journal.path, journal.journal_id, item.offset, key)


def wrong_keys(
    keys: Iterable[JournaledKey], rows: Mapping[int, bytes], metadata_of: MetadataOf | None
) -> Iterator[WrongKey]:
    """Yield the keys of which some bytes were changed, and those that nearly match a row without a proof.

    ``rows`` has the keys of ledgers with a row. Wrong keys of rows, which the metadata prove as well, are not
    yielded. Raises BkctlError as the metadata do.
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
