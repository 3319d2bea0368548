"""The losses of damage: collects a file's records and damage while it is verified.

An entry that is lost shows in up to four ways: its own ids may still be readable, the location index may
point into the damage, the entries before and after it may be there, and the ledgers map may count more
bytes than were found. Each is reported with the evidence named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from heapq import nsmallest

from bkctl.codec.entry import EntryBatch
from bkctl.scan.checked import CheckedBatch
from bkctl.scan.damage import Damage, MissingEntries, Verdict
from bkctl.scan.files.verdicts import FileVerdict

#: More damage than this is counted, not listed: the file is lost, and memory is bounded.
DAMAGES_MAX = 10_000

#: Of so many ledgers with entries that were not checked a verdict has the ids.
LEDGERS_NAMED = 20

#: A gap can only be explained by damage that had room for its entries.
_FRAMED_BYTES_MIN = 28

IsLocated = Callable[[int, int, int], bool]
LocatedIn = Callable[[list[tuple[int, int]]], "list[tuple[MissingEntries, ...]]"]


class LossTracker:
    """Fed with a file's items in file order; ``verdict`` at the end.

    ``located_in`` gives, for each of some ranges, the entries whose records the index places in it. It is
    asked once, at the end, and only when there is damage. ``is_located`` returns whether the index places an
    entry at an offset: the ids of a record whose digest fails are believed when it does.
    """

    def __init__(
        self,
        path: str,
        located_in: LocatedIn | None = None,
        is_located: IsLocated | None = None,
    ) -> None:
        self._path = path
        self._located_in = located_in
        self._is_located = is_located
        self._holes: list[int] = []
        self._failing: list[int] = []
        self._records = 0
        self._entries = 0
        self._unchecked: Counter[int] = Counter()
        self._bytes = 0
        self._tail = Verdict.CLEAN
        self._is_damaged = False
        self._count = 0
        self._first_bad: int | None = None
        self.damages: list[Damage] = []
        self._before: dict[int, int] = {}
        self._open_gaps: list[int] = []

    def entries(self, item: CheckedBatch) -> None:
        """Count entries that were read; failing digests are damage, except of one that was being written."""
        batch, check = item.batch, item.check
        lost = check.failing | check.strangers.keys()
        self._records += len(batch) - len(lost)
        self._bytes += sum(batch.sizes) + 4 * len(batch) - sum(batch.sizes[index] + 4 for index in lost)
        self._entries += len(batch)
        checkable = check.checkable
        if len(checkable) < len(set(batch.ledgers)):
            self._unchecked.update(
                ledger
                for index, ledger in enumerate(batch.ledgers)
                if ledger not in checkable and index not in check.strangers
            )
        for index in sorted(check.failing - check.strangers.keys()):
            if check.excused.get(index) is Verdict.TORN_TAIL:
                self.tail(Verdict.TORN_TAIL)
            else:
                self.digest_failed(batch, item, index)
        if self._open_gaps:
            self._close_gaps(batch)
            self._before.clear()
        self._before.update(zip(batch.ledgers, batch.entries, strict=True))

    def digest_failed(self, batch: EntryBatch, item: CheckedBatch, index: int) -> None:
        """Record an entry whose bytes do not match its digest."""
        ledger, entry = batch.ledgers[index], batch.entries[index]
        digester = item.check.digesters[ledger]
        self.damaged(
            Damage(
                self._path,
                batch.offset(index),
                batch.sizes[index] + 4,
                "digest",
                f"the {digester.type.value} digest of ledger {ledger} entry {entry}",
                "bytes that do not match it",
                (MissingEntries(ledger, entry, entry, None, "header"),),
                unsynced=index in item.check.excused,
            ),
            gap=False,
        )
        is_listed = self._count <= DAMAGES_MAX
        if is_listed and self._is_located and not self._is_located(batch.offset(index), ledger, entry):
            # The ids may be what is damaged; the entry that they name may stand whole at its own place.
            self._failing.append(len(self.damages) - 1)

    def salvaged(self, framed_bytes: int, records: int = 0) -> None:
        """Count the bytes of records that are not entries."""
        self._bytes += framed_bytes
        self._records += records

    def damaged(self, damage: Damage, *, gap: bool = True) -> None:
        """Add a damaged range; ``gap``: records may be lost in it, so look for gaps around it."""
        self._count += 1
        self._first_bad = damage.offset if self._first_bad is None else min(self._first_bad, damage.offset)
        if damage.unsynced:
            self.tail(Verdict.UNSYNCED_TAIL)
        else:
            self._is_damaged = True
        if len(self.damages) >= DAMAGES_MAX:
            return
        self.damages.append(damage)
        if gap and not damage.readable:
            self._open_gaps.append(len(self.damages) - 1)
            self._holes.append(len(self.damages) - 1)

    def tail(self, verdict: Verdict) -> None:
        """Note how the file ends; holes of an unsynced tail outweigh a torn record."""
        order = [Verdict.CLEAN, Verdict.TORN_TAIL, Verdict.UNSYNCED_TAIL]
        self._tail = max(self._tail, verdict, key=order.index)

    def attribute(self, missing: tuple[MissingEntries, ...]) -> None:
        """Add what the whole file lacks to its first damage."""
        if missing and self.damages:
            self.damages[0] = replace(self.damages[0], missing=self.damages[0].missing + missing)

    def _close_gaps(self, batch: EntryBatch) -> None:
        """Find the entries that a damage took.

        They are missing between what was read before the damage (and after an earlier one) and what comes
        right after it.
        """
        after = dict(zip(reversed(batch.ledgers), reversed(batch.entries), strict=True))
        gaps = [
            MissingEntries(ledger, self._before[ledger] + 1, first - 1, None, "gap")
            for ledger, first in after.items()
            if first - self._before.get(ledger, first) > 1
        ]
        for index in self._open_gaps:
            damage = self.damages[index]
            known = {(gap.ledger, gap.first_entry) for gap in damage.missing}
            room = (damage.size_bytes + 4) // _FRAMED_BYTES_MIN
            fitting = [
                gap
                for gap in gaps
                if (after[gap.ledger] - self._before[gap.ledger] - 1) <= room
                and (gap.ledger, gap.first_entry) not in known
            ]
            if fitting:
                self.damages[index] = replace(damage, missing=damage.missing + tuple(fitting))
        self._open_gaps.clear()

    def _ask_index(self) -> None:
        if self._located_in is None or not (self._holes or self._failing):
            return
        failing = set(self._failing)
        asked = sorted({*self._holes, *failing}, key=lambda index: self.damages[index].offset)
        ranges = [(self.damages[index].offset, self.damages[index].end) for index in asked]
        for index, located in zip(asked, self._located_in(ranges), strict=True):
            damage = self.damages[index]
            missing = (located or damage.missing) if index in failing else _merged(damage.missing, located)
            self.damages[index] = replace(damage, missing=missing)

    def verdict(self) -> FileVerdict:
        """Return the file's verdict: damage outweighs entries that were not checked, these how it ends."""
        self._ask_index()
        verdict = Verdict.UNCHECKED if self._unchecked else self._tail
        return FileVerdict(
            path=self._path,
            verdict=Verdict.DAMAGED if self._is_damaged else verdict,
            tail=self._tail,
            records=self._records,
            entries=self._entries,
            unchecked=self._unchecked.total(),
            unchecked_ledgers=tuple(nsmallest(LEDGERS_NAMED, self._unchecked)),
            first_bad_offset=self._first_bad,
            bytes_salvageable=self._bytes,
            damages=self._count,
            damage=tuple(sorted(self.damages, key=lambda damage: damage.offset)),
        )


def _merged(
    known: tuple[MissingEntries, ...], located: tuple[MissingEntries, ...]
) -> tuple[MissingEntries, ...]:
    """Return the known and the located gaps, but of the known ones none that a located one covers."""

    def is_named(gap: MissingEntries) -> bool:
        if gap.first_entry is None or gap.last_entry is None:
            return False
        return any(
            other.ledger == gap.ledger
            and other.first_entry is not None
            and other.last_entry is not None
            and other.first_entry <= gap.first_entry
            and gap.last_entry <= other.last_entry
            for other in located
        )

    return located + tuple(gap for gap in known if not is_named(gap))
