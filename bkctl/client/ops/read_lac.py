"""Asking a ledger's last ensemble for the last add confirmed (LAC), with or without fencing it.

All E bookies are asked. The answer counts once they are *covered* (:meth:`Distribution.covered`): no ack
quorum is left that could all have been silent. With the fence flag every bookie that answered "here" or "no
such entry" refuses the writer from then on, so after coverage the writer gets no ack quorum for a new
entry.

The entry that comes with an answer is not confirmed by it; only its header's LAC is. The ``max_lac`` that a
bookie sends beside the entry decides nothing: no digest covers it, and one bookie that is wrong would have a
recovery close the ledger behind entries that never were. An explicit LAC has a digest. An entry whose digest
does not check still comes from a bookie that carried the request out: it counts as covered when fencing,
where coverage is about that request, and it proves nothing about the LAC. A plain read treats it like an
error (Java counts it).

The read of the LAC (:class:`LacRead`, which is all of :class:`ReadLacMachine`):

====== ======================= =============================================================================
state  input                   next state, effect
====== ======================= =============================================================================
NEW    ``begin``               ASKING, Send to every bookie of the last ensemble
ASKING an answer that counts   ASKING; DONE with LacResult once the bookies are covered, with ``wait_all``
                               once all have answered
ASKING an error, or no answer  ASKING; behind the last bookie DONE with TooFewAnswersError, with
                               ``wait_all`` with LacResult
ASKING the password is refused DONE with AccessDeniedError; with ``wait_all`` as any other error
DONE   an answer               DONE, ``on_late`` where it is given
====== ======================= =============================================================================

The first LAC above a known one (:class:`TryReadLacMachine`):

======= ============================== =====================================================================
state   input                          next state, effect
======= ============================== =====================================================================
NEW     ``start``                      POLLING, Send to every bookie of the last ensemble
POLLING an entry with a higher LAC     FINISHED with that LAC
POLLING any other answer, an error, or POLLING; behind the last bookie FINISHED with the known LAC when one
        no answer                      answer was valid, with the first error when none was
======= ============================== =====================================================================

Source: ``org.apache.bookkeeper.client.ReadLastConfirmedOp``, ``ReadLacAndEntryOp``, ``PendingReadLacOp``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.errors import AccessDeniedError, ClientError, DigestMismatchError, TooFewAnswersError
from bkctl.client.machine import Answered, Event, Token
from bkctl.client.ops.exchange import Exchange, OperationMachine
from bkctl.client.ops.ledger_access import (
    MISSING_CODES,
    DoNotKnow,
    LedgerAccess,
    LedgerEntry,
    NeverHadIt,
    require_quorum_fields,
)
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.protocol.messages import LAST_ADD_CONFIRMED, ReadLacRequest, ReadLacResponse
from bkctl.reporting import counted
from bkctl.types import ResultCode


@dataclass(frozen=True, slots=True)
class ReplicaLac:
    """The answer of one bookie of the ensemble. ``known`` False: it does not count, ``error`` says why.

    ``last_entry`` is the highest entry the bookie has, ``lac`` the highest LAC it knows, ``length`` the
    ledger's length at ``last_entry``; each is -1 (``length`` 0) where the answer does not contain it. The
    answer to a plain read contains only the LAC of an entry that is not there.
    """

    index: int
    bookie: str
    known: bool
    lac: int = -1
    last_entry: int = -1
    length: int = 0
    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class LacResult:
    """``lac`` is the highest LAC in the answers, ``length`` that of the entry which brought it.

    That entry lies above the LAC, so ``length`` is above the length at the LAC. ``replicas`` are the
    answers so far, by index, without bookies that had not answered when coverage was reached.
    """

    lac: int
    length: int
    replicas: tuple[ReplicaLac, ...]

    @property
    def last_entry(self) -> int:
        """The highest entry that any of them has, confirmed or not; -1 when there is none."""
        return max([replica.last_entry for replica in self.replicas], default=-1)


class LacRead:
    """The read of the LAC, a part of a machine. ``done`` is called once.

    ``fence`` asks for the newest entry with the fence flag and the master key; otherwise ``explicit`` asks
    for the explicit LAC as well (v3 only). ``wait_all`` goes on behind coverage until all have answered.
    ``on_late`` is called with each bookie that answers after ``done`` was called.
    """

    def __init__(
        self,
        exchange: Exchange,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        done: Callable[[LacResult | ClientError], None],
        *,
        fence: bool = False,
        explicit: bool = False,
        wait_all: bool = False,
        on_late: Callable[[str], None] | None = None,
    ) -> None:
        self._exchange = exchange
        self._access = access
        self._distribution = Distribution.of(metadata)
        self._bookies = metadata.segments[-1].bookies
        self._done = done
        self._fence = fence
        self._explicit = explicit and not fence
        self._wait_all = wait_all
        self._on_late = on_late
        self._has_ended = False
        self._replicas: dict[int, ReplicaLac] = {}
        self._known: set[int] = set()
        self._waiting: set[Token] = set()

    def begin(self) -> None:
        """Ask every bookie."""
        request = (
            ReadLacRequest(self._access.ledger)
            if self._explicit
            else self._access.read_request(LAST_ADD_CONFIRMED, fence=self._fence)
        )
        for index, bookie in enumerate(self._bookies):
            self._waiting.add(self._exchange.send(bookie, request, partial(self._answered, index, bookie)))

    def _answered(self, index: int, bookie: str, event: Event) -> None:
        self._waiting.discard(event.token)
        if self._has_ended:
            if self._on_late is not None and isinstance(event, Answered):
                self._on_late(bookie)
            return
        if isinstance(event, Answered) and isinstance(event.response, ReadLacResponse):
            replica = self._explicit_answer(index, bookie, event, event.response)
        else:
            replica = self._entry_answer(index, bookie, event)
        self._replicas[index] = replica
        if replica.known:
            self._known.add(index)
        if isinstance(replica.error, AccessDeniedError) and not self._wait_all:
            self._end(replica.error)
        elif (not self._wait_all and self._covered()) or not self._waiting:
            self._end(self._result())

    def _covered(self) -> bool:
        return self._distribution.covered(self._known)

    def _entry_answer(self, index: int, bookie: str, event: Event) -> ReplicaLac:
        outcome = self._access.outcome(event, None, bookie)
        match outcome:
            case LedgerEntry():
                return ReplicaLac(index, bookie, True, outcome.lac, outcome.entry, outcome.length)
            case NeverHadIt():
                return ReplicaLac(index, bookie, True)
            case DoNotKnow(error=error):
                fenced = self._fence and isinstance(error, DigestMismatchError)
                return ReplicaLac(index, bookie, fenced, error=error)

    def _explicit_answer(
        self, index: int, bookie: str, event: Event, response: ReadLacResponse
    ) -> ReplicaLac:
        """Judge an answer to READ_LAC. A Java bookie with an explicit LAC and no entry says EIO and sends it.

        That EIO is no proof of there being no entry, but the LAC is good.
        """
        lac = self._access.explicit_lac(response.lac_body)
        told = -1 if lac is None else lac
        if response.code in MISSING_CODES:
            return ReplicaLac(index, bookie, True, told)
        if response.code is not ResultCode.OK:
            return ReplicaLac(index, bookie, False, told, error=self._access.failure(event, -1, bookie))
        if response.last_entry_body is None:
            return ReplicaLac(index, bookie, True, told)
        outcome = self._access.checked(response.last_entry_body, None, bookie)
        if isinstance(outcome, DoNotKnow):
            return ReplicaLac(index, bookie, False, told, error=outcome.error)
        return ReplicaLac(index, bookie, True, max(told, outcome.lac), outcome.entry, outcome.length)

    def _result(self) -> LacResult | ClientError:
        if not self._covered() and not self._wait_all:
            return self._too_few()
        replicas = tuple([self._replicas[index] for index in sorted(self._replicas)])
        best = max(replicas, key=lambda replica: (replica.lac, replica.known, -replica.last_entry))
        return LacResult(best.lac, best.length if best.lac >= 0 else 0, replicas)

    def _too_few(self) -> TooFewAnswersError:
        unknown = [replica for replica in self._replicas.values() if not replica.known]
        why = "; ".join(str(replica.error) for replica in unknown)
        return TooFewAnswersError(
            f"{len(unknown)} of {counted(len(self._bookies), 'bookie')} did not tell what they have, and "
            f"they could be an ack quorum: {why}",
            ledger=self._access.ledger,
        )

    def _end(self, outcome: LacResult | ClientError) -> None:
        self._has_ended = True
        if self._on_late is None:
            for token in self._waiting:
                self._exchange.forget(token)
        self._done(outcome)


class ReadLacMachine(OperationMachine):
    """Read the LAC of a ledger that is not closed; finishes with a :class:`LacResult`.

    ``explicit`` as v3 clients do (READ_LAC); without it as v2 clients (READ -1). ``wait_all`` waits for
    every bookie and never fails for lack of coverage: see ``result.replicas``. With ``fence`` and
    ``wait_all`` this is the fencing of a ledger by itself. Errors: TooFewAnswersError (not covered),
    AccessDeniedError.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        *,
        explicit: bool = True,
        fence: bool = False,
        wait_all: bool = False,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self._read = LacRead(
            self.exchange,
            access,
            metadata,
            self._ended,
            fence=fence,
            explicit=explicit,
            wait_all=wait_all,
        )

    def _begin(self) -> None:
        self._read.begin()

    def _ended(self, outcome: LacResult | ClientError) -> None:
        if isinstance(outcome, BkctlError):
            self.exchange.finish(error=outcome)
        else:
            self.exchange.finish(outcome)


