"""The part of a metadata store's interface that autorecovery works with: marks, locks, votes and switches.

Errors are those of :mod:`bkctl.metadata.api`, besides those that a method names.

Source: ``org.apache.bookkeeper.meta.LedgerUnderreplicationManager`` and ``LedgerAuditorManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bkctl.codec.maintenance import Maintenance
from bkctl.codec.underreplication import CheckKind, UnderreplicatedMark
from bkctl.metadata.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Taken:
    """A marked ledger whose lock a worker holds: the mark as it was read under the lock, and its version.

    The lock ends with ``session``, and with it the right to replicate the ledger. ``version`` is None for a
    ledger that was not marked. ``created_ms`` distinguishes the mark from one that is made after it.
    """

    ledger: int
    mark: UnderreplicatedMark
    version: int | None
    session: int = 0
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The host that replicates a ledger, and since when, in milliseconds since 1970.

    ``host`` is empty where the lock names none, and where it is damaged: ``damage`` says how then.
    """

    host: str
    since_ms: int
    damage: str = ""


class Underreplication(Protocol):
    """The marks, votes and switches that autorecovery, ours or Java's, keeps for everybody to see."""

    def prepare(self) -> None:
        """Make what auditors and workers need to be there, as the first of Java's does.

        Raises RefusedError for nodes that are arranged in another way, and in a cluster whose autorecovery is
        that of Pulsar's own metadata driver.
        """

    def enabled(self) -> bool:
        """Return whether ledgers that are marked may be replicated."""

    def set_enabled(self, enabled: bool) -> None:
        """Let autorecovery work, or rest after the ledgers that it is at."""

    def auditor(self) -> str | None:
        """Return the bookie that was elected auditor; None without any candidate."""

    def lost_bookie_recovery_delay_s(self) -> int | None:
        """Return the seconds after which an auditor takes a bookie for lost; None before there was one."""

    def lost_bookie_recovery_delay_written(self) -> tuple[int, int] | None:
        """Return the delay and how often it was written; None before there was an auditor."""

    def set_lost_bookie_recovery_delay(self, seconds: int) -> None:
        """Change the seconds after which an auditor takes a bookie for lost.

        Writing the delay, be it the same again, makes an auditor look at all bookies at once.
        """

    def initial_lost_bookie_recovery_delay(self, seconds: int) -> int:
        """Set the delay to ``seconds`` where there is none yet; return the one that holds."""

    def checked_at(self, kind: CheckKind) -> int | None:
        """Return when a check of all ledgers was last completed, ms since 1970; None when it never was."""

    def set_checked_at(self, kind: CheckKind, completed_ms: int, *, guard: str | None = None) -> None:
        """Record that a check was completed; ``guard`` as in :meth:`mark`."""

    def marked_ledgers(self) -> Iterator[tuple[int, UnderreplicatedMark]]:
        """Yield ledgers that miss replicas, ascending; one finished during the listing may be left out."""

    def mark_of(self, ledger: int) -> UnderreplicatedMark | None:
        """Read a ledger's mark; None when the ledger is not marked."""

    def mark(
        self, ledger: int, bookies: Iterable[str], now_ms: int | None, *, guard: str | None = None
    ) -> bool:
        """Mark a ledger as missing replicas on ``bookies``; without any a worker finds out which.

        A ledger that is marked gets those that its mark does not name, and the new time; a mark that names
        them all stays as it is, and the answer is False. While somebody works on the ledger it is written
        again even so, with another version: what they have seen may be older. Raises CorruptionError for a
        mark that is damaged. ``guard`` is the auditor's vote: without it nothing is written, in one step, and
        GuardMissingError is raised (:mod:`bkctl.metadata.tree`).
        """

    def replicator_of(self, ledger: int) -> str | None:
        """Return the host whose worker holds the ledger's lock; None when nobody does."""

    def lock_of(self, ledger: int) -> LockHolder | None:
        """Return who holds the ledger's lock, and since when; None when nobody does."""

    def locks(self) -> Mapping[int, LockHolder]:
        """Return the holder of every lock there is, by its ledger; from one listing.

        A lock that is damaged keeps others off like any other.
        """

    def maintenance(self) -> tuple[Maintenance, int] | None:
        """Return the maintenance that was begun and not ended, and the version of its record.

        Java knows nothing of it. Raises CorruptionError for a record that is damaged.
        """

    def begin_maintenance(self, maintenance: Maintenance) -> None:
        """Record a maintenance; nothing else is changed. Raises AlreadyExistsError when one has begun."""

    def end_maintenance(self, version: int) -> None:
        """Remove the record that was read with ``version``; one that is gone is fine.

        Raises VersionConflictError.
        """

    def acquire(
        self, skip: Container[int] = (), *, host: str | None = None, adopt: bool = False
    ) -> Taken | None:
        """Lock any marked ledger that nobody has locked and that is not in ``skip``; None without one.

        None also while autorecovery is disabled. ``host`` is the name that others read in the lock, by
        default that of this machine. A mark that does not decode is taken for one without bookies. ``adopt``
        takes over locks that this session holds already: a call that failed may have left one. ``skip`` has
        to name the ledgers that are being worked on then.
        """

    def acquire_ledger(
        self, ledger: int, *, host: str | None = None, unmarked: bool = False, adopt: bool = False
    ) -> Taken | None:
        """Lock one ledger, as :meth:`acquire`; None when somebody has it, or when it is not marked.

        With ``unmarked`` it need not be marked. ``adopt`` takes over a lock that this session holds already,
        as in :meth:`acquire`; nobody may be at work under it. The lock also keeps a collector of surplus
        replicas, which Java's bookies have, from deleting copies that no metadata name yet.
        """

    def is_held(self, taken: Taken) -> bool:
        """Return whether the lock is still there and ours. Ask before what must be done once."""

    def finish(self, taken: Taken) -> bool:
        """Delete the mark of a ledger that has all its replicas, and then the lock.

        False, and the mark stays, when the ledger was marked again since it was taken, or the lock was lost.
        """

    def release(self, taken: Taken) -> None:
        """Give the lock back and leave the mark; a lock that is lost already is fine."""

    def watch_work(self, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon, and when :meth:`acquire` may find something that it did not find before.

        A new mark in a directory that has others is not reported: call :meth:`acquire` from time to time.
        """

    def watch_enabled(self, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon, and whenever autorecovery was enabled or disabled."""

    def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon, and whenever the delay was written, be it with the value that it had."""


class AuditorElection(Protocol):
    """One candidate in the election of the one auditor; it counts together with Java's candidates.

    Used by one thread, except :meth:`resign`, which any may call.
    """

    def run(self) -> bool:
        """Stand for election, and wait until elected: True; False after :meth:`resign`.

        Raises RefusedError in a cluster whose autorecovery is that of Pulsar's own metadata driver.
        """

    @property
    def vote(self) -> str | None:
        """The vote that was elected, as far as this process knows; the guard of an auditor's writes."""

    def is_elected(self) -> bool:
        """Return whether the vote that was elected is still there and ours, by asking the store.

        Raises ConnectionFailedError.
        """

    def resign(self) -> None:
        """Withdraw the vote, and end :meth:`run`; the next candidate is elected at once."""
