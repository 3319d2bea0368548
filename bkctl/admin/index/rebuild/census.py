"""Decide which ledgers the new index has: every ledger of any source, unless it is proved to be gone.

Old ledger rows that are readable are all kept. A ledger without a row is added when it has locations in the
old index or entries in the logs: its row may have been lost. If it was deleted, the bookie's garbage
collection finds that out again.

Only the metadata of the cluster (see :mod:`bkctl.admin.ledgers.known_ledgers`) leave a ledger out; so does a
replay that brings it back with all its entries. That is the case of the youngest ledgers of a bookie that was
killed: they have entries in the logs, and neither a row nor a location yet.

A ledger with entries in the journals alone gets no row at a start when its master key is gone there. It is
added where the metadata place it on the bookie: otherwise it was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from bkctl.admin.index.rebuild.difference import Difference
from bkctl.admin.index.rebuild.old_rows import OldRows
from bkctl.admin.ledgers.known_ledgers import KnownLedgers, Source


@dataclass(slots=True)
class Census:
    """``rowed`` ledgers have an old row that counts, ``added`` are known from elsewhere. ``sources`` says
    where from. ``stranded`` are those added that have entries in journals which no start would replay.
    ``differences`` are about ledgers that were left out, and about the metadata."""

    rowed: set[int] = field(default_factory=set)
    added: dict[int, tuple[Source, ...]] = field(default_factory=dict)
    stranded: set[int] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)

    @property
    def ledgers(self) -> list[int]:
        """The ledgers of the census, ascending."""
        return sorted(self.rowed | self.added.keys())


def take_census(
    old: OldRows,
    local: dict[Source, Set[int]],
    known: KnownLedgers,
    serves: Callable[[int], bool],
    replayed: Callable[[], Set[int]],
    stranded: Callable[[], Set[int]],
) -> Census:
    """Decide which ledgers there are. ``local`` are the sources besides the rows, ``replayed`` reads which
    ledgers the next start makes rows of, ``stranded`` those of which it leaves entries in the journals out.
    Raises BkctlError."""
    census = Census()
    rows = old.rows.keys() | old.damaged
    readable = old.problem is None
    if readable:
        census.rowed = set(rows)
    known.local = {Source.ROWS: rows, **local}
    others: set[int] = set() if readable else set(rows)
    others = others.union(*local.values()) - census.rowed
    others = {ledger for ledger in others if ledger >= 0 and serves(ledger)}
    gone = known.gone(others)
    elsewhere = _kept_elsewhere(others - gone, known) if readable else set()
    located = local.get(Source.LOCATIONS, frozenset())
    for ledger in sorted(gone | elsewhere):
        # Of garbage that the old index did not know either there is nothing to say.
        if not readable or ledger in located:
            census.differences.append(_left_out(ledger, known, is_gone=ledger in gone))
    others -= gone | elsewhere
    if readable and known.cluster.is_asked:
        census.stranded = _placed_here(filter(serves, stranded() - census.rowed), known)
        known.local[Source.JOURNALS] = census.stranded
    # No replay brings the entries that the metadata miss: such a ledger gets a row, in limbo.
    unsure = others - located - census.stranded - local.get(Source.METADATA, frozenset())
    pending = replayed() & unsure if readable and unsure else set()
    for ledger in sorted((others | census.stranded) - pending):
        census.added[ledger] = known.sources(ledger)
    _note(census, pending, known)
    return census


def _note(census: Census, pending: Set[int], known: KnownLedgers) -> None:
    census.differences += [
        Difference("note", ledger, "no row yet: its master key in the journal brings that at the next start")
        for ledger in sorted(pending)
    ]
    if known.reservation is not None:
        census.differences.append(Difference("note", None, known.reservation))


def _placed_here(ledgers: Iterable[int], known: KnownLedgers) -> set[int]:
    """Find the ledgers that the metadata place on the bookie."""
    kept = known.keeps_each(sorted(ledger for ledger in ledgers if ledger >= 0))
    return {ledger for ledger, here in kept.items() if here}


def _kept_elsewhere(ledgers: set[int], known: KnownLedgers) -> set[int]:
    """Find ledgers that exist and that a live store places on other bookies only."""
    if not known.tells_all:
        return set()
    return {ledger for ledger, kept in known.keeps_each(sorted(ledgers)).items() if kept is False}


def _left_out(ledger: int, known: KnownLedgers, *, is_gone: bool) -> Difference:
    where = ", ".join(source.value for source in known.sources(ledger))
    if is_gone:
        detail = f"proven to be deleted by the metadata; no row (was in: {where})"
        return Difference("ledger_not_in_metadata", ledger, detail)
    detail = f"its metadata name other bookies only; no row (was in: {where})"
    return Difference("ledger_not_here", ledger, detail)
