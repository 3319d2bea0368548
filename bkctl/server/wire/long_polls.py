"""Reads that wait until a ledger's last add confirmed has moved (Java: ``LongPollReadEntryProcessorV3``).

A wait holds no thread: the engine reports when the LAC moves, a timer of the event loop when the time is
over, and the first of the two takes the answer to the read stage. When a client goes, its waits end with it.

Many waits may end at once: one add ends all those of its ledger, one client that goes all of its own. The
event loop ends them some at a time and serves everybody else in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bkctl.clock import Clock
from bkctl.engine.bookie import Bookie
from bkctl.engine.lac_watches import LacWatch
from bkctl.engine.read_stage import LAST_ENTRY
from bkctl.errors import BkctlError, BookieError, NoEntryError, TooManyRequestsError
from bkctl.metrics.stage import StageMeter
from bkctl.protocol.messages import ReadRequest, Response
from bkctl.server.wire.answer_codes import code_of_any
from bkctl.server.wire.connection_memory import POLL_BYTES, ConnectionMemory
from bkctl.server.wire.request_meters import RequestMeters
from bkctl.server.wire.stage_pool import StagePool
from bkctl.types import ResultCode

#: Takes a request's answer, from any thread.
Respond = Callable[[Response], None]


class Client(Protocol):
    """The client that asks."""

    @property
    def gone(self) -> bool:
        """Whether it gets no answer any more."""


#: A client that asks for more waits this long.
TIMEOUT_MS_MAX = 600_000

_WAITING = "serving a long poll"
#: Waits that end in one turn of the event loop: less than half a millisecond. An add takes several turns.
_ENDS_PER_TURN = 24


class LongPolls:
    """At most ``polls_max`` waits, ``polls_per_client_max`` of a client; one more gets too-many-requests.

    ``make_room`` is called for each wait that is refused because there are too many in all: it ends the waits
    of a client that has gone, if there is one, so that the next try finds a place.
    """

    def __init__(
        self,
        bookie: Bookie,
        read_stage: StagePool,
        loop: asyncio.AbstractEventLoop,
        meters: RequestMeters,
        clock: Clock,
        *,
        memory: ConnectionMemory,
        polls_max: int,
        polls_per_client_max: int,
        make_room: Callable[[], object] = lambda: None,
    ) -> None:
        self.meter = StageMeter("long_poll", bound=polls_max, unit="requests")
        self.meter.waited = meters.steps["READ_ENTRY_LONG_POLL_WAIT"]
        self.meter.worked = meters.steps["READ_ENTRY_LONG_POLL_READ"]
        self._bookie = bookie
        self._read_stage = read_stage
        self._loop = loop
        self._memory = memory
        self._meters = meters
        self._now_s = clock.monotonic
        self._waits: dict[Client, set[_Wait]] = {}
        self._per_client_max = polls_per_client_max
        self._make_room = make_room
        self._per_client: Counter[Client] = Counter()
        # How waits end whose turn has not come; any thread puts something in.
        self._ends_lock = threading.Lock()
        self._ends: deque[Callable[[], None]] = deque()
        self._ending = False

    def start(self, request: ReadRequest, respond: Respond, client: Client) -> None:
        """Begin a wait. On the loop's thread. Raises TooManyRequestsError."""
        if self.meter.length >= self.meter.bound or self._per_client[client] >= self._per_client_max:
            self.meter.rejected += 1
            if self.meter.length >= self.meter.bound:
                self._make_room()
            raise TooManyRequestsError("too many long polls are waiting")
        self._count(client, 1)
        try:
            # The LAC may have to be read from disk first.
            finish = partial(self._finish, respond, client)
            self._read_stage.submit(partial(self._look, request, finish, client, self._now_s()))
        except BkctlError:
            self._count(client, -1)
            raise

    def _count(self, client: Client, change: int) -> None:
        self.meter.length += change
        self._memory.take(change * POLL_BYTES)
        self._per_client[client] += change
        if not self._per_client[client]:
            del self._per_client[client]

    def _finish(self, respond: Respond, client: Client, response: Response) -> None:
        respond(response)
        self._loop.call_soon_threadsafe(self.ended, client)

    def ended(self, client: Client) -> None:
        """Note that a wait was answered, or has ended with its client. On the loop's thread."""
        self._count(client, -1)
        self.meter.done += 1

    def end_soon(self, end: Callable[[], None]) -> None:
        """Have the loop end a wait when its turn comes. From any thread."""
        with self._ends_lock:
            self._ends.append(end)
            first, self._ending = not self._ending, True
        if first:
            self._loop.call_soon_threadsafe(self._end_some)

    def _end_some(self) -> None:
        """Let some waits end in the loop's next turn, and look at the others behind them."""
        with self._ends_lock:
            some = [self._ends.popleft() for _ in range(min(len(self._ends), _ENDS_PER_TURN))]
            self._ending = bool(self._ends)
            more = self._ending
        for end in some:
            self._loop.call_soon(end)
        if more:
            self._loop.call_soon(self._end_some)

    def forget(self, client: Client) -> None:
        """Forget a client that is gone, with its waits. On the loop's thread."""
        for wait in self._waits.pop(client, set()):
            self.end_soon(wait.end_unanswered)

    def keep(self, client: Client, wait: _Wait) -> None:
        """Keep a wait that has begun. On the loop's thread."""
        self._waits.setdefault(client, set()).add(wait)

    def drop(self, client: Client, wait: _Wait) -> None:
        """Drop a wait that is over. On the loop's thread."""
        waits = self._waits.get(client)
        if waits is not None:
            waits.discard(wait)
            if not waits:
                del self._waits[client]

    def _look(self, request: ReadRequest, respond: Respond, client: Client, since_s: float) -> None:
        """Answer a long poll at once, or set the wait up. On the read stage."""
        assert request.previous_lac is not None
        try:
            self._bookie.reads.last_add_confirmed(request.ledger)
            if request.timeout_ms is None:
                self._answer(request, respond, None)
                return
            began_s = self._now_s()
            self._meters.measured("READ_ENTRY_LONG_POLL_PRE_WAIT", began_s - since_s)
            wait = _Wait(self, request, respond, client, began_s)
            watch = self._bookie.reads.watch(request.ledger, request.previous_lac, wait.changed)
        except Exception as error:  # noqa: BLE001 - without an answer it would keep its place for good
            respond(request.refuse(code_of_any(_WAITING, error)))
            return
        if watch is None:
            self._answer(request, respond, None)
        else:
            self._loop.call_soon_threadsafe(wait.set_timer, watch)

    def resume(self, request: ReadRequest, respond: Respond, changed_ms: int | None, began_s: float) -> None:
        """Answer a wait that began at ``began_s`` from the read stage, or refuse it when that is full."""
        self._meters.measured("READ_ENTRY_LONG_POLL_WAIT", self._now_s() - began_s)
        try:
            self._read_stage.submit(partial(self._answer, request, respond, changed_ms))
        except BookieError as error:
            respond(request.refuse(error.code))

    def _answer(self, request: ReadRequest, respond: Respond, changed_ms: int | None) -> None:
        started_s = self._now_s()
        respond(self._read(request, changed_ms))
        self._meters.measured("READ_ENTRY_LONG_POLL_READ", self._now_s() - started_s)

    def _read(self, request: ReadRequest, changed_ms: int | None) -> Response:
        assert request.previous_lac is not None
        reads = self._bookie.reads
        try:
            lac = reads.last_add_confirmed(request.ledger)
            if not request.piggyback:
                body = reads.read(request.ledger, request.entry)
                return request.answer(ResultCode.OK, body, max_lac=lac)
            entry, found = LAST_ENTRY, None
            if lac > request.previous_lac:
                try:
                    found = reads.read(request.ledger, request.previous_lac + 1)
                    entry = request.previous_lac + 1
                except NoEntryError:
                    changed_ms = None
        except Exception as error:  # noqa: BLE001 - as in `_look`
            return request.refuse(code_of_any(_WAITING, error))
        return request.answer(
            ResultCode.OK,
            found,
            entry=entry,
            max_lac=lac,
            lac_update_ms=changed_ms if found is not None else None,
        )

    @property
    def bookie(self) -> Bookie:
        """The engine."""
        return self._bookie

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that has the timers."""
        return self._loop


class _Wait:
    """One wait. Whichever of timer and change takes the watch away answers; the other finds it gone."""

    __slots__ = ("_began_s", "_changed", "_client", "_polls", "_request", "_respond", "_timer", "_watch")

    def __init__(
        self, polls: LongPolls, request: ReadRequest, respond: Respond, client: Client, began_s: float
    ) -> None:
        self._began_s = began_s
        self._client = client
        self._polls = polls
        self._request = request
        self._respond = respond
        self._timer: asyncio.TimerHandle | None = None
        self._watch: LacWatch | None = None
        self._changed = False

    def set_timer(self, watch: LacWatch) -> None:
        """Begin to count the time of the wait. On the loop's thread."""
        assert self._request.timeout_ms is not None
        if self._changed:
            return
        self._watch = watch
        if self._client.gone:
            self.end_unanswered()
            return
        self._polls.keep(self._client, self)
        timeout_ms = min(max(self._request.timeout_ms, 0), TIMEOUT_MS_MAX)
        self._timer = self._polls.loop.call_later(timeout_ms / 1000, self._time_over)

    def changed(self, _: int, changed_ms: int | None) -> None:
        """End the wait when the LAC moved, or the ledger was fenced or deleted. From any thread."""
        self._polls.end_soon(partial(self._answer, changed_ms))

    def _answer(self, changed_ms: int | None) -> None:
        """Answer the request and let go of the wait. On the loop's thread."""
        self._changed = True
        if self._timer is not None:
            self._polls.drop(self._client, self)
        self._let_go()
        self._polls.resume(self._request, self._respond, changed_ms, self._began_s)

    def _time_over(self) -> None:
        self._polls.drop(self._client, self)
        if self._unwatch():
            self._polls.resume(self._request, self._respond, None, self._began_s)

    def end_unanswered(self) -> None:
        """End the wait of a client that is gone; if the change has the watch, that one ends the wait."""
        if self._unwatch():
            self._polls.ended(self._client)

    def _unwatch(self) -> bool:
        """Return whether the wait was not ended before."""
        watch = self._let_go()
        return watch is not None and self._polls.bookie.reads.unwatch(self._request.ledger, watch)

    def _let_go(self) -> LacWatch | None:
        """Give up timer and watch, which lead back here: a wait must not end as a cycle."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        watch, self._watch = self._watch, None
        return watch
