"""The findings that ``index check`` reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """Whether a finding needs somebody: ``damage`` does, a ``note`` is natural or repairs itself."""

    DAMAGE = "damage"
    NOTE = "note"


class Kind(enum.Enum):
    """The kinds of findings; the value is the word in JSON.

    Index to logs: ``QUARANTINED_LOCATION`` (its log is in quarantine), ``SALVAGED_LOCATION`` (so it is, and
    what could be read of it was copied), ``DANGLING_LOCATION`` (no record begins there), ``FOREIGN_ENTRY``
    (another entry's does), ``WRONG_LOG_ID_SPACE`` (the entry stands at this place in another ledger
    directory's logs), ``WRONG_DIRECTORY`` (the ledger is another directory's by ledger id mod directories).

    Logs to index: ``MISSING_LOCATION``; ``DAMAGED_LOG`` is what could not be read of a log;
    ``ONLY_IN_JOURNAL`` are entries of journals in front of the last mark that neither index nor logs have.
    ``CUT_JOURNAL`` is one behind the mark that ends in front of records which were there.

    Ledgers: ``LOCATIONS_WITHOUT_LEDGER``, ``MISSING_LEDGER`` (only the metadata and the logs know it),
    ``MISSING_ENTRIES`` (the metadata place them here, and nothing here has them),
    ``DAMAGED_MASTER_KEY`` (bytes of it were changed), ``OTHER_MASTER_KEY`` (another password's than that
    of the metadata), ``DAMAGED_JOURNAL_KEY`` (bytes of a key that a start replays were changed),
    ``DOUBTFUL_MASTER_KEY`` (bytes of the row's key or of a journal's were changed, and nothing says which),
    ``WIDE_KEY`` (a 16-byte row of Java's index rebuild), ``UNDECODABLE_ROW``, ``DAMAGED_IDX_HEADER``,
    ``DUPLICATE_IDX`` (files in two directories), ``UNREADABLE_INDEX`` (all of it or the rest of it),
    ``LOST_INDEX`` (there is none, and the logs hold, or the last mark says that they held, what no journal
    brings back), ``EMPTIED_DIRECTORY`` (a ledger directory with a cookie alone, beside others with more).

    Notes: ``PENDING_REPLAY``, ``LEDGER_WITHOUT_ENTRIES``, ``LIMBO``, ``INTEGRITY_FLAG``,
    ``LEAKED_LOCATION`` (Java's deletion never reaches it), ``POSITION_UNKNOWN``, ``BOOKIE_UNKNOWN``,
    ``NO_JOURNAL``, ``NO_INDEX`` (of a bookie that has not flushed yet), ``NOT_PROVED`` (the rebuild that made
    the index could not prove that no log was missing).
    """

    DANGLING_LOCATION = "dangling_location"
    QUARANTINED_LOCATION = "quarantined_location"
    SALVAGED_LOCATION = "salvaged_location"
    FOREIGN_ENTRY = "foreign_entry"
    WRONG_LOG_ID_SPACE = "wrong_log_id_space"
    WRONG_DIRECTORY = "wrong_directory"
    MISSING_LOCATION = "missing_location"
    DAMAGED_LOG = "damaged_log"
    ONLY_IN_JOURNAL = "only_in_journal"
    CUT_JOURNAL = "cut_journal"
    LOCATIONS_WITHOUT_LEDGER = "locations_without_ledger"
    MISSING_LEDGER = "missing_ledger"
    MISSING_ENTRIES = "missing_entries"
    DAMAGED_MASTER_KEY = "damaged_master_key"
    OTHER_MASTER_KEY = "other_master_key"
    DAMAGED_JOURNAL_KEY = "damaged_journal_key"
    DOUBTFUL_MASTER_KEY = "doubtful_master_key"
    WIDE_KEY = "wide_key"
    UNDECODABLE_ROW = "undecodable_row"
    DAMAGED_IDX_HEADER = "damaged_idx_header"
    DUPLICATE_IDX = "duplicate_idx"
    UNREADABLE_INDEX = "unreadable_index"
    LOST_INDEX = "lost_index"
    EMPTIED_DIRECTORY = "emptied_directory"
    PENDING_REPLAY = "pending_replay"
    LEDGER_WITHOUT_ENTRIES = "ledger_without_entries"
    LIMBO = "limbo"
    INTEGRITY_FLAG = "integrity_flag"
    LEAKED_LOCATION = "leaked_location"
    POSITION_UNKNOWN = "position_unknown"
    BOOKIE_UNKNOWN = "bookie_unknown"
    NO_JOURNAL = "no_journal"
    NO_INDEX = "no_index"
    NOT_PROVED = "not_proved"


_NOTES = frozenset(
    {
        Kind.PENDING_REPLAY,
        Kind.LEDGER_WITHOUT_ENTRIES,
        Kind.LIMBO,
        Kind.INTEGRITY_FLAG,
        Kind.LEAKED_LOCATION,
        Kind.POSITION_UNKNOWN,
        Kind.BOOKIE_UNKNOWN,
        Kind.NO_JOURNAL,
        Kind.NO_INDEX,
        Kind.NOT_PROVED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row. ``log_id`` and ``offset`` are the location that the finding is about, ``offset`` the body's
    except for ``damaged_log``, where the damage begins; None where there is none. Of a key record in a
    journal it is the record's, and ``journal_id`` says which journal. ``damaged_log`` is the path of a log
    that is damaged, and whose salvage ends what a row of the index says of it, or lacks.
    """

    kind: Kind
    dir: str
    ledger: int | None
    entry: int | None
    log_id: int | None
    offset: int | None
    detail: str
    journal_id: int | None = None
    damaged_log: str | None = None

    @property
    def severity(self) -> Severity:
        """The severity of the finding."""
        return Severity.NOTE if self.kind in _NOTES else Severity.DAMAGE


def about_ledger(kind: Kind, directory: str, ledger: int, detail: str) -> Finding:
    """Make a finding about a whole ledger."""
    return Finding(kind, directory, ledger, None, None, None, detail)


def about_directory(kind: Kind, directory: str, detail: str) -> Finding:
    """Make a finding about a whole directory."""
    return Finding(kind, directory, None, None, None, None, detail)
