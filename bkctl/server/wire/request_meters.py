"""Measure requests that come one by one, by their kind (Java: ``RequestStats``).

Runs of plain adds and reads are counted where they are served, once for each run.
"""

from __future__ import annotations

import enum
import threading

from bkctl.metrics.latency import LatencyHistogram
from bkctl.protocol.messages import (
    AddRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
    WriteLacRequest,
)
from bkctl.types import ResultCode


class RequestKind(enum.Enum):
    """Kinds of requests; the value is the name of BookKeeper's metric, to which it adds ``_REQUEST``."""

    ADD = "ADD_ENTRY"
    READ = "READ_ENTRY"
    FENCE = "READ_ENTRY_FENCE"
    LONG_POLL = "READ_ENTRY_LONG_POLL"
    READ_LAC = "READ_LAC"
    WRITE_LAC = "WRITE_LAC"
    FORCE_LEDGER = "FORCE_LEDGER"
    BOOKIE_INFO = "GET_BOOKIE_INFO"
    LIST_OF_ENTRIES = "GET_LIST_OF_ENTRIES_OF_LEDGER"
    OTHER = "OTHER"


_KINDS: dict[type[Request], RequestKind] = {
    AddRequest: RequestKind.ADD,
    ReadLacRequest: RequestKind.READ_LAC,
    WriteLacRequest: RequestKind.WRITE_LAC,
    ForceLedgerRequest: RequestKind.FORCE_LEDGER,
    BookieInfoRequest: RequestKind.BOOKIE_INFO,
    ListOfEntriesRequest: RequestKind.LIST_OF_ENTRIES,
}


def kind_of(request: Request) -> RequestKind:
    """Return the kind that a request counts as."""
    if isinstance(request, ReadRequest | BatchReadRequest):
        if request.fence:
            return RequestKind.FENCE
        is_long_poll = isinstance(request, ReadRequest) and request.long_poll
        return RequestKind.LONG_POLL if is_long_poll else RequestKind.READ
    return _KINDS.get(type(request), RequestKind.OTHER)


class RequestMeter:
    """The meter of one kind of request.

    ``answered`` has the time from a request to its successful answer, ``failed`` counts other answers.

    ``done`` counts both, with or without statistics.
    """

    __slots__ = ("answered", "done", "failed")

    def __init__(self) -> None:
        self.answered = LatencyHistogram()
        self.done = 0
        self.failed = 0


class RequestMeters:
    """All kinds, on the event loop's thread; what other threads measure goes through :meth:`measured`.

    ``steps`` are parts of requests, by the names of BookKeeper's metrics: ``READ_ENTRY_FENCE_WAIT``,
    ``READ_ENTRY_FENCE_READ``, ``READ_ENTRY_LONG_POLL_PRE_WAIT``, ``READ_ENTRY_LONG_POLL_WAIT``,
    ``READ_ENTRY_LONG_POLL_READ``, ``GET_BOOKIE_INFO``, ``GET_LIST_OF_ENTRIES_OF_LEDGER``, ``READ_LAC``.
    """

    def __init__(self) -> None:
        self.kinds = {kind: RequestMeter() for kind in RequestKind}
        self.steps = {name: LatencyHistogram() for name in STEPS}
        self.recovery_adds = LatencyHistogram()
        self.failed_recovery_adds = 0
        #: Asked for a ledger's newest entry where there was none.
        self.last_entry_missing = 0
        self._lock = threading.Lock()

    def ended(self, request: Request, code: ResultCode, time_s: float) -> None:
        """Count a request that was answered."""
        good = code in _SERVED
        meter = self.kinds[kind_of(request)]
        meter.done += 1
        if good:
            meter.answered.add(time_s)
        else:
            meter.failed += 1
        if isinstance(request, AddRequest) and request.recovery:
            if good:
                self.recovery_adds.add(time_s)
            else:
                self.failed_recovery_adds += 1

    def measured(self, step: str, time_s: float) -> None:
        """Count the time that a part of a request took. From any thread."""
        with self._lock:
            self.steps[step].add(time_s)


#: Parts of requests that are measured.
STEPS = (
    "READ_ENTRY_FENCE_WAIT",
    "READ_ENTRY_FENCE_READ",
    "READ_ENTRY_LONG_POLL_PRE_WAIT",
    "READ_ENTRY_LONG_POLL_WAIT",
    "READ_ENTRY_LONG_POLL_READ",
    "GET_BOOKIE_INFO",
    "GET_LIST_OF_ENTRIES_OF_LEDGER",
    "READ_LAC",
)
_SERVED = frozenset({ResultCode.OK})


def answer_code(response: Response) -> ResultCode:
    """Return the code of an answer; one that has none went well."""
    code = getattr(response, "code", ResultCode.OK)
    return code if isinstance(code, ResultCode) else ResultCode.OK
