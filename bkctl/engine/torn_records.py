"""Records that a power cut may have left half written.

The tail of the newest journal was perhaps never synced: of a record that lies in several sectors some may be
on disk and others not, and those read as zeros, because journals are never recycled. Length, ledger and
entry id then prove nothing: the id of a fence record cut behind six of its bytes is that of entry 0.

These rules are for a record of that tail that lacks a sector, or whose length word is cut by the end of one
and no record shows, by where it begins, that the length is right. A record is acknowledged after an fdatasync
that began when all of it was written. So every acknowledged record is on disk as its client sent it, and its
digest checks; a record that is torn was never acknowledged, nor was anything behind it in the file. The place
in the tail where the last fdatasync ended is not known, because clients write zeros, too. So:

* A record whose CRC-32C or CRC-32 checks is whole. These digests need no key, and one that checks by chance
  has a probability of 2^-32. It is replayed as any other. So is one whose CRC checks with one bit of its ids
  changed: that bit was flipped (``doubted_entries``).
* A record whose digest does not check, of a ledger of which another entry has a CRC that does, is torn: a
  ledger has one type of digest. It was never acknowledged and is not replayed. Were it served, recovery would
  find an entry whose digest does not check, and where it is the only copy the ledger could never be closed.
* So is a record whose digest does not check behind a hole that was never synced: an fdatasync that had
  covered it would have covered the hole, too. A torn record is no such hole for those behind it: a client may
  have sent a wrong digest, and a bit of a synced record may have changed.
* Of any other record nothing can be proved: the digest may be a MAC, which needs the ledger's password, or
  none. It takes the place of nothing that is known; and where nothing is, it is kept, because an acknowledged
  entry must not become "no such entry". A client that has the password sees whether it is whole.
"""

from __future__ import annotations

import logging

from bkctl.engine.digest_evidence import has_crcs
from bkctl.engine.doubted_entries import DoubtedEntries
from bkctl.engine.entries_there import has_another
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.scan.proved_ids import ids_of

_log = logging.getLogger(__name__)

#: Records held back until the end of their file; beyond this they are judged by what is known so far.
_HELD_RECORDS_MAX = 1000
_HELD_BYTES_MAX = 16 << 20


class TornEntries:
    """Entries of the unsynced tail that look torn and do not prove themselves.

    They are held until the end of their file, when all is known that may prove or replace them.
    """

    def __init__(
        self, ledgers: ReplayedLedgers, report: ReplayReport, path: str, doubted: DoubtedEntries
    ) -> None:
        self._ledgers = ledgers
        self._report = report
        self._path = path
        self._doubted = doubted
        self._held: list[tuple[int, bytes]] = []
        self._held_bytes = 0
        # Where the entries end whose length words are cut, and whether a record begins there.
        self._ends: dict[int, bool] = {}
        # Nothing behind this was ever acknowledged.
        self._unsynced_from: int | None = None

    def hole(self, offset: int) -> None:
        """Note a hole that was never synced."""
        self._doubted.behind_a_hole()
        if self._unsynced_from is None or offset < self._unsynced_from:
            self._unsynced_from = offset

    def is_behind_a_hole(self, offset: int) -> bool:
        """Return whether an offset is behind a hole that was never synced, as nothing acknowledged is."""
        return self._unsynced_from is not None and offset > self._unsynced_from

    def hold(self, offset: int, body: bytes, *, lacks_sector: bool) -> None:
        """Keep an entry for :meth:`judge`; without ``lacks_sector`` only its length word is cut."""
        self._held.append((offset, body))
        self._held_bytes += len(body)
        if not lacks_sector:
            self._ends[offset + 4 + len(body)] = False
        if len(self._held) >= _HELD_RECORDS_MAX or self._held_bytes >= _HELD_BYTES_MAX:
            self.judge()

    def holds(self, ledger: int) -> bool:
        """Return whether an entry that is held says a ledger."""
        return any(ids_of(body).ledger == ledger for _, body in self._held)

    def is_awaited(self, offset: int) -> bool:
        """Return whether an entry that is held ends at an offset, if its length word is right."""
        return offset in self._ends

    def begins(self, offset: int) -> None:
        """Note that a record begins at an offset, without doubt: the one in front of it has its length."""
        self._ends[offset] = True

    def judge(self, *, at_end: bool = False) -> None:
        """Replay those that nothing speaks against; count the others.

        ``at_end`` of all files entries that are held as doubted are judged first: such as are whole are not
        to find their places taken.
        """
        held, self._held, self._held_bytes = self._held, [], 0
        ends, self._ends = self._ends, {}
        if not held:
            return
        torn = []
        for offset, body in held:
            if ends.get(offset + 4 + len(body)):
                # Its sectors are there, and so is its length: it is not torn, it is damaged.
                self._doubted.hold_whole(
                    self._path, offset, body, is_behind_a_hole=self.is_behind_a_hole(offset)
                )
            else:
                torn.append((offset, body))
        if at_end:
            self._doubted.judge_held()
        for offset, body in torn:
            ids = ids_of(body)
            ledger, entry = ids
            if self._doubted.mend(self._path, offset, ids, body):
                continue
            if not self._doubted.is_known(ledger):
                self._report.skipped_records += 1
                continue
            storage = self._ledgers.storage_of(ledger)
            never_synced = self.is_behind_a_hole(offset) or has_crcs(storage, ledger)
            if never_synced or self._doubted.holds(ids) or has_another(storage, ledger, entry, body):
                self._report.torn_records += 1
                _log.warning(
                    "%s: the record at offset %d (ledger %d, entry %d) was never synced and lacks a sector;"
                    " it was never acknowledged and is left out",
                    self._path,
                    offset,
                    ledger,
                    entry,
                )
            else:
                self._ledgers.put(storage, [body[:16]], [body])
