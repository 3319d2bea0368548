"""Checking whether the bookies of a ledger have the entries that the metadata say they have.

An index of a fragment is bad in two cases: its bookie is not registered (even if it holds no entry of the
fragment), or one of the entries that are read does not come back with a digest that checks. An entry that is
corrupt does not count as present, nor does one of which the bookie cannot say whether it has it. Java, which
checks no digest here, takes both for whole.

Of each index the first and the last entry are read, and as many at random between them as ``percentage`` says
(``auditorLedgerVerificationPercentage``). Of a suspected bookie every entry is read: a random choice would
hardly find the same bad entry again.

A bookie that does not answer, or has too much to do, can be asked once more after a pause: it may only be
slow, and replacing it would copy everything that it has.

======= ============================== =====================================================================
state   input                          next state, effect
======= ============================== =====================================================================
NEW     ``start``                      READING, an EntryRead of each of the first ``reads_max`` entries to
                                       look at; an index whose bookie is not registered is bad, and not read
READING an entry                       READING, an EntryRead of the next one that is not of a bad index
READING no answer, or too many         READING, SetTimer before the same EntryRead, once an entry, where
        requests                       ``ask_again_ms`` is given and the index is not bad; else as any other
                                       error
READING EntryMissing, or an error      READING, the index is bad; an EntryRead of the next one
READING no read is left                FINISHED with the bad fragments
======= ============================== =====================================================================

Source: ``org.apache.bookkeeper.client.LedgerChecker``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from bkctl.client.distribution import Distribution
from bkctl.client.errors import BookieRefusalError, DigestMismatchError, NoAnswerError
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, require_quorum_fields
from bkctl.client.ops.read import EntryMissing, EntryOutcome, EntryRead
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import UsageError
from bkctl.replication.fragments import Fragment, StoredEntries
from bkctl.types import ResultCode


class Defect(enum.Enum):
    """Why an index of a fragment is bad; the value is the JSON form.

    No check finds ``LEAVING``: its bookie may have everything, and is taken out of service.
    ``MISPLACED`` has good copies, on a bookie that breaks the placement policy.
    """

    NOT_REGISTERED = "not_registered"
    LEAVING = "leaving"
    MISSING = "missing"
    CORRUPT = "corrupt"
    UNKNOWN = "unknown"
    MISPLACED = "misplaced"


@dataclass(frozen=True, slots=True)
class BadIndex:
    """One index of a fragment without a good copy; ``entry`` is the first that showed it, -1 for none."""

    index: int
    bookie: str
    defect: Defect
    entry: int = -1
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BadFragment:
    """A fragment and its bad indices, ascending."""

    fragment: Fragment
    bad: tuple[BadIndex, ...]


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """``percentage`` of the entries between first and last are read, at most ``reads_max`` at once.

    Of the bookies in ``suspects`` all entries are read, whatever the percentage.
    ``reads_max`` is ``inFlightReadEntryNumInLedgerChecker``; it always has a bound here. ``ask_again_ms`` is
    the pause before a bookie that did not answer is asked once more, None for not at all.
    """

    percentage: int = 0
    reads_max: int = 64
    ask_again_ms: int | None = None
    suspects: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.percentage <= 100 or self.reads_max < 1:
            raise UsageError("percentage must be 0 to 100, reads_max 1 or more")


class FragmentCheckMachine(OperationMachine):
    """Check fragments of a ledger; finishes with a tuple of :class:`BadFragment`, in their order.

    ``registered`` are the bookies that are up, writable or read-only. The check never fails: a bookie from
    which nothing can be learned makes its index bad. The memory does not grow with the entries.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        fragments: Sequence[Fragment],
        registered: Collection[str],
        random: Random,
        settings: CheckSettings | None = None,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self._access = access
        self._distribution = Distribution.of(metadata)
        self._fragments = fragments
        self._registered = registered
        self._random = random
        self._settings = settings or CheckSettings()
        self._bad: dict[tuple[int, int], BadIndex] = {}
        self._probes = self._entries_to_read()
        self._reading = 0
        #: Entries that were asked for twice.
        self._asked_again: set[tuple[int, int, int]] = set()
        self._filling = False

    def _begin(self) -> None:
        self._read_on()

    def _read_on(self) -> None:
        """Keep as many reads going as the settings allow; finish behind the last one."""
        if self._filling:
            return
        self._filling = True
        while self._reading < self._settings.reads_max:
            probe = next(self._probes, None)
            if probe is None:
                break
            self._read(*probe)
        self._filling = False
        if not self._reading:
            self.exchange.finish(self._result())

    def _entries_to_read(self) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the fragment, index, entry); what is known to be bad is read no further."""
        for number, fragment in enumerate(self._fragments):
            for index, bookie in enumerate(fragment.bookies):
                if bookie not in self._registered:
                    self._note(number, index, Defect.NOT_REGISTERED)
                    continue
                stored = StoredEntries(self._distribution, fragment, index)
                percentage = 100 if bookie in self._settings.suspects else self._settings.percentage
                for entry in chosen_entries(stored, percentage, self._random):
                    if (number, index) in self._bad:
                        break
                    yield number, index, entry

    def _read(self, number: int, index: int, entry: int) -> None:
        self._reading += 1
        self._ask(number, index, entry)

    def _ask(self, number: int, index: int, entry: int) -> None:
        EntryRead(
            self.exchange,
            self._access,
            entry,
            [self._fragments[number].bookies[index]],
            partial(self._read_ended, number, index, entry),
            heard=set(),
            slow=set(),
            speculation=None,
        ).begin()

    def _read_ended(self, number: int, index: int, entry: int, outcome: EntryOutcome) -> None:
        probe = (number, index, entry)
        if is_for_now(outcome) and self._may_ask_again(probe):
            return
        self._reading -= 1
        self._asked_again.discard(probe)
        if isinstance(outcome, EntryMissing):
            self._note(number, index, Defect.MISSING, entry, "no such entry")
        elif not isinstance(outcome, LedgerEntry):
            corrupt = isinstance(outcome, DigestMismatchError)
            self._note(number, index, Defect.CORRUPT if corrupt else Defect.UNKNOWN, entry, outcome.message)
        self._read_on()

    def _may_ask_again(self, probe: tuple[int, int, int]) -> bool:
        """Set a timer to ask once more, and return True.

        Return False when that was done before, or when the index is known to be bad anyway.
        """
        pause_ms = self._settings.ask_again_ms
        if pause_ms is None or probe[:2] in self._bad or probe in self._asked_again:
            return False
        self._asked_again.add(probe)
        self.exchange.set_timer(pause_ms / 1000, lambda _: self._ask(*probe))
        return True

    def _note(self, number: int, index: int, defect: Defect, entry: int = -1, detail: str = "") -> None:
        bookie = self._fragments[number].bookies[index]
        self._bad.setdefault((number, index), BadIndex(index, bookie, defect, entry, detail))

    def _result(self) -> tuple[BadFragment, ...]:
        found: dict[int, list[BadIndex]] = {}
        for number, index in sorted(self._bad):
            found.setdefault(number, []).append(self._bad[number, index])
        return tuple([BadFragment(self._fragments[number], tuple(bad)) for number, bad in found.items()])


def is_for_now(outcome: EntryOutcome) -> bool:
    """Return whether the next answer may well be another one."""
    if isinstance(outcome, BookieRefusalError):
        return outcome.code is ResultCode.TOO_MANY_REQUESTS
    return isinstance(outcome, NoAnswerError)


def chosen_entries(stored: StoredEntries, percentage: int, random: Random) -> Iterator[int]:
    """Yield the entries to look at: the first, the last, and one of each of so many equal parts of the rest.

    All of them with a percentage of 100.
    """
    count = stored.count
    if percentage >= 100:
        yield from stored
        return
    if count:
        yield stored[0]
    if count > 1:
        yield stored[count - 1]
    between = count - 2
    parts = between * percentage // 100
    for part in range(parts):
        begin, end = between * part // parts, between * (part + 1) // parts
        yield stored[1 + random.randrange(begin, end)]