class TryReadLacMachine(OperationMachine):
    """Read the LAC: the first answer above ``known_lac``, else the highest; finishes with an int.

    Fails only when no bookie gave a valid answer, with the first one's error (``tryReadLastConfirmed``).
    """

    def __init__(self, access: LedgerAccess, metadata: LedgerMetadata, known_lac: int) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self._access = access
        self._bookies = metadata.segments[-1].bookies
        self._lac = known_lac
        self._known_lac = known_lac
        self._left = len(self._bookies)
        self._valid = False
        self._error: ClientError | None = None

    def _begin(self) -> None:
        request = self._access.read_request(LAST_ADD_CONFIRMED)
        for bookie in self._bookies:
            self.exchange.send(bookie, request, partial(self._answered, bookie))

    def _answered(self, bookie: str, event: Event) -> None:
        self._left -= 1
        outcome = self._access.outcome(event, None, bookie)
        if isinstance(outcome, DoNotKnow):
            self._error = self._error or outcome.error
        else:
            self._valid = True
        if isinstance(outcome, LedgerEntry):
            self._lac = max(self._lac, outcome.lac)
        if self._lac > self._known_lac or (self._left == 0 and self._valid):
            self.exchange.finish(self._lac)
        elif self._left == 0:
            self.exchange.finish(error=self._error)
