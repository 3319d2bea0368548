"""Waiting for the next entry of a ledger that is being written: long polls.

Bookies are asked one after the other, each waits up to the poll's time for its LAC to reach the entry; the
next one is asked early when nobody has answered. It ends with the entry, with a LAC that has reached it
(the bookie did not have the entry itself: an ordinary read follows), or after E - Aq + 1 answers without
either: then no ack quorum knows more.

======= ============================== =====================================================================
state   input                          next state, effect
======= ============================== =====================================================================
NEW     ``start``                      POLLING, Send to the first bookie; SetTimer where there is a next one
POLLING the timer                      POLLING, Send to the next bookie and SetTimer where there is one
                                       behind it, unless a bookie has answered something
POLLING the entry, proved              FINISHED with the entry and the highest LAC
POLLING nothing there, a LAC that has  FINISHED with the LAC
        reached the entry
POLLING nothing there, a lower LAC     FINISHED with the LAC when it is the E - Aq + 1st such answer; else
                                       POLLING, Send to the next bookie
POLLING an error, or no answer         POLLING, Send to the next bookie
POLLING no bookie is left, and none is FINISHED with the first error, NoSuchEntryError where there was none
        outstanding
======= ============================== =====================================================================

Source: ``org.apache.bookkeeper.client.ReadLastConfirmedAndEntryOp``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.errors import ClientError, NoSuchEntryError
from bkctl.client.machine import Answered, Event, Token
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import (
    MISSING_CODES,
    LedgerAccess,
    LedgerEntry,
    require_quorum_fields,
)
from bkctl.client.ops.read import LAC_SPECULATION, Speculation
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import UsageError
from bkctl.protocol.messages import LAST_ADD_CONFIRMED, ReadRequest, ReadResponse
from bkctl.types import ResultCode


@dataclass(frozen=True, slots=True)
class TailResult:
    """The highest LAC in the answers, and the entry when it came along.

    A LAC below the wanted entry means that the wait ended without it.
    """

    lac: int
    entry: LedgerEntry | None = None


class TailMachine(OperationMachine):
    """Wait up to ``timeout_ms`` a bookie for ``entry``, which is above ``lac``; finishes with a TailResult.

    v3 only. The metadata is that of an open ledger; the segment asked is its last, bookies in ``avoid`` come
    last. Errors: that of the first bookie, when fewer than E - Aq + 1 gave a valid answer.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        entry: int,
        *,
        lac: int,
        timeout_ms: int,
        avoid: Collection[str] = frozenset(),
        speculation: Speculation | None = LAC_SPECULATION,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        if entry <= lac or timeout_ms < 0:
            raise UsageError(
                f"ledger {access.ledger}: entry {entry} is confirmed, there is nothing to wait for"
            )
        distribution = Distribution.of(metadata)
        ensemble = metadata.segments[-1].bookies
        self._access = access
        self._entry = entry
        bookies = [ensemble[index] for index in distribution.ensemble_set(entry)]
        self._bookies = sorted(bookies, key=avoid.__contains__)
        self._enough = distribution.ensemble_size - distribution.ack_quorum + 1
        self._request = ReadRequest(
            access.ledger,
            LAST_ADD_CONFIRMED,
            piggyback=True,
            previous_lac=entry - 1,
            timeout_ms=timeout_ms,
        )
        self._speculation = speculation
        self._lac = lac
        self._asked = 0
        self._waiting: set[Token] = set()
        self._empty = 0
        self._turn = 0
        self._timer: Token | None = None
        self._answered_any = False
        self._error: ClientError | None = None

    def _begin(self) -> None:
        self._ask_next()
        self._set_timer()

    def _ask_next(self) -> None:
        if self._asked < len(self._bookies):
            bookie = self._bookies[self._asked]
            self._asked += 1
            self._waiting.add(self.exchange.send(bookie, self._request, partial(self._answered, bookie)))

    def _set_timer(self) -> None:
        if self._speculation is not None and self._asked < len(self._bookies):
            seconds = self._speculation.interval_s(self._turn)
            self._timer = self.exchange.set_timer(seconds, self._slow)

    def _slow(self, event: Event) -> None:
        self._turn += 1
        if not self._answered_any:
            self._ask_next()
            self._set_timer()

    def _answered(self, bookie: str, event: Event) -> None:
        self._waiting.discard(event.token)
        self._answered_any = self._answered_any or isinstance(event, Answered)
        response = event.response if isinstance(event, Answered) else None
        if not isinstance(response, ReadResponse):
            self._failed(self._access.failure(event, self._entry, bookie))
        elif response.code is ResultCode.OK and response.body is not None:
            found = self._access.checked(response.body, self._entry, bookie)
            if isinstance(found, LedgerEntry):
                self._lac = max(self._lac, found.lac, response.max_lac or -1, self._entry)
                self.exchange.finish(TailResult(self._lac, found))
            else:
                self._failed(found.error)
        elif response.code is ResultCode.OK or response.code in MISSING_CODES:
            self._nothing_there(-1 if response.max_lac is None else response.max_lac)
        else:
            self._failed(self._access.failure(event, self._entry, bookie))

    def _nothing_there(self, told: int) -> None:
        self._empty += 1
        self._lac = max(self._lac, told)
        if self._lac >= self._entry or self._empty >= self._enough:
            self.exchange.finish(TailResult(self._lac))
        else:
            self._go_on()

    def _failed(self, error: ClientError) -> None:
        self._error = self._error or error
        self._go_on()

    def _go_on(self) -> None:
        self._ask_next()
        if not self._waiting:
            nobody = NoSuchEntryError("nobody has it", ledger=self._access.ledger, entry=self._entry)
            self.exchange.finish(error=self._error or nobody)
