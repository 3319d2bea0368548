"""Reading entries: each from its write set, one bookie after the other, the next early when one is slow.

The first copy whose digest checks wins; a copy that does not check is an error of that bookie like any other.
An entry is "no such entry" only when *every* bookie of its write set said so; one error among their answers
leaves it unknown.

The read of one entry (:class:`EntryRead`):

====== ============================ ========================================================================
state  input                        next state, effect
====== ============================ ========================================================================
NEW    ``begin``                    ASKING, Send to the first bookie; SetTimer where there is a next one
ASKING the timer                    ASKING, those that keep it waiting are slow; Send to the next bookie,
                                    unless one of those asked has answered something in the whole operation;
                                    SetTimer where there is a next one
ASKING the entry, proved            DONE with the entry
ASKING "no such entry", or an error ASKING, Send to the next bookie; without a next one ASKING while another
                                    is outstanding, else DONE with the first error; DONE with EntryMissing
                                    once ``missing_quorum`` bookies say "no such entry"
====== ============================ ========================================================================

The read of a range (:class:`ReadMachine`):

======= ========================= ==========================================================================
state   input                     next state, effect
======= ========================= ==========================================================================
NEW     ``start``                 READING, an EntryRead of each of the first ``parallel_max`` entries
READING an entry                  READING, an EntryRead of the next one; FINISHED with ReadResult when all
                                  are there
READING EntryMissing, or an error FINISHED with the error; ``up_to_error``: READING until all entries below
                                  it are there, FINISHED then with these and the error
======= ========================= ==========================================================================

Source: ``org.apache.bookkeeper.client.PendingReadOp`` (``SequenceReadRequest``),
``DefaultSpeculativeRequestExecutionPolicy``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from bkctl.client.distribution import Distribution, segment_of
from bkctl.client.errors import ClientError, NoSuchEntryError
from bkctl.client.machine import Answered, Event, Token
from bkctl.client.ops.exchange import Exchange, OperationMachine
from bkctl.client.ops.ledger_access import (
    DoNotKnow,
    LedgerAccess,
    LedgerEntry,
    NeverHadIt,
    require_quorum_fields,
)
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.protocol.messages import HIGH_PRIORITY, ReadResponse


@dataclass(frozen=True, slots=True)
class Speculation:
    """When the next bookie is asked although the last one may still answer (``speculativeReadTimeout``).

    After ``first_s``, then after intervals that grow by ``multiplier`` up to ``max_s``. Only while none of
    the bookies asked for this entry has answered anything in the whole operation.
    """

    first_s: float = 2.0
    max_s: float = 2.0
    multiplier: float = 2.0

    def interval_s(self, turn: int) -> float:
        """Return the pause before turn 0, 1, ..."""
        return float(min(self.first_s * self.multiplier**turn, self.max_s))


#: As Java's defaults for entries, and for reads of the LAC and long polls.
ENTRY_SPECULATION = Speculation()
LAC_SPECULATION = Speculation(1.5, 5.0, 2.0)


@dataclass(slots=True)
class StickyIndex:
    """The start of a handle's sticky reads; it moves on when that bookie fails (``stickyReadSEnabled``).

    A handle keeps one for all its reads; it counts only where every bookie has every entry (E == Wq).
    """

    index: int = 0


@dataclass(frozen=True, slots=True)
class EntryMissing:
    """No bookie that was asked has the entry; ``bookies`` said so."""

    bookies: tuple[str, ...]


#: The outcome of one entry's read.
EntryOutcome = LedgerEntry | EntryMissing | ClientError


class EntryRead:
    """The read of one entry, a part of a machine. ``done`` is called once.

    ``missing_quorum`` None is an ordinary read: EntryMissing when all of ``bookies`` say so. A number is a
    recovery's: the read has the fence flag and high priority, EntryMissing comes as soon as so many say so,
    and a bookie that does not know never counts among them. ``heard`` collects bookies that answered
    anything, ``slow`` those that keep the operation waiting: later entries ask them last.
    """

    def __init__(
        self,
        exchange: Exchange,
        access: LedgerAccess,
        entry: int,
        bookies: Sequence[str],
        done: Callable[[EntryOutcome], None],
        *,
        heard: set[str],
        slow: set[str],
        speculation: Speculation | None = ENTRY_SPECULATION,
        missing_quorum: int | None = None,
        fence: bool = False,
        on_failure: Callable[[str], None] | None = None,
        on_answer: Callable[[ReadResponse], None] | None = None,
    ) -> None:
        self.entry = entry
        self._exchange = exchange
        self._access = access
        self._bookies = bookies
        self._done = done
        self._heard = heard
        self._slow = slow
        self._speculation = speculation
        self._missing_quorum = len(bookies) if missing_quorum is None else missing_quorum
        priority = HIGH_PRIORITY if fence else 0
        self._request = access.read_request(entry, fence=fence, priority=priority)
        self._on_failure = on_failure
        self._on_answer = on_answer
        self._asked = 0
        self._waiting: dict[Token, str] = {}
        self._timer: Token | None = None
        self._turn = 0
        self._missing: list[str] = []
        self._error: ClientError | None = None

    def begin(self) -> None:
        """Ask the first bookie."""
        self._ask_next()
        self._set_timer()

    def _ask_next(self) -> bool:
        if self._asked >= len(self._bookies):
            return False
        bookie = self._bookies[self._asked]
        self._asked += 1
        token = self._exchange.send(bookie, self._request, partial(self._answered, bookie))
        self._waiting[token] = bookie
        return True

    def _set_timer(self) -> None:
        if self._speculation is not None and self._asked < len(self._bookies):
            seconds = self._speculation.interval_s(self._turn)
            self._timer = self._exchange.set_timer(seconds, self._time_is_up)

    def _time_is_up(self, event: Event) -> None:
        self._timer = None
        self._turn += 1
        self._slow.update(self._waiting.values())
        if not self._heard.intersection(self._bookies[: self._asked]):
            self._ask_next()
        self._set_timer()

    def _answered(self, bookie: str, event: Event) -> None:
        self._waiting.pop(event.token, None)
        if isinstance(event, Answered):
            self._heard.add(bookie)
            self._slow.discard(bookie)
            if self._on_answer is not None and isinstance(event.response, ReadResponse):
                self._on_answer(event.response)
        else:
            self._slow.add(bookie)
        outcome = self._access.outcome(event, self.entry, bookie)
        if isinstance(outcome, LedgerEntry):
            self._end(outcome)
            return
        self._count(outcome)
        if self._on_failure is not None:
            self._on_failure(bookie)
        if len(self._missing) >= self._missing_quorum:
            self._end(EntryMissing(tuple(self._missing)))
        elif not self._ask_next() and not self._waiting:
            self._end(self._failure())

    def _count(self, outcome: NeverHadIt | DoNotKnow) -> None:
        if isinstance(outcome, NeverHadIt):
            self._missing.append(outcome.bookie)
        elif self._error is None:
            self._error = outcome.error

    def _failure(self) -> ClientError:
        """Return the first error: no bookie sent the entry, and too few deny that it was ever written."""
        assert self._error is not None
        return self._error

    def _end(self, outcome: EntryOutcome) -> None:
        self.drop()
        self._done(outcome)

    def drop(self) -> None:
        """Forget the read's requests and its timer, because no caller waits for the entry any more."""
        for token in self._waiting:
            self._exchange.forget(token)
        self._waiting.clear()
        if self._timer is not None:
            self._exchange.forget(self._timer)
            self._timer = None


