"""Changing a ledger's metadata: read, decide, compare-and-set, and read again when another client was first.

A store may carry a write out and lose its answer, or carry it out late. So a write whose outcome is unknown
is followed by a read, and the decision is taken again on what is stored: either the change is there, or the
next compare-and-set cannot pass together with the lost one.

One update (:class:`MetadataUpdate`, which is all of :class:`MetadataUpdateMachine`):

======== ============================ ======================================================================
state    input                        next state, effect
======== ============================ ======================================================================
NEW      ``begin``                    DECIDING
NEW      ``begin_anew``               READING, ReadMetadata
DECIDING the plan wants nothing       DONE with the metadata at hand; ``written`` when an earlier write
                                      stored them
DECIDING the plan wants bookies first CHOOSING, ChooseBookies
DECIDING the plan wants metadata      WRITING, WriteMetadata with the version at hand
DECIDING the plan raises              DONE with that error
CHOOSING bookies                      WRITING, WriteMetadata of what ``then`` makes of them; DONE when it
                                      raises
CHOOSING an error                     DONE with that error
WRITING  stored                       DONE with what is stored now
WRITING  the version was another one  READING, ReadMetadata; DONE with the error behind CONFLICTS_MAX of
                                      these
WRITING, the outcome is not known     RESTING, SetTimer, twice as long each time; DONE with the error behind
READING                               UNKNOWN_MAX of these
WRITING, any other error              DONE with that error, NoSuchLedgerError where the ledger is gone
READING
RESTING  the timer                    READING, ReadMetadata
READING  the metadata                 DECIDING, on what is stored
======== ============================ ======================================================================

Source: ``org.apache.bookkeeper.client.MetadataUpdateLoop``; Java ends the loop on an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bkctl.client.errors import ClientError, NoSuchLedgerError, NotEnoughBookiesError
from bkctl.client.machine import BookiesAre, Event, MetadataFailed, MetadataIs
from bkctl.client.ops.exchange import Exchange, OperationMachine
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import BkctlError, ConnectionFailedError, NotFoundError
from bkctl.metadata.api import NoClusterError, VersionConflictError
from bkctl.types import LedgerState

#: Unknown outcomes, and failed reads behind them, that are borne before the update fails.
UNKNOWN_MAX = 5

#: Conflicts before the update fails: each means that another client changed the metadata.
CONFLICTS_MAX = 1_000

#: Pause after an unknown outcome; doubled each time.
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class NeedBookies:
    """A change that needs bookies first; ``then`` makes the new metadata of those that were found.

    ``then`` may raise a BkctlError, which ends the update.
    """

    count: int
    exclude: frozenset[str]
    ensemble: tuple[str, ...]
    replace: tuple[int, ...]
    then: Callable[[tuple[str, ...]], LedgerMetadata]


#: Returns the metadata to store instead of those at hand; None when nothing needs to change.
Plan = Callable[[LedgerMetadata], LedgerMetadata | NeedBookies | None]


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """The metadata as stored now. ``written``: this update wrote them, as far as is known."""

    metadata: LedgerMetadata
    version: int
    written: bool


class MetadataUpdate:
    """One update, a part of a machine. ``done`` is called once."""

    def __init__(
        self,
        exchange: Exchange,
        ledger: int,
        metadata: LedgerMetadata,
        version: int,
        plan: Plan,
        done: Callable[[UpdateOutcome | BkctlError], None],
    ) -> None:
        self.exchange = exchange
        self.ledger = ledger
        self.metadata = metadata
        self.version = version
        self._plan = plan
        self._done = done
        self._unknown = 0
        self._conflicts = 0
        self._written: LedgerMetadata | None = None

    def begin(self) -> None:
        """Decide on the metadata at hand."""
        try:
            wanted = self._plan(self.metadata)
        except BkctlError as error:
            self._done(error)
            return
        if wanted is None:
            mine = self._written is not None and self._written == self.metadata
            self._done(UpdateOutcome(self.metadata, self.version, mine))
        elif isinstance(wanted, NeedBookies):
            self._choose(wanted)
        else:
            self._write(wanted)

    def begin_anew(self) -> None:
        """Read the metadata again, and decide on what is stored: those at hand are too old."""
        self._read()

    def _choose(self, need: NeedBookies) -> None:
        def chosen(event: Event) -> None:
            if not isinstance(event, BookiesAre):
                self._done(_choice_failed(event, self.ledger))
                return
            try:
                wanted = need.then(event.bookies)
            except BkctlError as error:
                self._done(error)
                return
            self._write(wanted)

        self.exchange.choose_bookies(
            need.count,
            need.exclude,
            chosen,
            ensemble=need.ensemble,
            replace=need.replace,
            write_quorum=self.metadata.write_quorum,
        )

    def _write(self, wanted: LedgerMetadata) -> None:
        self._written = wanted
        self.exchange.write_metadata(self.ledger, wanted, self.version, self._write_ended)

    def _write_ended(self, event: Event) -> None:
        if isinstance(event, MetadataIs):
            self._done(UpdateOutcome(event.metadata, event.version, True))
            return
        error = _error_of(event, self.ledger)
        if isinstance(error, VersionConflictError):
            self._conflicts += 1
            if self._conflicts > CONFLICTS_MAX:
                self._done(error)
            else:
                self._read()
        else:
            self._look_again_after(error)

    def _look_again_after(self, error: BkctlError) -> None:
        """Read the metadata again: it is unknown whether they were written, unless the ledger is gone."""
        self._unknown += 1
        if not _may_pass(error) or self._unknown > UNKNOWN_MAX:
            self._done(error)
            return
        pause_s = PAUSE_S * 2 ** (self._unknown - 1)
        self.exchange.set_timer(pause_s, lambda _: self._read())

    def _read(self) -> None:
        self.exchange.read_metadata(self.ledger, self._read_ended)

    def _read_ended(self, event: Event) -> None:
        if isinstance(event, MetadataIs):
            self.metadata = event.metadata
            self.version = event.version
            self.begin()
        else:
            self._look_again_after(_error_of(event, self.ledger))


class MetadataUpdateMachine(OperationMachine):
    """An update by itself; finishes with an :class:`UpdateOutcome`."""

    def __init__(self, ledger: int, metadata: LedgerMetadata, version: int, plan: Plan) -> None:
        super().__init__()
        self._update = MetadataUpdate(self.exchange, ledger, metadata, version, plan, self._ended)

    def _begin(self) -> None:
        self._update.begin()

    def _ended(self, outcome: UpdateOutcome | BkctlError) -> None:
        if isinstance(outcome, BkctlError):
            self.exchange.finish(error=outcome)
        else:
            self.exchange.finish(outcome)


# --- metadata as a rewrite leaves it ------------------------------------------------------------------------


def rewritten(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return ``metadata`` with what Java fills in at every rewrite: ack quorum, last entry, creation token.

    Format 1 holds none of them. Digest type and password stay as they are stored: where they are absent,
    nothing here knows them.
    """
    if metadata.metadata_version == 1:
        return metadata
    return replace(metadata, ack_quorum_stored=True, last_entry_stored=True, c_token=0)


