"""An elected auditor's watch over bookies: it audits them when some are lost, and from time to time.

Bookies that come and go are noticed while an audit runs, too, so that each bookie's delay begins when it
goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bkctl.errors import BkctlError
from bkctl.replication.auditor_office import NotElectedError, Office
from bkctl.replication.auditor_status import Counter
from bkctl.replication.lost_bookies import LostBookies

_LOG = logging.getLogger(__name__)

#: How soon a store that did not answer is asked again.
RETRY_S = 1.0

#: How long after an audit of lost bookies another one is made. A recovery that had chosen one of them, or a
#: copy to it that was just over, names it in metadata that the audit has read before. The first audit counts
#: as one of lost bookies: who went before that and has no cookie is not known to be gone.
FOLLOW_UP_S = 600.0


class BookieAudits:
    """The watch over bookies. ``check`` audits all bookies once, ``failed`` gets the error that held it up.

    ``version`` is how often the delay was written when ``lost`` was made. ``wake`` is set when bookies, the
    delay or the switch may have changed.
    """

    def __init__(
        self,
        office: Office,
        lost: LostBookies,
        version: int,
        wake: asyncio.Event,
        check: Callable[[], Awaitable[object]],
        failed: Callable[[BkctlError], None],
    ) -> None:
        self._office = office
        self._lost = lost
        self._version = version
        self._wake = wake
        self._check = check
        self._failed = failed
        self._audit: asyncio.Task[None] | None = None
        self._rests = office.rests
        #: When all bookies are audited without a reason; at first at once.
        self._check_at_s: float | None = office.clock.monotonic()
        #: When they are audited once more because some were lost; an earlier audit does not do for that one.
        self._follow_up_at_s: float | None = None
        self._is_first = True
        self._tell_the_others()

    async def run(self) -> None:
        """Watch the bookies until cancelled. Raises NotElectedError."""
        try:
            while True:
                self._wake.clear()
                try:
                    await self._go_on()
                except NotElectedError:
                    raise
                except BkctlError as error:
                    self._failed(error)
                    await self._office.pause(RETRY_S)
                    continue
                await self._office.wait(self._wake, self._seconds_left())
        finally:
            if self._audit is not None:
                self._audit.cancel()
                await asyncio.gather(self._audit, return_exceptions=True)

    async def _go_on(self) -> None:
        office, lost = self._office, self._lost
        if self._audit is not None and self._audit.done():
            ended, self._audit = self._audit, None
            ended.result()
        await office.until_enabled()
        if self._rests != office.rests:
            self._rests = office.rests
            lost.begin_anew()
            self._tell_the_others()
        await self._look()
        if self._rests != office.rests:
            # Switched off while the store was asked, and perhaps on again: the times away are over, and a
            # switch wakes this watch.
            return
        now_s = office.clock.monotonic()
        is_due = any(now_s >= at_s for at_s in self._times()) and lost.due_s is None
        if self._audit is None and (lost.time_is(now_s) or is_due):
            if self._follow_up_at_s is not None and now_s >= self._follow_up_at_s:
                self._follow_up_at_s = None
            interval_s = office.settings.bookie_check_interval_s
            self._check_at_s = now_s + interval_s if interval_s else None
            self._audit = asyncio.create_task(self._audit_bookies())
            self._audit.add_done_callback(lambda _: self._wake.set())

    def _seconds_left(self) -> float | None:
        """Return how long nothing is to be done, unless something happens."""
        due_s = self._lost.due_s
        wanted = [] if due_s is None else [due_s]
        if self._audit is None and due_s is None:
            wanted = self._times()
        return min(wanted) - self._office.clock.monotonic() if wanted else None

    def _times(self) -> list[float]:
        """Return when bookies are audited without being asked."""
        return [at_s for at_s in (self._check_at_s, self._follow_up_at_s) if at_s is not None]

    async def _look(self) -> None:
        """Give ``lost`` everything that is known now."""
        office, lost = self._office, self._lost
        up = await office.up()
        written = await office.in_thread(office.store.underreplication.lost_bookie_recovery_delay_written)
        now_s = office.clock.monotonic()
        before = (lost.delayed, lost.cancelled)
        lost.bookies_are(up, now_s)
        if written is not None and written[1] != self._version:
            self._version = written[1]
            lost.delay_written(written[0], now_s)
        lost.time_is(now_s)
        office.counts.add(Counter.AUDITS_DELAYED, lost.delayed - before[0])
        office.counts.add(Counter.DELAYED_AUDITS_CANCELLED, lost.cancelled - before[1])
        self._tell_the_others()

    def _tell_the_others(self) -> None:
        self._office.is_audit_pending = self._lost.is_pending
        self._office.spared = self._lost.spared

    async def _audit_bookies(self) -> None:
        gone = self._lost.begin_audit()
        self._tell_the_others()
        if gone:
            _LOG.warning("bookies are lost, their ledgers are marked: %s", ", ".join(sorted(gone)))
        try:
            await self._check()
        except BaseException:
            self._lost.audit_failed()
            raise
        finally:
            self._tell_the_others()
        self._lost.audited()
        if gone or self._is_first:
            self._is_first = False
            self._follow_up_at_s = self._office.clock.monotonic() + FOLLOW_UP_S