def read_order(
    metadata: LedgerMetadata,
    entry: int,
    *,
    avoid: Collection[str] = frozenset(),
    sticky: StickyIndex | None = None,
) -> list[str]:
    """Return the write set of ``entry`` in the order in which it is asked; bookies in ``avoid`` come last.

    ``avoid`` is for those that are not registered, read-only or known to be slow
    (``reorderReadSequenceEnabled``).
    """
    distribution = Distribution.of(metadata)
    ensemble = segment_of(metadata, entry).bookies
    if sticky is not None and distribution.ensemble_size == distribution.write_quorum:
        indices = distribution.write_set(sticky.index)
    else:
        indices = distribution.write_set(entry)
    bookies = [ensemble[index] for index in indices]
    return sorted(bookies, key=avoid.__contains__) if avoid else bookies


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Entries in order, and the highest LAC in the bookies' answers (-1: none).

    ``error`` is why there are no more of them, in a read up to an error; None when all are there.
    """

    entries: tuple[LedgerEntry, ...]
    max_lac: int
    error: BkctlError | None = None


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """``parallel_max`` entries are read at once; ``avoid`` as in :func:`read_order`."""

    parallel_max: int = 32
    speculation: Speculation | None = ENTRY_SPECULATION
    avoid: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.parallel_max < 1:
            raise UsageError("parallel_max must be 1 or more")


class ReadMachine(OperationMachine):
    """Read entries ``first`` to ``last``; finishes with a :class:`ReadResult`, all or nothing.

    ``up_to_error`` finishes with all entries below the first one that cannot be read, and with its error.
    ``lac`` is the handle's: an entry above it is refused without asking, unless ``unconfirmed``. The caller
    bounds ``last - first``: all of it is held in memory. Raises UsageError from the constructor when the
    range has no meaning. Errors: NoSuchEntryError, or that of the first bookie which neither sent the entry
    nor denied having it.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        *,
        lac: int,
        unconfirmed: bool = False,
        up_to_error: bool = False,
        sticky: StickyIndex | None = None,
        settings: ReadSettings | None = None,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        if not 0 <= first <= last:
            raise UsageError(f"ledger {access.ledger}: entries {first} to {last} are no range")
        if last > lac and not unconfirmed:
            raise UsageError(
                f"ledger {access.ledger}: entry {last} is not known to be confirmed, only up to {lac}"
            )
        self._access = access
        self._metadata = metadata
        self._sticky = sticky
        self._settings = settings or ReadSettings()
        self._last = last
        self._next = first
        self._first = first
        self._up_to_error = up_to_error
        self._error: BkctlError | None = None
        #: All entries below are found.
        self._end = first
        self._heard: set[str] = set()
        self._slow = set(self._settings.avoid)
        self._found: dict[int, LedgerEntry] = {}
        self._max_lac = -1

    def _begin(self) -> None:
        for _ in range(self._settings.parallel_max):
            self._read_next()

    def _read_next(self) -> None:
        if self._next > self._last:
            return
        entry = self._next
        self._next += 1
        order = read_order(self._metadata, entry, avoid=self._slow, sticky=self._sticky)
        EntryRead(
            self.exchange,
            self._access,
            entry,
            order,
            partial(self._ended, entry),
            heard=self._heard,
            slow=self._slow,
            speculation=self._settings.speculation,
            on_failure=None if self._sticky is None else partial(self._move_on, entry),
            on_answer=self._note_lac,
        ).begin()

    def _ended(self, entry: int, outcome: EntryOutcome) -> None:
        if isinstance(outcome, LedgerEntry):
            self._found[entry] = outcome
        else:
            missing = NoSuchEntryError("no such entry", ledger=self._access.ledger, entry=entry)
            error = missing if isinstance(outcome, EntryMissing) else outcome
            if not self._up_to_error:
                self.exchange.finish(error=error)
                return
            if entry <= self._last:
                self._last, self._error = entry - 1, error
        while self._end in self._found:
            self._end += 1
        if self._end > self._last:
            entries = tuple([self._found[e] for e in range(self._first, self._last + 1)])
            self.exchange.finish(ReadResult(entries, self._max_lac, self._error))
        else:
            self._read_next()

    def _move_on(self, entry: int, bookie: str) -> None:
        sticky = self._sticky
        ensemble = segment_of(self._metadata, entry).bookies
        if sticky is not None and ensemble[sticky.index % len(ensemble)] == bookie:
            sticky.index = (sticky.index + 1) % len(ensemble)

    def _note_lac(self, response: ReadResponse) -> None:
        if response.max_lac is not None:
            self._max_lac = max(self._max_lac, response.max_lac)
