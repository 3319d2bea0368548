"""Copying a closed fragment's entries to new bookies, then naming these in the metadata.

Every entry that is striped to a bad index is copied and read back from where it was written
(:mod:`bkctl.replication.entry_copy`). Only when all of them are there, metadata change: one compare-and-set
puts the new bookies in the places of the old ones, in this one segment, as far as each old one is still
there. The metadata are read again right before, and whenever another client was first: a ledger that was
deleted during the copy and made again under its id may well have the version of the old one.

A bad bookie that is up may itself be the target, where no other is there: what it misses is written to it
again, and metadata stay as they are.

======== ========================== ========================================================================
state    input                      next state, effect
======== ========================== ========================================================================
NEW      ``start``                  CHOOSING, ChooseBookies for all bad indices, without slow ones; COPYING
                                    where ``targets`` are given; FINISHED with OpenFragmentError for one
                                    written to
CHOOSING bookies, for all indices   COPYING, an EntryCopy of each entry, as many as the bounds allow
CHOOSING too few of them            CHOOSING, ChooseBookies for the rest, slow ones among them; behind that
                                    COPYING: an index that cannot be refilled has failed
CHOOSING an error                   FINISHED with the error
COPYING  an entry has ended         COPYING, an EntryCopy of the next one; an index fails of which an entry
                                    has no source, or whose target failed
COPYING  the last one has ended     STORING, a MetadataUpdate that reads first; FINISHED with CopyResult where
                                    no bookie is to be replaced
STORING  stored, or superseded      FINISHED with CopyResult
STORING  an error, the lock is lost FINISHED with the error, LockLostError
======== ========================== ========================================================================

Source: ``org.apache.bookkeeper.client.LedgerFragmentReplicator``, which copies all entries of the range to
every new bookie and does not read them back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.errors import ClientError, NotEnoughBookiesError
from bkctl.client.machine import BookiesAre, Event, MetadataFailed
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.metadata_update import MetadataUpdate, UpdateOutcome
from bkctl.client.ops.read import ENTRY_SPECULATION, Speculation
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.replication.entry_copy import CopyCounts, CopyRules, EntryCopy
from bkctl.replication.errors import LockLostError, OpenFragmentError
from bkctl.replication.fragment_check import BadFragment, Defect
from bkctl.replication.rate import ByteRate
from bkctl.replication.segment_change import replaced_in_segment, same_segment
from bkctl.types import DigestType


class CopyFailure(enum.Enum):
    """Why an index could not be given a good copy; the value is the JSON form."""

    NO_TARGET = "no_target"
    NO_SOURCE = "no_source"
    TARGET_FAILED = "target_failed"


@dataclass(frozen=True, slots=True)
class FailedIndex:
    """One index that stays as it is. ``bookie`` is the one it names, ``target`` where copies went to."""

    index: int
    bookie: str
    failure: CopyFailure
    error: ClientError
    target: str = ""
    entry: int = -1


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The outcome of a fragment's copy. ``metadata`` and ``version`` are stored now, as far as is known.

    ``replaced`` maps indices to their new bookies; ``refilled`` are those whose own bookie was written to
    again. ``superseded``: another client changed the segment during the copy, so that no metadata were
    written, and the ledger is to be looked at again.
    """

    metadata: LedgerMetadata
    version: int
    replaced: Mapping[int, str]
    refilled: tuple[int, ...]
    failed: tuple[FailedIndex, ...]
    superseded: bool
    counts: CopyCounts


@dataclass(frozen=True, slots=True)
class CopySettings:
    """Bounds and preferences of a copy.

    At most ``entries_max`` entries (``rereplicationEntryBatchSize``), of about ``bytes_max`` bytes, are under
    way. A copy begins with one and takes one more with each that is done: the size of entries is known before
    many are asked for.

    ``avoid`` are slow bookies, which are asked last, and chosen only where no other is there. ``exclude`` are
    never chosen. ``refillable`` are up and writable: a bad bookie among them is written to again where no
    other can be chosen. ``targets`` are chosen already, by index; without any they are asked for.
    ``given_up`` are entries that somebody has accepted as lost. They are not copied, and do not keep a new
    bookie from being named.
    """

    entries_max: int = 32
    bytes_max: int = 16 << 20
    speculation: Speculation | None = ENTRY_SPECULATION
    avoid: frozenset[str] = field(default_factory=frozenset)
    exclude: frozenset[str] = field(default_factory=frozenset)
    refillable: frozenset[str] = field(default_factory=frozenset)
    given_up: Container[int] = ()
    targets: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.bytes_max < 1:
            raise UsageError("entries_max and bytes_max must be 1 or more")


