"""Entries in a journal whose digest fails although their ledger's digests are checksums.

A bookie does not know the type of a ledger's digest. But a ledger has one type for its whole life: when one
entry has a CRC that checks, the others have CRCs as well, and an entry that fails is damaged. The damage may
be in the payload. That costs only this copy: a client sees it and asks another bookie. Or it is in the ledger
id or the entry id. Then the record would take the place of another entry, and its own entry would be answered
with "no such entry". So such a record is held back until the end of the last file, and then:

* Where the digest checks with other ids (``scan.proved_ids``), the record is replayed with these ids. Nothing
  is lost.
* Where both entries next to it are there, and no other copy of its own, its ids are believed.
* Otherwise it takes the place of no entry that is there, and every ledger of the journal directory is put in
  limbo: one of them may lack the entry that the record was.

Proofs come before beliefs. Some records are of ledgers that the bookie does not know, or of an earlier life
of a ledger; most of these ledgers were deleted. Such records are tried in the same way, until several in a
row have proved nothing. An unproved one raises a doubt only if all known ledgers of the journals have CRCs.
The earlier life must have had CRCs, too, and an unknown ledger must not have several such entries, because
then it was a ledger of its own. A record that proves to be of an earlier life is left out, however late that
is proved.

Records of ledgers without any CRC are tried as well, and raise no doubt. Of two with the same ids the newer
one counts, because a recovery or a repair may add an entry again. Entries that are too short for a CRC say
nothing of their ledger, and are doubted where it has CRCs.

Such a record is no reason to refuse a start: otherwise one client that sends wrong digests could keep the
bookie from starting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from bkctl.codec.entry import EntryBatch
from bkctl.engine.digest_evidence import CHECKED_BYTES_MIN, IN_VAIN_MAX, DigestEvidence
from bkctl.engine.entries_there import entry_there, has_another, is_there
from bkctl.engine.held_records import HeldRecord, HeldRecords
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.errors import BadRequestError
from bkctl.scan.proved_ids import EntryIds, ids_of, proved_ids, proves_itself, trials_max, with_ids

_log = logging.getLogger(__name__)

#: Other ledgers whose ids are tried in the place of a record's.
_TRIED_LEDGERS_MAX = 1000
#: Bytes of which checksums are computed in search of ids during one start, and the bytes in whose time a
#: checksum of nothing is computed: a few seconds in all. For a record that would take more than a sixteenth
#: of it other ledgers' ids are not tried, only those that differ from its own in one bit.
_TRIED_BYTES_MAX = 2 << 30
_TRIAL_BYTES = 1000


class _LifeEnd(NamedTuple):
    """The end of a life of a ledger: the number of the first record behind it, and whether it had CRCs."""

    number: int
    had_crcs: bool


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
        self.is_known = is_known
        self._on_doubt = on_doubt
        self._evidence = DigestEvidence(ledgers)
        self._held = HeldRecords()
        self._next_number = 0
        self._life_ends: dict[int, list[_LifeEnd]] = {}
        #: A record of each ledger that was replayed as it is before the end, without its body.
        self._believed: dict[int, HeldRecord] = {}
        #: Records of ledgers that are not known, and of lives that are over, without their bodies.
        self._strangers: list[HeldRecord] = []
        self._bytes_left = _TRIED_BYTES_MAX
        self._is_behind_a_hole = False

    def behind_a_hole(self) -> None:
        """Note that a hole was met which was never synced: nothing behind it was ever acknowledged.

        A ledger that is not known may have its key in it, and its entries whole behind it.
        """
        self._is_behind_a_hole = True

    def holds(self, ids: EntryIds) -> bool:
        """Return whether an entry is held that says these ids."""
        return self._held.holds(ids)

    def hold(self, batch: EntryBatch, path: str) -> EntryBatch:
        """Keep the doubted entries of a batch for :meth:`judge`, and return the others."""
        doubted = self._evidence.doubted(batch)
        # In their order: a record that is replayed at once is newer than those of its ids that are held.
        for index in range(len(batch.ledgers)) if self._held or doubted else ():
            if index in doubted:
                self._hold(path, batch.offset(index), batch.body(index))
            else:
                self._held.supersede(EntryIds(batch.ledgers[index], batch.entries[index]))
        if not doubted:
            return batch
        return batch.select([index for index in range(len(batch.ledgers)) if index not in doubted])

    def hold_of_past_life(self, batch: EntryBatch, index: int, path: str) -> bool:
        """Keep an entry of a life that is over if it may be another ledger's; return whether it may."""
        ledger = batch.ledgers[index]
        if proves_itself(batch.body(index)):
            self._evidence.proven[ledger] += 1
            return False
        self._evidence.failed[ledger] += 1
        if not self._evidence.is_doubted(ledger):
            return False
        self._hold(path, batch.offset(index), batch.body(index), is_past=True)
        return True

    def hold_whole(self, path: str, offset: int, body: bytes, *, is_behind_a_hole: bool) -> None:
        """Keep an entry that looked torn and is not, and whose digest fails; a hole may have come since."""
        self._evidence.failed[ids_of(body).ledger] += len(body) >= CHECKED_BYTES_MIN
        self._hold(path, offset, body, is_behind_a_hole=is_behind_a_hole)

    def end_life(self, ledger: int) -> None:
        """Forget what is known of a ledger: its next life may have other digests.

        The records of it that are held are of a life that is over, and are never replayed into the next one.
        """
        if self._held:
            end = _LifeEnd(self._next_number, bool(self._evidence.proven[ledger]))
            self._life_ends.setdefault(ledger, []).append(end)
        self._evidence.forget(ledger)

    def mend(self, path: str, offset: int, ids: EntryIds, body: bytes) -> bool:
        """Replay an entry under other ids than it says, if its digest proves them; return whether it does."""
        return self._is_mended(HeldRecord(self._next_number, path, offset, ids, body))

    def judge(self) -> None:
        """Replay the held entries as far as their ids are proved or believed: all is known by now."""
        self.judge_held()
        for ledger, each in self._believed.items():
            if self._evidence.has_crcs(ledger):
                self._doubt(each)
        self._believed.clear()
        strangers, self._strangers = self._strangers, []
        named: dict[int, set[int]] = {}
        for each in strangers:
            named.setdefault(each.ids.ledger, set()).add(each.ids.entry)
        if strangers and self._evidence.all_have_crcs():
            for each in strangers:
                # Several entries of one ledger are those of a ledger that there was.
                if len(named[each.ids.ledger]) < IN_VAIN_MAX or self._had_crcs(each):
                    self._doubt(each)

    def judge_held(self) -> None:
        """Replay the entries that are held as far as their ids are proved or believed."""
        held = list(self._held)
        # The search has its bound: it begins where it is most likely to find something.
        likely = sorted(held, key=self._seems_keyed)
        proved = {each.number for each in likely if self._is_mended(each)}
        for each in held:
            if each.number in proved:
                continue
            if not self._is_present(each):
                self._report.skipped_records += 1
                # Of a life that is over, whatever said so, its entries may have had any digest.
                is_past = each.is_past or self._is_before(each, each.ids.ledger)
                if not each.is_behind_a_hole and (not is_past or self._had_crcs(each)):
                    self._strangers.append(each._replace(body=b""))
            elif not self._seems_keyed(each):
                self._judge_known(each)
            else:
                self._believe(each)
        self._held.keep(())

    def _hold(
        self,
        path: str,
        offset: int,
        body: bytes,
        *,
        is_past: bool = False,
        is_behind_a_hole: bool | None = None,
    ) -> None:
        behind = self._is_behind_a_hole if is_behind_a_hole is None else is_behind_a_hole
        held = HeldRecord(self._next_number, path, offset, ids_of(body), body, is_past, behind)
        self._held.add(held)
        self._next_number += 1
        if self._held.is_full(1):
            self._relieve()
            if self._held.is_full(2):
                self.judge_held()

    def _relieve(self) -> None:
        """Replay what is held of ledgers with several entries of which none has a CRC that is found."""
        counts = Counter(each.ids.ledger for each in self._held)
        present = [each for each in self._held if self._is_present(each)]
        tried = [each for each in present if counts[each.ids.ledger] >= IN_VAIN_MAX]
        gone = {each.number for each in tried if self._seems_keyed(each) and self._is_mended(each)}
        for each in present:
            vain = self._evidence.is_tried_in_vain(each.ids.ledger)
            if each.number not in gone and vain and self._seems_keyed(each):
                self._believe(each)
                gone.add(each.number)
        self._held.keep([each for each in self._held if each.number not in gone])

    def _believe(self, held: HeldRecord) -> None:
        """Replay an entry as it is; a CRC of its ledger that is found later raises a doubt."""
        self._judge_known(held)
        self._believed.setdefault(held.ids.ledger, held._replace(body=b""))

    def _is_present(self, held: HeldRecord) -> bool:
        """Return whether an entry says a ledger that is known, in its present life."""
        ledger = held.ids.ledger
        return not held.is_past and not self._is_before(held, ledger) and self.is_known(ledger)

    def _is_before(self, held: HeldRecord, ledger: int) -> bool:
        """Return whether an entry was read before the present life of a ledger began."""
        ends = self._life_ends.get(ledger)
        return ends is not None and held.number < ends[-1].number

    def _had_crcs(self, held: HeldRecord) -> bool:
        """Return whether the life that an entry says, which is over, had CRCs."""
        ledger = held.ids.ledger
        for end in self._life_ends.get(ledger, ()):
            if held.number < end.number:
                return end.had_crcs
        return bool(self._evidence.proven[ledger])

    def _seems_keyed(self, held: HeldRecord) -> bool:
        """Return whether nothing shows so far that an entry's ledger has CRCs: its digest may need a key."""
        ledger = held.ids.ledger
        if held.is_past or self._is_before(held, ledger):
            return not self._had_crcs(held)
        return self.is_known(ledger) and not self._evidence.has_crcs(ledger)

    def _is_mended(self, held: HeldRecord) -> bool:
        proved = self._proved(held)
        if proved is None:
            return False
        self._mend(held, proved)
        return True

    def _proved(self, held: HeldRecord) -> EntryIds | None:
        ledger, body = held.ids.ledger, held.body
        if not self._evidence.is_doubted(ledger):
            return None
        # Half of the bound is for the others: most of these have a digest that needs a key.
        left = self._bytes_left - (_TRIED_BYTES_MAX // 2 if self._seems_keyed(held) else 0)
        others = list(islice(self._evidence.proven, _TRIED_LEDGERS_MAX))
        trial_bytes = _TRIAL_BYTES + len(body)
        if trials_max(len(others)) * trial_bytes > min(left, _TRIED_BYTES_MAX // 16):
            others = []
        cost_bytes = trials_max(len(others)) * trial_bytes
        proved = None
        if cost_bytes <= left:
            self._bytes_left -= cost_bytes
            proved = proved_ids(body, others)
        self._evidence.note_trial(ledger, in_vain=proved is None)
        return proved

    def _mend(self, held: HeldRecord, proved: EntryIds) -> None:
        """Replay an entry under the ids that its digest proves."""
        ledger, entry = proved
        known = self.is_known(ledger) and not self._is_before(held, ledger)
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

    def _judge_known(self, held: HeldRecord) -> None:
        """Replay an entry whose ids nothing proves; report it where they are doubtful."""
        ledger, entry = held.ids
        storage = self._ledgers.storage_of(ledger)
        there = entry_there(storage, ledger, entry)
        taken = there is not None and there != held.body
        if there is not None and proves_itself(there):
            self._evidence.proven[ledger] += 1
        if self._evidence.has_crcs(ledger):
            neighbours = is_there(storage, ledger, entry - 1) and is_there(storage, ledger, entry + 1)
            if taken or not neighbours:
                self._doubt(held)
        # A digest that needs a key shows no damage. Then the newer one counts, as with Java.
        if taken and (
            self._evidence.has_crcs(ledger) or held.is_behind_a_hole or self._held.is_superseded(held)
        ):
            return
        try:
            self._ledgers.put(storage, [held.body[:16]], [held.body])
        except BadRequestError:
            # The index has no place for such an id, so that the entry was never taken under it.
            self._doubt(held)

    def _doubt(self, held: HeldRecord) -> None:
        """Report an entry as doubtful, unless it was never acknowledged, under whatever ids."""
        if held.is_behind_a_hole:
            return
        self._report.doubted_records += 1
        self._on_doubt(
            f"{held.path}: the digest of the record at offset {held.offset} fails, and that it is entry"
            f" {held.ids.entry} of ledger {held.ids.ledger}, as it says, is not proved"
        )