def in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return ``metadata``, under recovery."""
    return replace(rewritten(metadata), state=LedgerState.IN_RECOVERY)


def closed(metadata: LedgerMetadata, last_entry: int, length: int) -> LedgerMetadata:
    """Return ``metadata``, closed behind ``last_entry``, -1 when nothing is in the ledger."""
    return replace(rewritten(metadata), state=LedgerState.CLOSED, last_entry=last_entry, length=length)


def with_segment(metadata: LedgerMetadata, first_entry: int, bookies: tuple[str, ...]) -> LedgerMetadata:
    """Return ``metadata`` with entries from ``first_entry`` on at ``bookies``.

    A last segment that begins there is replaced: nothing in it was ever confirmed. ``first_entry`` is never
    below it.
    """
    last = metadata.segments[-1]
    if first_entry < last.first_entry:
        raise ClientError(f"an ensemble from entry {first_entry} on, below the last one's {last.first_entry}")
    kept = metadata.segments[:-1] if first_entry == last.first_entry else metadata.segments
    return replace(rewritten(metadata), segments=(*kept, Segment(first_entry, bookies)))


def _may_pass(error: BkctlError) -> bool:
    return isinstance(error, ConnectionFailedError) and not isinstance(error, ClientError)


def _error_of(event: Event, ledger: int) -> BkctlError:
    error = event.error if isinstance(event, MetadataFailed) else ClientError("no metadata", ledger=ledger)
    if isinstance(error, NotFoundError) and not isinstance(error, NoClusterError):
        return NoSuchLedgerError("the metadata store has no such ledger", ledger=ledger)
    return error


def _choice_failed(event: Event, ledger: int) -> BkctlError:
    if isinstance(event, MetadataFailed):
        return event.error
    return NotEnoughBookiesError("no bookies to choose from", ledger=ledger)
