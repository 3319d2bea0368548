"""The proof that the logs have every entry, for an old index that cannot say so (ADR 0036).

Where the locations of the old index cannot be read, an entry whose log is gone leaves no trace in it. Two
things prove that no such entry exists. Either all log ids from 0 to the last one that was given out are
there, so that no log was ever removed. Or the metadata say which entries of each closed ledger the bookie
must have, and all are there. A log that is not there proves no loss, because collections remove logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from posixpath import join

from bkctl.admin.index.rebuild.difference import NOT_PROVED, Difference
from bkctl.admin.index.rebuild.entry_search import EntrySearch
from bkctl.admin.index.rebuild.expected_entries import ExpectedEntries
from bkctl.admin.index.rebuild.kept_doubts import MADE_IN_DOUBT
from bkctl.admin.index.rebuild.log_set import LogSet
from bkctl.admin.index.rows.lost_entries import LostEntries
from bkctl.admin.ledgers.known_ledgers import KnownLedgers
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.last_id import LAST_ID_NAME, decode_last_id
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.reporting import listed
from bkctl.scan.directory import LogFile, read_small
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs import FileSystem

#: Ranges of ids and logs that a message names.
_NAMED = 5


@dataclass(slots=True)
class Completeness:
    """The entries that stand in no log, as far as they are known; ``why`` the old index does not have them.

    ``missing`` are entries that the metadata place on the bookie, ``vague`` the ledgers on it of which they
    do not say which entries it has to have: those that are not closed. ``doubts`` say which logs may be
    missing, and ``unproved`` why the metadata do not prove that nothing is; both are empty where that is
    proved.
    """

    why: str
    missing: dict[int, LostEntries] = field(default_factory=dict)
    vague: set[int] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)
    unproved: str | None = None

    @property
    def may_be_lost(self) -> set[int]:
        """The ledgers of which every entry may be lost together with the row."""
        return self.vague if self.doubts else set()

    def differences(self) -> list[Difference]:
        """Return what is lost, and what is not proved."""
        found = [
            Difference("not_in_logs", ledger, f"{lost}: placed on this bookie by the metadata, and in no log")
            for ledger, lost in sorted(self.missing.items())
        ]
        if self.doubts:
            detail = (
                f"whether the logs have every entry is not proved: {self.why}, and {'; '.join(self.doubts)}; "
                f"{self.unproved}"
            )
            found.append(Difference(NOT_PROVED, None, detail))
        return found


def judge_logs(
    fs: FileSystem,
    ledger_dirs: Sequence[str],
    why: str,
    found: LogSet,
    known: KnownLedgers,
    search: EntrySearch,
    serves: Callable[[int], bool],
    last_written_ms: float,
    *,
    rehearsed: bool,
    more: Sequence[str] = (),
) -> Completeness:
    """Find out what is missing in the logs, and what leaves it open. Raises BkctlError.

    ``more`` are doubts that no log id settles, those of the rebuild that made the old index among them: an id
    may have been given out once more. Where ``why`` is that rebuild alone, no log that is gone since matters,
    because the old index has its entries. A dry run keeps no rows of the logs, so it does not compare them
    with the metadata.
    """
    judged = Completeness(why, doubts=list(more))
    if why != MADE_IN_DOUBT:
        of_logs = doubts_of_logs(fs, ledger_dirs, found.logs, found.cut)
        judged.doubts += [each for each in of_logs if each not in more]
    if not known.cluster.is_asked:
        judged.unproved = "--metadata, of a store or a new dump, shows which entries the bookie has to have"
    elif known.reservation is not None or known.bookie is None:
        judged.unproved = known.reservation or "the cookie does not say which bookie this is"
    elif rehearsed:
        judged.unproved = "the rebuild itself compares the logs with the metadata"
    else:
        expected = ExpectedEntries(known, serves)
        judged.missing = search.by_metadata(found, expected)
        judged.vague = expected.vague
        unknown = expected.unknown()
        if not known.is_newer_than(last_written_ms):
            judged.unproved = "the metadata are older than what the bookie wrote last (--metadata)"
        elif unknown is not None:
            judged.unproved = f"{unknown}, so that the metadata do not show all that it has to have"
        elif not expected.placed:
            judged.unproved = f"the metadata place no ledger on {known.bookie}, which may have had another id"
    if judged.unproved is None:
        judged.doubts.clear()
    return judged


def doubts_of_logs(
    fs: FileSystem, ledger_dirs: Sequence[str], logs: Sequence[LogFile], cut: Collection[int] = ()
) -> list[str]:
    """Say what speaks against all logs being there that one space of ids ever had. Raises StorageError.

    An empty log with a log of records behind it counts as well: it may have been cut. At the end it is one
    that was made ahead. So do the logs that are ``cut``, which end within a record, or in zeros: a kill
    leaves such logs, and the rest stood in journals; so does a file system that has lost the end of one. A
    log that was salvaged is no gap: what of it was lost is in limbo.
    """
    doubts: list[str] = []
    newest = max((log.log_id for log in logs), default=-1)
    last = -1
    for directory in ledger_dirs:
        path = join(directory, LAST_ID_NAME)
        try:
            last = max(last, decode_last_id(read_small(fs, path)))
        except NotFoundError:
            doubts.append(f"{path} is not there, so that the last log is not known")
        except CorruptionError as error:
            doubts.append(f"{path} cannot be read ({error}), so that the last log is not known")
    if not doubts and last < newest:
        doubts.append(f"{LAST_ID_NAME} says {last:x} and is older than log {newest:x}")
    there = {log.log_id for log in logs}
    for directory in ledger_dirs:
        there.update(each.log.log_id for each in quarantined_logs(fs, directory) if each.is_salvaged)
    if gaps := _gaps(sorted(there), max(last, newest)):
        doubts.append(
            f"of the logs up to {max(last, newest):x} some were collected or lost: {listed(gaps, _NAMED)}"
        )
    filled = max((log.log_id for log in logs if log.size_bytes > HEADER_BYTES), default=-1)
    hollow = [f"{log.log_id:x}" for log in logs if log.size_bytes <= HEADER_BYTES and log.log_id < filled]
    if hollow:
        doubts.append(f"logs are empty, though later ones have entries: {listed(hollow, _NAMED)}")
    if cut:
        torn = [f"{log_id:x}" for log_id in sorted(cut)]
        doubts.append(f"logs without a map end within a record, or in zeros: {listed(torn, _NAMED)}")
    return doubts


def _gaps(ids: Sequence[int], last: int) -> list[str]:
    """Return the ranges of ids from 0 to ``last`` that are not there."""
    gaps = []
    following = 0
    for log_id in (*ids, last + 1):
        if log_id > following:
            gaps.append(f"{following:x}" if log_id == following + 1 else f"{following:x} to {log_id - 1:x}")
        following = max(following, log_id + 1)
    return gaps
