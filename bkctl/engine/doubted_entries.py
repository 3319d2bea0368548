"""Entries in a journal whose digest fails although their ledger's digests are checksums.

A bookie does not know the digest of a ledger. But a ledger has one type of digest for its whole life, so that
an entry with a CRC that checks shows that the others have CRCs as well, and one that fails is damaged. That
may be the payload, which costs nobody anything but this copy: a client sees it and asks another bookie. Or it
is the ledger id or the entry id. Then the record would take the place of another entry, and the one that it
was would be answered with "no such entry". So such a record is held until the end of its file, and then:

* Where the digest checks with other ids (``scan.proved_ids``) the record is replayed with these. Nothing is
  lost.
* Where both entries next to it are there, and no other copy of its own, its ids are believed.
* Otherwise it takes the place of no entry that is there, and every ledger of the journal directory is put in
  limbo: one of them may lack the entry that the record was.

A record of a ledger that the bookie does not know has been that of a deleted ledger, mostly. It is tried in
the same way, until that was in vain for some in a row; where nothing is proved, it raises a doubt only if all
known ledgers of the journals have CRCs. Records of ledgers without any CRC are tried so, too, and raise none.

A refusal of the start would be the wrong answer: one client that sends wrong digests could keep the bookie
from starting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from bkctl.codec.entry import EntryBatch
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.errors import BadRequestError, BookieError
from bkctl.scan.proved_ids import (
    KEYLESS_DIGESTERS,
    EntryIds,
    proved_ids,
    proves_itself,
    trials_max,
    with_ids,
)

_log = logging.getLogger(__name__)

#: The header of an entry and the shorter one of the two checksums.
_CHECKED_BYTES_MIN = 32 + min(digester.size_bytes for digester in KEYLESS_DIGESTERS)

#: Records held back until the end of their file; beyond this they are judged by what is known so far.
_HELD_RECORDS_MAX = 1000
_HELD_BYTES_MAX = 16 << 20
#: Failing entries in a row of a ledger that is not known to have CRCs, or not known at all, whose ids are
#: looked for in vain: behind these its entries are replayed as they are, or left out.
_IN_VAIN_MAX = 3
#: Beside more failing entries than this for each that checks, checksums may fit by chance: one in 2^31 does.
_FAILING_MAX = 1 << 20
#: No ledger has so many entries, and not every kind of index takes such an id.
_FAR_ENTRY = 1 << 37
#: Entries of a ledger that are read from the storage to learn its digest, and ledgers that are asked so.
_READ_ENTRIES = 16
_READ_LEDGERS_MAX = 1000
#: Other ledgers whose ids are tried in the place of a record's.
_TRIED_LEDGERS_MAX = 1000
#: Bytes of which checksums are computed in search of ids during one start, and the bytes in whose time a
#: checksum of nothing is computed: about two seconds in all.
_TRIED_BYTES_MAX = 1 << 30
_TRIAL_BYTES = 1000


class _Held(NamedTuple):
    path: str
    offset: int
    ids: EntryIds
    body: bytes


class DoubtedEntries:
    """Holds and judges the doubted entries of one journal directory during a start.

    ``is_known`` says whether entries of a ledger are kept. ``on_doubt`` is called with a description of each
    record that may be an entry other than the one that it names.
    """

    def __init__(
        self,
        ledgers: ReplayedLedgers,
        report: ReplayReport,
        is_known: Callable[[int], bool],
        on_doubt: Callable[[str], None],
    ) -> None:
        self._ledgers = ledgers
        self._report = report
        self._is_known = is_known
        self._on_doubt = on_doubt
        self._proven: Counter[int] = Counter()
        self._failed: Counter[int] = Counter()
        self._in_vain: Counter[int] = Counter()
        #: Whether entries in the storage prove that a ledger has CRCs.
        self._stored: dict[int, bool] = {}
        self._held: list[_Held] = []
        self._held_bytes = 0
        self._bytes_left = _TRIED_BYTES_MAX

    def hold(self, batch: EntryBatch, path: str) -> EntryBatch:
        """Keep the doubted entries of a batch for :meth:`judge`, and return the others.

        Entries of fewer bytes than a digest needs are never doubted.
        """
        failing = _failing(batch)
        if not failing:
            self._proven.update(batch.ledgers)
            return batch
        failed = Counter(batch.ledgers[index] for index in failing)
        # All of the batch is counted first: damaged entries may stand in front of whole ones of their ledger.
        self._failed += failed
        self._proven += Counter(batch.ledgers) - failed
        doubted = {index for index in failing if self._is_doubted(batch.ledgers[index], batch.entries[index])}
        for index in sorted(doubted):
            ids = EntryIds(batch.ledgers[index], batch.entries[index])
            self._held.append(_Held(path, batch.offset(index), ids, batch.body(index)))
            self._held_bytes += batch.sizes[index]
            if len(self._held) >= _HELD_RECORDS_MAX or self._held_bytes >= _HELD_BYTES_MAX:
                self.judge()
        return batch.select([index for index in range(len(batch.ledgers)) if index not in doubted])

    def forget(self, ledger: int) -> None:
        """Drop the held entries of a ledger that is gone."""
        self._held = [each for each in self._held if each.ids.ledger != ledger]

    def judge(self) -> None:
        """Replay the held entries as far as their ids are proved or believed."""
        held, self._held, self._held_bytes = self._held, [], 0
        strangers: list[_Held] = []
        for each in held:
            proved = self._proved(each)
            if proved is not None:
                self._mend(each, proved)
            elif self._is_known(each.ids.ledger):
                self._judge_known(each)
            else:
                self._report.skipped_records += 1
                strangers.append(each)
        if strangers and self._all_have_crcs():
            for each in strangers:
                self._doubt(each)

    def _is_doubted(self, ledger: int, entry: int) -> bool:
        """Return whether an entry whose digest fails is held: nothing shows that its ledger has no CRCs."""
        return self._in_vain[ledger] < _IN_VAIN_MAX or entry >= _FAR_ENTRY or self._has_crcs(ledger)

    def _has_crcs(self, ledger: int) -> bool:
        """Return whether entries of a ledger prove that its digests are CRCs."""
        proven = self._proven[ledger]
        if proven:
            return self._failed[ledger] <= proven * _FAILING_MAX
        if ledger not in self._stored:
            if len(self._stored) >= _READ_LEDGERS_MAX or self._ledgers.row(ledger) is None:
                return False
            self._stored[ledger] = has_crcs(self._ledgers.storage_of(ledger), ledger)
        return self._stored[ledger]

    def _all_have_crcs(self) -> bool:
        """Return whether the ledgers of the journals have CRCs, those that the bookie knows."""
        known = [ledger for ledger in self._failed | self._proven if self._ledgers.row(ledger) is not None]
        return bool(known) and all(map(self._has_crcs, known))

    def _proved(self, held: _Held) -> EntryIds | None:
        ledger, body = held.ids.ledger, held.body
        if self._in_vain[ledger] >= _IN_VAIN_MAX and not self._has_crcs(ledger):
            return None
        others = list(islice(self._proven, _TRIED_LEDGERS_MAX))
        cost_bytes = trials_max(len(others)) * (_TRIAL_BYTES + len(body))
        if cost_bytes > self._bytes_left:
            return None
        self._bytes_left -= cost_bytes
        proved = proved_ids(body, others)
        self._in_vain[ledger] = self._in_vain[ledger] + 1 if proved is None else 0
        return proved

    def _mend(self, held: _Held, proved: EntryIds) -> None:
        """Replay an entry under the ids that its digest proves."""
        ledger, entry = proved
        known = self._is_known(ledger)
        _log.warning(
            "%s: the ids of the record at offset %d are damaged: it says ledger %d, entry %d, and its digest"
            " proves ledger %d, entry %d; it is %s",
            held.path,
            held.offset,
            *held.ids,
            *proved,
            "replayed as that" if known else "left out, for that ledger was deleted",
        )
        if not known:
            self._report.skipped_records += 1
            return
        self._report.mended_records += 1
        storage = self._ledgers.storage_of(ledger)
        body = with_ids(held.body, proved)
        if not has_another(storage, ledger, entry, body):
            self._ledgers.put(storage, [body[:16]], [body])

    def _judge_known(self, held: _Held) -> None:
        """Replay an entry whose ids nothing proves; report it where they are doubtful."""
        ledger, entry = held.ids
        storage = self._ledgers.storage_of(ledger)
        if self._has_crcs(ledger):
            taken = has_another(storage, ledger, entry, held.body)
            neighbours = _is_there(storage, ledger, entry - 1) and _is_there(storage, ledger, entry + 1)
            if taken or not neighbours:
                self._doubt(held)
            if taken:
                return
        try:
            self._ledgers.put(storage, [held.body[:16]], [held.body])
        except BadRequestError:
            # The index has no place for such an id, so that the entry was never taken under it.
            self._doubt(held)

    def _doubt(self, held: _Held) -> None:
        self._report.doubted_records += 1
        self._on_doubt(
            f"{held.path}: the digest of the record at offset {held.offset} fails, and that it is entry"
            f" {held.ids.entry} of ledger {held.ids.ledger}, as it says, is not proved"
        )


def _failing(batch: EntryBatch) -> list[int]:
    """Return the indices of the entries that are long enough for a CRC and of which none checks."""
    first, *others = KEYLESS_DIGESTERS
    failing = first.failing(batch.buffer, batch.starts, batch.sizes)
    for digester in others if failing else ():
        part = batch.select(failing)
        failing = [failing[index] for index in digester.failing(part.buffer, part.starts, part.sizes)]
    return [index for index in failing if batch.sizes[index] >= _CHECKED_BYTES_MIN]


def has_another(storage: LedgerStorage, ledger: int, entry: int, body: bytes) -> bool:
    """Return whether a storage has an entry with other bytes; one that cannot be read counts as not there."""
    if entry < 0:
        return False
    try:
        return storage.read(ledger, entry) != body
    except BookieError:
        return False


def has_crcs(storage: LedgerStorage, ledger: int) -> bool:
    """Return whether the digests of a ledger are CRCs: one of its entries in a storage proves itself."""
    try:
        entries = list(islice(storage.entries(ledger), _READ_ENTRIES))
    except BookieError:
        return False
    for entry in entries:
        try:
            if proves_itself(storage.read(ledger, entry)):
                return True
        except BookieError:
            continue
    return False


def _is_there(storage: LedgerStorage, ledger: int, entry: int) -> bool:
    if entry < 0:
        return True
    try:
        storage.read(ledger, entry)
    except BookieError:
        return False
    return True
