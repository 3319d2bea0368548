"""The read-only mode that an operator or the configuration wants, over restarts.

A mode that full disks have brought about is not kept: a start looks at the disks again. Nor is that of the
configuration, which says it at each start.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bkctl.clock import Clock
from bkctl.codec.bookie_status import BookieMode, BookieStatus
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.engine.bookie import Bookie
from bkctl.errors import RefusedError
from bkctl.server.life import mode_file
from bkctl.vfs import WritableFileSystem


class RememberedMode:
    """The mode that was set by hand, in files of the ledger directories where ``disks`` says so."""

    def __init__(
        self, disks: DiskSettings, ledgers: Sequence[str], filesystem: WritableFileSystem, clock: Clock
    ) -> None:
        self._disks = disks
        self._ledgers = ledgers
        self._filesystem = filesystem
        self._clock = clock
        self._by_hand = False
        # One operator at a time; the other lock is taken inside of it, too.
        self._setting = threading.Lock()
        self._writing = threading.Lock()

    @property
    def may_be_read_only(self) -> bool:
        """Whether the bookie may go on when it is read-only."""
        return self._disks.read_only_allowed or self._disks.force_read_only or self._by_hand

    def restore(self, bookie: Bookie) -> None:
        """Start read-only when configured so, or when an operator's word for it was remembered."""
        remembered = None
        if self._disks.persist_status:
            remembered = mode_file.read_mode(self._filesystem, self._ledgers)
        self._by_hand = (
            remembered is not None and remembered.manual and remembered.mode is BookieMode.READ_ONLY
        )
        if self._disks.force_read_only or self._by_hand:
            bookie.set_read_only(True)

    def set_by_hand(self, bookie: Bookie, read_only: bool) -> None:
        """Turn a bookie read-only, or let its disks decide again; waits for its disks only.

        Raises RefusedError where the configuration forbids it.
        """
        if self._disks.force_read_only and not read_only:
            raise RefusedError("forceReadOnlyBookie=true keeps this bookie read-only")
        with self._setting:
            self._by_hand = read_only
            bookie.set_read_only(read_only)
            # Also where the disks have made the bookie read-only before, or leave it so.
            self._write(bookie)

    def note_change(self, bookie: Bookie) -> None:
        """Write down a mode that has changed, unless it is that of the configuration."""
        if not self._disks.force_read_only:
            self._write(bookie)

    def _write(self, bookie: Bookie) -> None:
        """Write down the mode, if it is to be remembered: as it is when the turn of this call comes."""
        if not self._disks.persist_status:
            return
        with self._writing:
            mode = BookieMode.READ_ONLY if bookie.read_only else BookieMode.READ_WRITE
            status = BookieStatus(mode, self._clock.time_ms(), manual=self._by_hand)
            mode_file.write_mode(self._filesystem, self._ledgers, status)
