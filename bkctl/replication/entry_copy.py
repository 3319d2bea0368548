"""Copying one entry: read it from a replica that the digest proves, add it to targets, read it back there.

A target that holds a good copy already is left alone, so that a copy that was interrupted goes on where it
was. The entry is written as its writer made it: last add confirmed, length and payload are the source's, and
so are the bytes.

======= ========================= ==========================================================================
state   input                     next state, effect
======= ========================= ==========================================================================
NEW     ``begin``                 PROBING, an EntryRead of each target that may have it; without any
                                  READING, an EntryRead of the sources
PROBING all of them answered      READING, an EntryRead of the sources, for the targets without a good copy;
                                  DONE when there is none
READING the entry                 ADDING, Send to every target; WAITING, SetTimer where the rate says so
READING EntryMissing, or an error DONE, ``no_source``
WAITING the timer                 ADDING, Send to every target
ADDING  OK from a target          ADDING, an EntryRead of that target alone
ADDING  an error of a target      ADDING, ``target_failed``; DONE behind the last target
ADDING  read back, the same bytes ADDING; DONE behind the last target
ADDING  read back, anything else  ADDING, ``target_failed``; DONE behind the last target
======= ========================= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from bkctl.client.errors import ClientError, DigestMismatchError, NoSuchEntryError
from bkctl.client.machine import Event
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, answer_code
from bkctl.client.ops.read import EntryMissing, EntryOutcome, EntryRead, Speculation
from bkctl.replication.rate import ByteRate
from bkctl.types import ResultCode


@dataclass(slots=True)
class CopyCounts:
    """The entries read and written so far; an entry counts once for each bookie it was written to.

    ``read_s`` and ``write_s`` are what the reads and the adds of these took, all together.
    """

    entries_read: int = 0
    bytes_read: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    entries_unreadable: int = 0
    read_s: float = 0.0
    write_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CopyRules:
    """The rules that the copies of all entries of a fragment share.

    ``keepers`` are targets that may hold a good copy already: they are asked first. ``slow`` collects bookies
    that keep the copy waiting.
    """

    access: LedgerAccess
    rate: ByteRate
    speculation: Speculation | None
    keepers: Collection[str] = frozenset()
    slow: set[str] = field(default_factory=set)
    counts: CopyCounts = field(default_factory=CopyCounts)


class EntryCopy:
    """One entry on its way, a part of a machine.

    ``sources`` are the bookies to read from, the likely ones first. ``no_source`` is called when none of them
    has it, ``target_failed`` for each of the targets that did not take it, ``done`` once at the end of all.
    """

    def __init__(
        self,
        exchange: Exchange,
        rules: CopyRules,
        entry: int,
        sources: Sequence[str],
        targets: Collection[str],
        *,
        no_source: Callable[[int, ClientError], None],
        target_failed: Callable[[int, str, ClientError], None],
        done: Callable[[EntryCopy], None],
    ) -> None:
        self.entry = entry
        #: Bytes that are held for it, 0 before it is read.
        self.held_bytes = 0
        self._exchange = exchange
        self._rules = rules
        self._access = rules.access
        self._sources = sources
        self._targets = sorted(targets)
        self._no_source = no_source
        self._target_failed = target_failed
        self._done = done
        self._body = b""
        self._asked = 0
        self._left = 0
        self._began_s = 0.0

    def begin(self) -> None:
        """Ask the targets that may have the entry; read the entry for the others."""
        keepers = [target for target in self._targets if target in self._rules.keepers]
        self._asked = len(keepers)
        if not keepers:
            self._read_source()
        for target in keepers:
            self._read(self.entry, [target], partial(self._keeper_answered, target))

    def _keeper_answered(self, target: str, outcome: EntryOutcome) -> None:
        if isinstance(outcome, LedgerEntry):
            self._targets.remove(target)
        self._asked -= 1
        if self._asked:
            return
        if self._targets:
            self._read_source()
        else:
            self._done(self)

    # --- read -----------------------------------------------------------------------------------------------

    def _read_source(self) -> None:
        self._began_s = self._rules.rate.now_s()
        self._read(self.entry, self._sources, self._source_read)

    def _read(self, entry: int, bookies: Sequence[str], ended: Callable[[EntryOutcome], None]) -> None:
        EntryRead(
            self._exchange,
            self._access,
            entry,
            bookies,
            ended,
            heard=set(),
            slow=self._rules.slow,
            speculation=self._rules.speculation if len(bookies) > 1 else None,
        ).begin()

    def _source_read(self, outcome: EntryOutcome) -> None:
        if not isinstance(outcome, LedgerEntry):
            self._rules.counts.entries_unreadable += 1
            self._no_source(self.entry, self._unreadable(outcome))
            self._done(self)
            return
        self._body = self._access.encode(outcome.entry, outcome.lac, outcome.length, outcome.payload)
        self.held_bytes = len(self._body)
        self._rules.counts.entries_read += 1
        self._rules.counts.read_s += self._rules.rate.now_s() - self._began_s
        self._rules.counts.bytes_read += self.held_bytes
        wait_s = self._rules.rate.reserve(self.held_bytes * len(self._targets))
        if wait_s > 0:
            self._exchange.set_timer(wait_s, self._add)
        else:
            self._add(None)

    def _unreadable(self, outcome: EntryMissing | ClientError) -> ClientError:
        if isinstance(outcome, ClientError):
            return outcome
        names = ", ".join(outcome.bookies)
        return NoSuchEntryError(f"no replica has it: {names}", ledger=self._access.ledger, entry=self.entry)

    # --- write and read back --------------------------------------------------------------------------------

    def _add(self, _: Event | None) -> None:
        self._left = len(self._targets)
        self._began_s = self._rules.rate.now_s()
        request = self._access.copy_request(self.entry, self._body)
        for target in self._targets:
            self._exchange.send(target, request, partial(self._added, target))

    def _added(self, target: str, event: Event) -> None:
        if answer_code(event) is not ResultCode.OK:
            self._failed(target, self._access.failure(event, self.entry, target))
            return
        self._rules.counts.entries_written += 1
        self._rules.counts.write_s += self._rules.rate.now_s() - self._began_s
        self._rules.counts.bytes_written += self.held_bytes
        self._read(self.entry, [target], partial(self._read_back, target))

    def _read_back(self, target: str, outcome: EntryOutcome) -> None:
        if not isinstance(outcome, LedgerEntry):
            self._failed(target, self._unreadable(outcome))
        elif self._access.encode(outcome.entry, outcome.lac, outcome.length, outcome.payload) != self._body:
            text = "it was read back with other bytes than were written"
            error = DigestMismatchError(text, ledger=self._access.ledger, entry=self.entry, bookie=target)
            self._failed(target, error)
        else:
            self._target_ended()

    def _failed(self, target: str, error: ClientError) -> None:
        self._target_failed(self.entry, target, error)
        self._target_ended()

    def _target_ended(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(self)
