"""Random clusters for the replication audit: ledgers, fragments, what each bookie holds, and the truth."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.pipeline_tables import given, write_tables

BOOKIES = tuple(f"b{number}:3181" for number in range(6))
ENTRIES_MAX = 40


@dataclass(frozen=True)
class Fragment:
    """One segment of a ledger; ``last`` None is an open tail."""

    ledger: int
    first: int
    last: int | None
    bookies: tuple[str, ...]
    quorum: int

    def slots_of(self, entry: int) -> list[int]:
        return [(entry + replica) % len(self.bookies) for replica in range(self.quorum)]


@dataclass
class Truth:
    """What counting gives: missing (ledger, entry, bookie), entries by (copies, missing, unknown)."""

    missing: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    short: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    open_slots: int = 0
    not_judged: int = 0
    bookies_not_examined: int = 0


@dataclass
class AuditCase:
    """A cluster. ``given`` are bookies whose directories are there, ``gone`` count as holding nothing."""

    fragments: list[Fragment]
    held: set[tuple[str, int, int]]
    journaled: set[tuple[str, int, int]]
    given: tuple[str, ...]
    gone: tuple[str, ...]

    def slot_holds(self, ledger: int, entry: int, slot: int, bookie: str) -> bool:
        """Whether an entry belongs to a slot with this bookie."""
        return any(
            fragment.ledger == ledger
            and fragment.first <= entry
            and (fragment.last is None or entry <= fragment.last)
            and fragment.bookies[slot % len(fragment.bookies)] == bookie
            and slot in fragment.slots_of(entry)
            for fragment in self.fragments
        )

    def truth(self) -> Truth:
        truth = Truth()
        lacking: set[str] = set()
        present = self.held | self.journaled
        for fragment in self.fragments:
            last, is_open = fragment.last, fragment.last is None
            if last is None:
                last = self.confirmed(fragment.ledger)
                lacking.update(set(fragment.bookies) - set(self.gone) - set(self.given))
            short: set[int] = set()
            tails: set[int] = set()
            for entry in range(fragment.first, last + 1):
                copies = missing = unknown = 0
                for slot in fragment.slots_of(entry):
                    bookie = fragment.bookies[slot]
                    key = (bookie, fragment.ledger, entry)
                    if bookie not in self.gone and bookie not in self.given:
                        unknown += 1
                        lacking.add(bookie)
                    elif bookie not in self.gone and key in present:
                        copies += 1
                    elif bookie not in self.gone and is_open and entry > self.last_held(*key[:2]):
                        unknown += 1
                        tails.add(slot)
                    else:
                        missing += 1
                        short.add(slot)
                        truth.missing[fragment.ledger, entry, bookie] += 1
                if missing:
                    truth.short[copies, missing, unknown] += 1
            absent = {
                slot
                for slot, bookie in enumerate(fragment.bookies)
                if bookie not in self.gone and bookie not in self.given
            }
            truth.open_slots += len(tails - short)
            truth.not_judged += len(tails | self._unseen(fragment, absent, last))
        truth.bookies_not_examined = len(lacking)
        return truth

    @staticmethod
    def _unseen(fragment: Fragment, absent: set[int], last: int) -> set[int]:
        """Slots that could not be judged, because nobody looked and there was something to see."""
        if fragment.last is None:
            return absent
        entries = range(fragment.first, last + 1)
        return {slot for entry in entries for slot in fragment.slots_of(entry)} & absent

    def confirmed(self, ledger: int) -> int:
        """The last add confirmed that the entry logs show."""
        return max(
            (_lac(entry) for bookie, other, entry in self.held if other == ledger and bookie in self.given),
            default=-1,
        )

    def last_held(self, bookie: str, ledger: int) -> int:
        """The last entry of a ledger that a bookie holds."""
        return max(
            (entry for one, other, entry in self.held | self.journaled if (one, other) == (bookie, ledger)),
            default=-1,
        )

    def write(self, folder: Path) -> Path:
        """The case as a table set."""
        ledgers = sorted({fragment.ledger for fragment in self.fragments})
        return write_tables(
            folder,
            ledgers=[{"ledger": ledger, "state": "CLOSED"} for ledger in ledgers],
            fragments=self.fragment_rows(),
            runs=list(self._runs()),
            unflushed=[
                {"bookie": bookie, "ledger": ledger, "entry": entry}
                for bookie, ledger, entry in sorted(self.journaled)
            ],
            bookies=given(*self.given),
        )

    def fragment_rows(self) -> list[dict[str, Any]]:
        """Rows of table ``fragments``."""
        return [row for fragment in self.fragments for row in _rows(fragment)]

    def _runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        for bookie, ledger, entry in sorted(self.held):
            if bookie not in self.given:
                continue
            before = runs[-1] if runs else None
            follows = before and (before["bookie"], before["ledger"], before["last"]) == (
                bookie,
                ledger,
                entry - 1,
            )
            if before and follows and entry % 7:
                before["last"] = entry
                before["max_lac"] = max(before["max_lac"], _lac(entry))
                before["entries"] += 1
            else:
                run = {"bookie": bookie, "dir": f"/{bookie}", "log_id": entry % 3, "ledger": ledger}
                lac = _lac(entry)
                runs.append({**run, "first": entry, "last": entry, "entries": 1, "bytes": 50, "max_lac": lac})
        # A replay writes some a second time.
        return runs + [dict(run) for run in runs if run["first"] % 5 == 0]


def _lac(entry: int) -> int:
    """The last add confirmed in an entry's header: a writer with up to three adds on their way."""
    return max(-1, entry - 1 - entry % 3)


