"""When bookies that are gone are taken for lost (``lostBookieRecoveryDelay``). Pure: the time is passed in.

One bookie that goes may be back soon, as in a rolling restart: its ledgers are looked at only after the
delay, and not at all when it is back by then. Two that are gone at once, or a delay of 0, leave no time: all
bookies are audited at once. A delay that is written again with the value that it had, or with 0, is a request
for an audit at once, too.

Source: ``org.apache.bookkeeper.replication.Auditor`` (``submitAuditTask``,
``submitLostBookieRecoveryDelayChangedEvent``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class LostBookies:
    """Which bookies are gone, and when to audit.

    ``known`` are bookies that should be up: at first those that have a cookie, then all that were ever seen.
    The methods that take something in return whether bookies are to be audited now; then :meth:`begin_audit`
    is called, and at its end :meth:`audited` or :meth:`audit_failed`. ``delayed`` and ``cancelled`` count
    audits, as Java's counters do.
    """

    def __init__(self, known: Iterable[str], delay_s: int) -> None:
        self._known = set(known)
        self._gone: set[str] = set()
        self._in_audit: set[str] = set()
        #: Bookies of an audit that did not come to its end, which is made again.
        self._again: set[str] = set()
        self._is_wanted_again = False
        self._due_s: float | None = None
        self._is_asked = False
        self._delay_s = delay_s
        self.delayed = 0
        self.cancelled = 0

    @property
    def gone(self) -> frozenset[str]:
        """Bookies that are gone and were not audited yet."""
        return frozenset(self._gone | self._again)

    @property
    def known(self) -> frozenset[str]:
        """Bookies that should be up, those that are gone included."""
        return frozenset(self._known | self._gone | self._in_audit | self._again)

    @property
    def spared(self) -> frozenset[str]:
        """Bookies that are not taken for lost: those up at the last check, and those just gone."""
        return frozenset(self._known | self._gone)

    @property
    def due_s(self) -> float | None:
        """When the audit begins that is waited for; None when none is."""
        return self._due_s

    @property
    def is_pending(self) -> bool:
        """Whether an audit is asked for or waited for."""
        return self._is_asked or self._is_wanted_again or self._due_s is not None

    def bookies_are(self, up: Collection[str], now_s: float) -> bool:
        """Take in which bookies are up, writable or read-only."""
        self._gone -= set(up)
        self._in_audit -= set(up)
        self._again -= set(up)
        self._known |= set(up)
        if not self._gone and not self._is_asked:
            self._cancel()
        newly = self._known - set(up) - self._gone
        self._gone |= newly
        # A bookie that is gone for good is not missed again, as long as it has not been back.
        self._known -= newly
        if not self._gone:
            return self._is_asked
        if self._delay_s == 0 or len(self._gone) > 1:
            return self._ask()
        if self._due_s is None and not self._is_asked:
            self._due_s = now_s + self._delay_s
            self.delayed += 1
        return self._is_asked

    def delay_written(self, delay_s: int, now_s: float) -> bool:
        """Take in that the delay was written, be it with the value that it had."""
        before, self._delay_s = self._delay_s, delay_s
        was_pending = self._due_s is not None
        self._cancel()
        if delay_s in (0, before):
            return self._ask()
        if was_pending:
            self._due_s = now_s + delay_s
            self.delayed += 1
        return self._is_asked

    def time_is(self, now_s: float) -> bool:
        """Take in how late it is."""
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = None
            self._is_asked = True
        return self._is_asked or self._is_wanted_again

    def begin_audit(self) -> frozenset[str]:
        """Return the bookies that are taken for lost as an audit begins.

        A later request is for another audit, and bookies that go have a delay of their own. So have
        those that went while an audit ran which is now made again, or one that is made from time to time.
        """
        self._in_audit, self._again = self._again, set()
        if self._is_asked:
            self._in_audit |= self._gone
            self._gone = set()
        self._is_asked = self._is_wanted_again = False
        return frozenset(self._in_audit)

    def audited(self) -> None:
        """Take in that the audit has ended well."""
        self._in_audit = set()

    def audit_failed(self) -> None:
        """Take in that the audit did not come to its end: it is still wanted."""
        self._again |= self._in_audit
        self._in_audit = set()
        self._is_wanted_again = True

    def begin_anew(self) -> None:
        """Forget which bookies are gone since when, as after a time without an audit."""
        self._cancel()
        self._known = set(self.known)
        self._gone, self._in_audit, self._again = set(), set(), set()
        self._is_asked = self._is_wanted_again = False

    def _ask(self) -> bool:
        self._cancel()
        self._is_asked = True
        return True

    def _cancel(self) -> None:
        if self._due_s is not None:
            self._due_s = None
            self.cancelled += 1
