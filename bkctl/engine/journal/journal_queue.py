"""The journal queue: batches that were appended and not yet written, and the state that all threads share.

One lock guards the queue, the lengths of the three stages and whether the journal lives. It is held for
memory operations only. The journal thread is the only one that ever waits on its condition; whoever changes
something wakes that thread only when it may have work, because a wake-up costs more than an append.

While the journal thread rests, its *turn* can be lent to the thread that appends a lone record: that
one then writes the record itself (``docs/adr/0042``). Until the turn is given back the journal thread takes
nothing and does not end, so that there is one writer at a time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from bkctl.clock import Clock
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.group_commit import FlushReason, GroupCommit
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import BkctlError, NoSpaceError, StorageError


class JournalQueue:
    """Bounds: ``queue_entries_max`` and ``queue_bytes_max`` over all records not yet written.

    The queue itself takes whatever comes; callers ask :meth:`has_room` first and hold what does not fit.
    """

    def __init__(self, clock: Clock, settings: JournalSettings, meters: JournalMeters) -> None:
        self._clock = clock
        self._settings = settings
        self._policy = GroupCommit(settings)
        self._meters = meters
        # Taken by itself: the condition would put two functions of Python around it, ten times a group.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._arrived: list[JournalBatch] = []
        self._bytes = 0
        self._entries = 0
        # Of the batches that the journal thread has taken and not yet written.
        self._taken_bytes = 0
        self._taken_entries = 0
        # From which length on an append wakes the journal thread.
        self._wake_bytes: float = math.inf
        self._wake_entries: float = math.inf
        self._was_full = False
        self._awaits_forced = False
        #: Whether the journal thread waits for a batch, with no other one here.
        self._rests = False
        # The thread that has the journal thread's turn; None: the journal thread has it.
        self._lent_to: int | None = None
        self.stopping = False
        self.aborted = False
        self.error: BkctlError | None = None
        #: Why nothing is written for the time being.
        self.suspended: NoSpaceError | None = None
        self._retry = False

    # --- appenders

    def append(self, batch: JournalBatch, *, borrows: bool = False) -> None:
        """Queue a batch; with ``borrows`` the caller asks for the turn, if the batch is a lone record.

        Whether it got it says :attr:`is_lent_here`; then it has to give it back. Raises StorageError when
        nothing will be written any more, NoSpaceError while there is no room.
        """
        batch.enqueued_s = self._clock.monotonic()
        with self._lock:
            if self.stopping or self.error is not None or self.aborted:
                raise StorageError(f"the journal has stopped: {self.error or 'the bookie is being stopped'}")
            if self.suspended is not None:
                raise NoSpaceError(f"the journal waits for room: {self.suspended}")
            # All that can fail stands in front of the append: behind it the journal answers, and nobody else.
            size_bytes = self._bytes + batch.size_bytes
            entries = self._entries + batch.entries
            length = self._meters.journal.length + batch.entries
            borrower = threading.get_ident() if borrows and self._is_at_rest() else None
            if borrower is None and (size_bytes >= self._wake_bytes or entries >= self._wake_entries):
                # The thread goes on when it gets the lock.
                self._changed.notify()
                self._wake_bytes = self._wake_entries = math.inf
            self._arrived.append(batch)
            self._bytes = size_bytes
            self._entries = entries
            self._meters.journal.length = length
            if borrower is not None:
                self._lent_to = borrower

    def has_room(self, size_bytes: int, entries: int) -> bool:
        """Return whether so much more stays within the bounds; an empty queue has room for anything.

        True when the journal has stopped or waits for room on its disk: then the append says so.
        """
        with self._lock:
            held_bytes = self._bytes + self._taken_bytes
            held_entries = self._entries + self._taken_entries
            if (
                held_bytes == 0
                or (
                    held_bytes + size_bytes <= self._settings.queue_bytes_max
                    and held_entries + entries <= self._settings.queue_entries_max
                )
                or self._is_closed()
                or self.suspended is not None
            ):
                return True
            self._was_full = True
            return False

    @property
    def queued_bytes(self) -> int:
        """Bytes of the records that were appended and are not yet written."""
        return self._bytes + self._taken_bytes

    # --- the journal thread

    def take(self) -> tuple[list[JournalBatch], FlushReason] | None:
        """Wait until the policy lets the batches that arrived be written; None when there is an end.

        Batches that are left at the end of a failed journal are :meth:`drain`'s. No batches at all: the
        journal is suspended and somebody thinks that there is room again.
        """
        with self._lock:
            while self._lent_to is not None or not (self.aborted or self.error is not None):
                wait_s = None
                if self._lent_to is not None:
                    self._wake_bytes = self._wake_entries = 0
                elif self._retry and self.suspended is not None and not self.stopping:
                    self._retry = False
                    return [], FlushReason.IDLE
                elif self._arrived and (self.stopping or not self._is_held_up()):
                    reason = self._due()
                    if reason is not None:
                        return self._taken(), reason
                    wait_s = self._expect_more()
                elif self.stopping and not self._arrived:
                    return None
                else:
                    # Any append wakes an idle journal; one that is held up waits for the stage in front.
                    self._wake_bytes = self._wake_entries = math.inf if self._arrived else 0
                self._rests = not self._arrived
                self._changed.wait(wait_s)
                self._rests = False
                self._wake_bytes = self._wake_entries = math.inf
            return None

    # --- the thread that has borrowed the turn

    @property
    def writes_at_once(self) -> bool:
        """Whether a record waits for no other one."""
        return self._policy.at_once

    @property
    def is_lent_here(self) -> bool:
        """Whether the thread that asks has the turn."""
        return self._lent_to == threading.get_ident()

    def take_lent(self, room_bytes: int) -> list[JournalBatch]:
        """Take what arrived, as the one who has the turn: nothing if it is more, or the journal has ended."""
        with self._lock:
            ended = self.aborted or self.error is not None
            return [] if ended or self._bytes > room_bytes else self._taken()

    def give_back(self) -> None:
        """Give the turn back, if this thread has it, and wake the journal thread if there is work for it."""
        # No other thread gives it to this one, or takes it from it.
        if not self.is_lent_here:
            return
        with self._lock:
            if self._arrived or self._retry or self._is_closed():
                self._changed.notify()
            # At the end: who fails before it may try again.
            self._lent_to = None

    def _is_at_rest(self) -> bool:
        """Return whether nothing is in the journal at all."""
        meters = self._meters
        return (
            self._rests
            and self._lent_to is None
            and not self._arrived
            and not meters.force_write.length
            and not meters.callback.length
        )

    def _is_closed(self) -> bool:
        return self.stopping or self.aborted or self.error is not None

    def _is_held_up(self) -> bool:
        """Return whether a stage behind is full."""
        force_write, callback = self._meters.force_write, self._meters.callback
        return force_write.length >= force_write.bound or callback.length >= callback.bound

    def _due(self) -> FlushReason | None:
        if self.stopping:
            return FlushReason.STOP
        return self._policy.due(
            size_bytes=self._bytes,
            entries=self._entries,
            age_s=self._age_s(),
            forcing=self._meters.force_write.length,
        )

    def _age_s(self) -> float:
        return self._clock.monotonic() - self._arrived[0].enqueued_s

    def _expect_more(self) -> float | None:
        """Let appends wake the thread at the thresholds; seconds to wait at most."""
        self._wake_bytes = self._policy.bytes_max + 1
        self._wake_entries = self._policy.entries_max + 1 if self._policy.entries_max else math.inf
        return self._policy.patience_s(self._age_s())

    def _taken(self) -> list[JournalBatch]:
        """Return the next group: everything, or as much as makes the byte threshold."""
        batches = self._arrived
        left: list[JournalBatch] = []
        self._taken_bytes, self._taken_entries = self._bytes, self._entries
        if self._bytes > self._policy.bytes_max:
            at = self._policy.group_end(batch.size_bytes for batch in batches)
            batches, left = batches[:at], batches[at:]
            self._taken_bytes = sum([batch.size_bytes for batch in batches])
            self._taken_entries = sum([batch.entries for batch in batches])
        self._bytes -= self._taken_bytes
        self._entries -= self._taken_entries
        self._meters.journal.length -= self._taken_entries
        # At the end: an error before it ends the journal, which has to find all of them to answer them.
        self._arrived = left
        return batches

    def written(self, *, forcing: int, answering: int) -> bool:
        """Note that the group that was taken is in the file, and that so many groups went to the next stages.

        True when somebody was refused for lack of room since the last time.
        """
        with self._lock:
            self._meters.journal.done += self._taken_entries
            self._taken_bytes = self._taken_entries = 0
            self._meters.force_write.length += forcing
            self._meters.callback.length += answering
            return self._room_wanted()

    def nothing_is_forced(self) -> bool:
        """Return whether the force-write stage is empty, in a journal that goes on."""
        with self._lock:
            return not self._meters.force_write.length and not self._is_closed()

    def await_turn(self) -> None:
        """Wait until no other thread has the turn; for the end of the journal thread."""
        with self._lock:
            while self._lent_to is not None:
                self._changed.wait()

    def drain(self) -> tuple[list[JournalBatch], bool]:
        """Return all batches that will not be written, and whether an appender waits for room."""
        with self._lock:
            return self._given_up()

    def suspend(self, error: NoSpaceError) -> tuple[list[JournalBatch], bool]:
        """Take no batch until :meth:`resume`; return those here, and whether an appender waits for room."""
        with self._lock:
            self.suspended = error
            return self._given_up()

    def _given_up(self) -> tuple[list[JournalBatch], bool]:
        # Batches that were taken and not written have failed with it.
        self._meters.journal.failed += self._entries + self._taken_entries
        self._meters.journal.length -= self._entries
        self._bytes = self._entries = self._taken_bytes = self._taken_entries = 0
        # At the end, as in `_taken`.
        batches, self._arrived = self._arrived, []
        return batches, self._room_wanted()

    def retry(self) -> None:
        """Wake the journal thread of a suspended journal."""
        with self._lock:
            if self.suspended is not None:
                self._retry = True
                self._changed.notify()

    def resume(self) -> None:
        """Take batches again."""
        with self._lock:
            self.suspended = None
            self._retry = False

    def _room_wanted(self) -> bool:
        wanted, self._was_full = self._was_full, False
        return wanted

    def await_forced(self) -> bool:
        """Wait until the force-write stage is empty; False when the journal ends before that."""
        with self._lock:
            self._awaits_forced = True
            while self._meters.force_write.length and not (self.aborted or self.error is not None):
                self._changed.wait()
            self._awaits_forced = False
            return not (self.aborted or self.error is not None)

    # --- the stages behind

    def forced(self, groups: int, *, failed: bool, hand_over: Callable[[], None] = lambda: None) -> None:
        """Note that so many groups left the force-write stage for the callback stage.

        ``hand_over`` gives them to that one in the same step, and waits for nothing: whoever finds the
        force-write stage empty finds its groups there.
        """
        with self._lock:
            hand_over()
            meter = self._meters.force_write
            meter.length -= groups
            if failed:
                meter.failed += groups
            else:
                meter.done += groups
            self._meters.callback.length += groups
            if self._arrived or self.stopping or self._awaits_forced:
                self._changed.notify()

    def answered(self, groups: int) -> None:
        """Note that so many groups left the callback stage."""
        with self._lock:
            self._meters.callback.length -= groups
            self._meters.callback.done += groups
            if self._arrived or self.stopping:
                self._changed.notify()

    # --- the end

    def fail(self, error: BkctlError) -> None:
        """Fail the journal with ``error``: nothing is written any more; the first error stays."""
        with self._lock:
            if self.error is None:
                self.error = error
            self._changed.notify()

    def stop(self) -> None:
        """Take no more; what has arrived is still written."""
        with self._lock:
            self.stopping = True
            self._changed.notify()

    def abort(self) -> None:
        """Take no more and write nothing."""
        with self._lock:
            self.aborted = True
            self._changed.notify()