class FragmentCopyMachine(OperationMachine):
    """Give the bad indices of a closed fragment good copies; finishes with a :class:`CopyResult`.

    ``metadata`` and ``version`` are what was read last. ``may_write`` is asked before metadata are written:
    False, when the lock on the ledger is gone, ends it with LockLostError. ``counts`` may be shared with
    other copies. Other errors: OpenFragmentError, those of the metadata store, and NoSuchLedgerError when
    the ledger was deleted during the copy.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        version: int,
        bad: BadFragment,
        rate: ByteRate,
        settings: CopySettings | None = None,
        may_write: Callable[[], bool] = lambda: True,
        counts: CopyCounts | None = None,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self._access = access
        self._metadata = metadata
        self._version = version
        self._fragment = bad.fragment
        self._settings = settings or CopySettings()
        self._may_write = may_write
        self._distribution = Distribution.of(metadata)
        self._bad = {one.index: one for one in bad.bad}
        #: The bookie that gets the entries of each index; indices that fail are taken out.
        self._targets: dict[int, str] = {}
        self._failed: dict[int, FailedIndex] = {}
        self._replacements: dict[int, str] = {}
        self._rate = rate
        self._counts = counts or CopyCounts()
        self._rules = CopyRules(access, rate, self._speculation())
        self._entries: Iterator[int] = iter(())
        self._copies: set[EntryCopy] = set()
        self._done_count = 0
        self._largest_bytes = 1024
        self._filling = False
        self._updating = False

    @property
    def replacements(self) -> Mapping[int, str]:
        """The new bookies by their indices, from when the metadata may name them; before that nothing."""
        return self._replacements

    # --- targets --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._fragment.is_closed:
            error = OpenFragmentError("it is still written to", ledger=self._access.ledger)
            self.exchange.finish(error=error)
            return
        if self._settings.targets:
            self._targets.update(self._settings.targets)
            self._copy()
            return
        self._choose(tuple(sorted(self._bad)), self._settings.avoid)

    def _choose(self, indices: tuple[int, ...], avoid: frozenset[str]) -> None:
        """Ask for a bookie for each of the indices; first without those that are slow."""
        taken = {*self._fragment.bookies, *self._targets.values(), *self._settings.exclude}
        self.exchange.choose_bookies(
            len(indices),
            frozenset(taken | avoid),
            partial(self._chosen, indices, avoid),
            ensemble=self._fragment.bookies,
            replace=indices,
            write_quorum=self._metadata.write_quorum,
        )

    def _chosen(self, indices: tuple[int, ...], avoid: frozenset[str], event: Event) -> None:
        if isinstance(event, MetadataFailed):
            self.exchange.finish(error=event.error)
            return
        bookies = event.bookies if isinstance(event, BookiesAre) else ()
        taken = {*self._fragment.bookies, *self._targets.values(), *self._settings.exclude}
        for index, bookie in zip(indices, bookies, strict=False):
            if bookie not in taken:
                self._targets[index] = bookie
                taken.add(bookie)
        without = tuple([index for index in indices if index not in self._targets])
        if without and avoid:
            self._choose(without, frozenset())
            return
        for index in without:
            self._refill_or_fail(index)
        self._copy()

    def _refill_or_fail(self, index: int) -> None:
        bad = self._bad[index]
        if bad.defect is not Defect.NOT_REGISTERED and bad.bookie in self._settings.refillable:
            self._targets[index] = bad.bookie
            return
        error = NotEnoughBookiesError(
            f"no bookie can take the place of {bad.bookie}", ledger=self._access.ledger
        )
        self._failed[index] = FailedIndex(index, bad.bookie, CopyFailure.NO_TARGET, error)

    # --- entries --------------------------------------------------------------------------------------------

    def _copy(self) -> None:
        refilled = frozenset(self._targets[index] for index in self._refilled())
        self._rules = CopyRules(
            self._access,
            self._rate,
            self._speculation(),
            refilled,
            set(self._settings.avoid),
            self._counts,
        )
        self._entries = self._entries_to_copy()
        self._copy_on()

    def _refilled(self) -> tuple[int, ...]:
        return tuple([i for i, target in self._targets.items() if target == self._fragment.bookies[i]])

    def _entries_to_copy(self) -> Iterator[int]:
        holds, given_up = self._distribution.holds, self._settings.given_up
        for entry in self._fragment.entries:
            if entry not in given_up and any(holds(index, entry) for index in self._targets):
                yield entry

    def _copy_on(self) -> None:
        """Keep as many entries going as the bounds allow; behind the last one, change the metadata."""
        if self._filling or self._updating or self.exchange.finished:
            return
        self._filling = True
        while self._targets and self._has_room():
            entry = next(self._entries, None)
            if entry is None:
                break
            self._begin_entry(entry)
        self._filling = False
        if not self._copies:
            self._update()

    def _has_room(self) -> bool:
        settings = self._settings
        if len(self._copies) >= min(settings.entries_max, 1 + self._done_count):
            return False
        held = sum(copy.held_bytes or self._largest_bytes for copy in self._copies)
        return not self._copies or held + self._largest_bytes <= settings.bytes_max

    def _begin_entry(self, entry: int) -> None:
        indices = [index for index in self._targets if self._distribution.holds(index, entry)]
        copy = EntryCopy(
            self.exchange,
            self._rules,
            entry,
            self._sources(entry),
            {self._targets[index] for index in indices},
            no_source=self._no_source,
            target_failed=self._target_failed,
            done=self._entry_done,
        )
        self._copies.add(copy)
        copy.begin()

    def _sources(self, entry: int) -> Sequence[str]:
        """Return the possible sources: the good ones first, then slow ones, then those that failed the check.

        The latter may still have this entry; its digest is checked. Where no digest proves anything (DUMMY),
        a replica that leaves is its successor's source, however slow: another one may be damaged, and nothing
        shows it.
        """
        bookies, slow = self._fragment.bookies, self._rules.slow
        indices = self._distribution.write_set(entry)

        def rank(index: int) -> tuple[int, bool]:
            first = self._is_unproved and self._leaves(index)
            return (-1 if first else index in self._bad, bookies[index] in slow)

        return [bookies[index] for index in sorted(indices, key=rank)]

    @property
    def _is_unproved(self) -> bool:
        return self._access.digester.type is DigestType.DUMMY

    def _leaves(self, index: int) -> bool:
        """Return whether an index is replaced although its bookie may have everything."""
        bad = self._bad.get(index)
        return bad is not None and bad.defect in (Defect.LEAVING, Defect.MISPLACED)

    def _speculation(self) -> Speculation | None:
        """Return when the next source is asked early: not where the first one alone is to be believed."""
        first_alone = self._is_unproved and any(self._leaves(index) for index in self._bad)
        return None if first_alone else self._settings.speculation

    def _no_source(self, entry: int, error: ClientError) -> None:
        for index in list(self._targets):
            if self._distribution.holds(index, entry):
                self._fail(index, CopyFailure.NO_SOURCE, entry, error)

    def _target_failed(self, entry: int, target: str, error: ClientError) -> None:
        for index, name in list(self._targets.items()):
            if name == target:
                self._fail(index, CopyFailure.TARGET_FAILED, entry, error)

    def _fail(self, index: int, failure: CopyFailure, entry: int, error: ClientError) -> None:
        target = self._targets.pop(index)
        bookie = self._fragment.bookies[index]
        self._failed[index] = FailedIndex(index, bookie, failure, error, target, entry)

    def _entry_done(self, copy: EntryCopy) -> None:
        self._copies.discard(copy)
        self._done_count += 1
        self._largest_bytes = max(self._largest_bytes, copy.held_bytes)
        self._copy_on()

    # --- metadata -------------------------------------------------------------------------------------------

    def _update(self) -> None:
        self._updating = True
        refilled = set(self._refilled())
        self._replacements = {i: t for i, t in self._targets.items() if i not in refilled}
        if not self._replacements:
            self._finish(superseded=False)
            return
        MetadataUpdate(
            self.exchange, self._access.ledger, self._metadata, self._version, self._plan, self._updated
        ).begin_anew()

    def _plan(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        if not self._may_write():
            raise LockLostError("the lock on it is lost", ledger=self._access.ledger)
        segment = same_segment(self._metadata, metadata, self._fragment)
        if segment is None:
            return None
        wanted = {
            index: target
            for index, target in self._replacements.items()
            if segment.bookies[index] == self._fragment.bookies[index] and target not in segment.bookies
        }
        return replaced_in_segment(metadata, self._fragment.position, wanted) if wanted else None

    def _updated(self, outcome: UpdateOutcome | BkctlError) -> None:
        if isinstance(outcome, BkctlError):
            self.exchange.finish(error=outcome)
            return
        segment = same_segment(self._metadata, outcome.metadata, self._fragment)
        bookies = () if segment is None else segment.bookies
        wanted = self._replacements
        self._replacements = {i: t for i, t in wanted.items() if bookies and bookies[i] == t}
        self._metadata, self._version = outcome.metadata, outcome.version
        self._finish(superseded=self._replacements != wanted)

    def _finish(self, *, superseded: bool) -> None:
        self.exchange.finish(
            CopyResult(
                self._metadata,
                self._version,
                dict(self._replacements),
                self._refilled(),
                tuple([self._failed[index] for index in sorted(self._failed)]),
                superseded,
                self._counts,
            )
        )
