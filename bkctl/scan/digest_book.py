"""Which digest does each ledger use, and do its entries check?

The type of a ledger is known from its metadata, from the caller (``--digest TYPE``), or from the entries
themselves: the type under which most of them check, CRC-32C before CRC-32 before a MAC with the password
that was given. A ledger counts as settled when ``SETTLED_CHECKS`` of its entries check under a type, or,
at the end of the survey, when at least half of those tried do. A checksum that fits by chance has a
probability of 2^-32, so one type never settles on another's entries.

An entry may carry a damaged ledger id or entry id. When the ledger is not known from anywhere else, or the
digest fails, the checksum is tried with the ledger ids that are known, and with entry ids that differ in one
bit: a fit proves which entry it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch
from bkctl.scan.damage import Verdict
from bkctl.scan.proved_ids import EntryIds, first_proved, ids_of, near_ids
from bkctl.types import DigestType

SETTLED_CHECKS = 3
TRIES_MAX = 10_000
SIBLING_LEDGERS_MAX = 1_000
STRANGER_ENTRIES_MAX = 3
#: Bound on trials with other ledgers' ids in one book: seconds, where a file has many tiny unknown ledgers.
STRANGER_TRIALS_MAX = 1 << 18


@dataclass(slots=True)
class _Tally:
    """Trials of one ledger: how many entries, and how many checked under each candidate."""

    tried: int = 0
    checks: list[int] = field(default_factory=lambda: [0, 0, 0])


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """Result for one batch.

    ``digesters`` has the batch's ledgers with a known digest; ``failing`` indices whose digest does not
    check; ``strangers`` maps an index to the ids that its digest proves instead of those that it names;
    ``others`` has entries that check under another type than the one their ledger was settled on.
    ``excused`` says which failing entries a crash explains, and how (``scan.journal``).
    """

    digesters: Mapping[int, Digester]
    failing: frozenset[int]
    strangers: Mapping[int, EntryIds]
    others: Mapping[int, Digester] = field(default_factory=dict)
    excused: Mapping[int, Verdict] = field(default_factory=dict)
    checked: bool = True

    @property
    def suspicious(self) -> bool:
        """Whether an entry contradicts its digest and no crash explains it."""
        return bool(self.strangers) or any(index not in self.excused for index in self.failing)

    def digester(self, index: int, ledger: int) -> Digester | None:
        """Return the digest of an entry, None when it is not known."""
        return self.others.get(index) or self.digesters.get(ledger)

    @property
    def checkable(self) -> set[int]:
        """Ledgers of the batch whose digests were computed."""
        if not self.checked:
            return set()
        return {
            ledger
            for ledger, digester in self.digesters.items()
            if digester.type is not DigestType.MAC or digester.key
        }

    def ok(self, index: int, ledger: int) -> bool | None:
        """Return whether the digest checks where it is known and can be computed, else None."""
        if not self.checked:
            return None
        if index in self.failing or index in self.strangers:
            return False
        digester = self.digesters.get(ledger)
        if digester is None or (digester.type is DigestType.MAC and not digester.key):
            return None
        return True


class _EveryLedger(Mapping[int, Digester]):
    """``known`` digesters, and ``other`` for every ledger that is not among them."""

    def __init__(self, known: Mapping[int, Digester], other: Digester) -> None:
        self._known = known
        self._other = other

    def __getitem__(self, ledger: int) -> Digester:
        return self._known.get(ledger, self._other)

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class _Either(Mapping[int, Digester]):
    """Digesters that metadata knows, which may be too many to copy, and else those that were learnt."""

    def __init__(self, known: Mapping[int, Digester], learnt: Mapping[int, Digester]) -> None:
        self._known = known
        self._learnt = learnt

    def __getitem__(self, ledger: int) -> Digester:
        found = self._known.get(ledger)
        return self._learnt[ledger] if found is None else found

    def __iter__(self) -> Iterator[int]:
        yield from self._known
        yield from (ledger for ledger in self._learnt if ledger not in self._known)

    def __len__(self) -> int:
        return len(self._known) + sum(ledger not in self._known for ledger in self._learnt)


class DigestBook:
    """Digests of ledgers. ``known`` comes from metadata and wins; ``forced`` is a type for all others.

    With neither, :meth:`survey` learns from entries. ``enabled=False`` checks nothing; types that are known
    without reading entries still show where payloads begin.
    """

    def __init__(
        self,
        known: Mapping[int, Digester] | None = None,
        *,
        forced: Digester | None = None,
        password: bytes | None = None,
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        #: Whether ledgers' metadata was given, and a password to try.
        self.has_metadata = known is not None
        self.has_password = password is not None
        self._known: Mapping[int, Digester] = {} if known is None else known
        self._forced = forced
        self._settled: dict[int, Digester] = {}
        self._tallies: dict[int, _Tally] = {}
        self._trials_left = STRANGER_TRIALS_MAX
        self._candidates = [Digester(DigestType.CRC32C), Digester(DigestType.CRC32)]
        if password is not None:
            self._candidates.append(Digester.of(DigestType.MAC, password))

    @property
    def needs_survey(self) -> bool:
        """Whether the entries have to be looked at before they are judged."""
        return self.enabled and self._forced is None

    @property
    def digesters(self) -> Mapping[int, Digester]:
        """Ledgers whose digest is known by now; with ``forced``, every ledger."""
        known = _Either(self._known, dict(self._settled))
        return known if self._forced is None else _EveryLedger(known, self._forced)

    def digester(self, ledger: int) -> Digester | None:
        """Return the digest of a ledger, None when it is not known."""
        return self._known.get(ledger) or self._forced or self._settled.get(ledger)

    def unsettled(self, ledgers: Iterable[int]) -> set[int]:
        """Return those of ``ledgers`` that a survey should still look at."""
        return {
            ledger
            for ledger in ledgers
            if ledger not in self._known
            and ledger not in self._settled
            and (ledger not in self._tallies or self._tallies[ledger].tried < TRIES_MAX)
        }

    def tries(self, ledger: int) -> int:
        """Return how many entries of a ledger that is not settled a survey has looked at."""
        tally = self._tallies.get(ledger)
        return 0 if tally is None else tally.tried

    def survey(self, batch: EntryBatch) -> None:
        """Learn from the batch's entries of ledgers that are not settled."""
        open_ledgers = self.unsettled(set(batch.ledgers))
        if not open_ledgers:
            return
        for index, ledger in enumerate(batch.ledgers):
            if ledger in open_ledgers:
                tally = self._tallies.setdefault(ledger, _Tally())
                tally.tried += 1
                self._try(tally, ledger, batch.body(index))
                if ledger in self._settled or tally.tried >= TRIES_MAX:
                    open_ledgers.discard(ledger)
                    if not open_ledgers:
                        return

    def _try(self, tally: _Tally, ledger: int, body: bytes) -> None:
        for rank, digester in enumerate(self._candidates):
            if digester.checks(body):
                tally.checks[rank] += 1
                if tally.checks[rank] >= SETTLED_CHECKS:
                    self._settled[ledger] = digester
                    del self._tallies[ledger]
                return

    def close_survey(self) -> None:
        """Settle the ledgers of which at least half of the entries checked, as all entries were seen."""
        for ledger, tally in self._tallies.items():
            best = max(range(len(self._candidates)), key=lambda rank: (tally.checks[rank], -rank))
            if tally.checks[best] and 2 * tally.checks[best] >= tally.tried:
                self._settled[ledger] = self._candidates[best]

    def is_strange(self, ledger: int) -> bool:
        """Return whether a ledger's id may be damage: few entries name it, none with a digest that checks.

        A ledger that no survey has seen may be: the ledgers map of a log names all but those.
        """
        tally = self._tallies.get(ledger)
        return ledger not in self._settled and (tally is None or tally.tried <= STRANGER_ENTRIES_MAX)

    def check(self, batch: EntryBatch, siblings: Collection[int] = ()) -> BatchCheck:
        """Check every entry of the batch; ``siblings`` are ledgers that a stranger may belong to."""
        digesters: dict[int, Digester] = {}
        strange: set[int] = set()
        for ledger in set(batch.ledgers):
            digester = self.digester(ledger)
            if digester is not None:
                digesters[ledger] = digester
            elif self.is_strange(ledger):
                strange.add(ledger)
        if not self.enabled:
            return BatchCheck(digesters, frozenset(), {}, checked=False)
        failing = set(self._failing(batch, digesters))
        others = self._others(batch, failing)
        failing -= others.keys()
        doubtful = set(failing)
        if strange:
            doubtful.update(index for index, ledger in enumerate(batch.ledgers) if ledger in strange)
        strangers: dict[int, EntryIds] = {}
        for index in sorted(doubtful) if siblings else ():
            owner = self._owner(batch.body(index), siblings)
            if owner is not None:
                strangers[index] = owner
        return BatchCheck(digesters, frozenset(failing), strangers, others)

    def restart_trials(self) -> None:
        """Allow trials of other ids as at the start, so that a second pass finds what the first one found."""
        self._trials_left = STRANGER_TRIALS_MAX

    def _others(self, batch: EntryBatch, failing: set[int]) -> dict[int, Digester]:
        """Find failing entries that check under another type, where types were only learned from entries."""
        found: dict[int, Digester] = {}
        for index in failing:
            ledger = batch.ledgers[index]
            if ledger in self._known or self._forced is not None:
                continue
            body = batch.body(index)
            other = next((candidate for candidate in self._candidates if candidate.checks(body)), None)
            if other is not None:
                found[index] = other
        return found

    @staticmethod
    def _failing(batch: EntryBatch, digesters: Mapping[int, Digester]) -> list[int]:
        by_digester: dict[Digester, set[int]] = {}
        for ledger, digester in digesters.items():
            if digester.type is not DigestType.MAC or digester.key:
                by_digester.setdefault(digester, set()).add(ledger)
        if len(by_digester) == 1 and set(batch.ledgers) in by_digester.values():
            (digester,) = by_digester
            return digester.failing(batch.buffer, batch.starts, batch.sizes)
        failing: list[int] = []
        for digester, ledgers in by_digester.items():
            indices = [index for index, ledger in enumerate(batch.ledgers) if ledger in ledgers]
            part = batch.select(indices)
            failing += [indices[i] for i in digester.failing(part.buffer, part.starts, part.sizes)]
        return failing

    def _owner(self, body: bytes, siblings: Collection[int]) -> EntryIds | None:
        """Return the ids under which the entry checks, if their ledger is one that is known."""
        return first_proved(body, self._trials(ids_of(body), siblings))

    def _trials(self, ids: EntryIds, siblings: Collection[int]) -> Iterator[tuple[EntryIds, list[Digester]]]:
        """Yield the ids that an entry may have in place of ``ids``, with their digests, within the bound."""
        ledgers = islice(self._others_than(ids.ledger, siblings), SIBLING_LEDGERS_MAX)
        of_ledgers = (EntryIds(ledger, ids.entry) for ledger in ledgers)
        near = near_ids(ids.entry) if self.digester(ids.ledger) is not None else ()
        of_entries = (EntryIds(ids.ledger, entry) for entry in near)
        for other in chain(of_ledgers, of_entries):
            if self._trials_left <= 0:
                return
            self._trials_left -= 1
            digester = self.digester(other.ledger)
            if digester is not None and digester.type is not DigestType.DUMMY:
                yield other, [digester]

    def _others_than(self, own: int, siblings: Collection[int]) -> Iterator[int]:
        """Yield the known ledgers that an entry may belong to, those first whose ids differ in one bit."""
        near = list(near_ids(own))
        tried = {own}
        known = (ledger for ledger in near if ledger in siblings or self.digester(ledger) is not None)
        for ledger in chain(known, siblings, self._settled):
            if ledger not in tried:
                tried.add(ledger)
                yield ledger