def _rows(fragment: Fragment) -> list[dict[str, Any]]:
    return [
        {
            "ledger": fragment.ledger,
            "first_entry": fragment.first,
            "last_entry": fragment.last,
            "slot": slot,
            "bookie": bookie,
            "ensemble_size": len(fragment.bookies),
            "write_quorum": fragment.quorum,
            "ack_quorum": fragment.quorum,
            "state": "OPEN" if fragment.last is None else "CLOSED",
        }
        for slot, bookie in enumerate(fragment.bookies)
    ]


def random_case(chance: random.Random, *, ledgers: int) -> AuditCase:
    """A cluster in which most entries are where they should be."""
    fragments = [part for ledger in range(ledgers) for part in _fragments(chance, ledger)]
    absent = chance.sample(BOOKIES, chance.choice((0, 0, 1, 2)))
    case = AuditCase(
        fragments,
        set(),
        set(),
        tuple(sorted(set(BOOKIES) - set(absent))),
        tuple(chance.sample(BOOKIES, chance.choice((0, 0, 1, 2)))),
    )
    for fragment in fragments:
        last = fragment.first + 9 if fragment.last is None else fragment.last
        hurt = chance.random() < 0.5
        for entry in range(fragment.first, last + 1):
            for slot in fragment.slots_of(entry):
                key = (fragment.bookies[slot], fragment.ledger, entry)
                luck = chance.random()
                if luck < 0.05:
                    case.journaled.add(key)
                elif not hurt or luck < 0.8:
                    case.held.add(key)
    return case


def _fragments(chance: random.Random, ledger: int) -> list[Fragment]:
    size = chance.randint(1, 5)
    quorum = chance.randint(1, size)
    found: list[Fragment] = []
    first = 0
    for _ in range(chance.randint(1, 3)):
        last = first + chance.randint(0, ENTRIES_MAX)
        found.append(Fragment(ledger, first, last, tuple(chance.sample(BOOKIES, size)), quorum))
        first = last + 1
    if chance.random() < 0.3:
        found.append(Fragment(ledger, first, None, tuple(chance.sample(BOOKIES, size)), quorum))
    elif chance.random() < 0.2:
        found[-1] = Fragment(ledger, found[-1].first, found[-1].first - 1, found[-1].bookies, quorum)
    return found
