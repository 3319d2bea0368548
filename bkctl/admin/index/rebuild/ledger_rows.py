"""Gather the facts of each ledger of the new index: from its old row, else from everything else.

A row that is readable is kept as it is. Otherwise the master key comes from the journals or from the password
in the ledgers' metadata, which also mends a key of which some bytes were changed, and the explicit LAC comes
from the journals. Unknown facts are decided the safe way: the ledger is fenced unless metadata that are newer
than everything here say OPEN and no journal fences it, and it is put into limbo, because it may have been. A
fence too many stops a writer, one too few loses acknowledged entries; a limbo too many sends a client to
other bookies, one too few answers that an entry was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bkctl.admin.index.check.master_keys import is_damaged_key, key_of_metadata
from bkctl.admin.index.rebuild.census import Census
from bkctl.admin.index.rebuild.difference import Difference
from bkctl.admin.index.rebuild.journal_facts import JournalFacts
from bkctl.admin.index.rebuild.old_rows import OldRows
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.types import LedgerState

_CHANGED = "some bytes of the one that was known had been changed"


@dataclass(frozen=True, slots=True)
class LedgerSources:
    """The sources of facts about ledgers besides their old rows.

    ``is_current`` says whether the metadata are newer than everything the bookie has written, so that a
    ledger which they call open was not fenced since. ``has_limbo`` is False of ``.idx`` files: Java, which
    wrote most of them, never sets it there.
    """

    journals: JournalFacts
    metadata: Mapping[int, LedgerMetadata] = field(default_factory=dict)
    is_current: bool = False
    has_limbo: bool = True
    right_keys: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class LedgerPlan:
    """The rows to write, ``flags`` unchanged, and how they differ from what was there."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    flags: bytes | None = None
    differences: list[Difference] = field(default_factory=list)


def plan_ledgers(old: OldRows, census: Census, sources: LedgerSources) -> LedgerPlan:
    """Plan the ledger rows of one directory."""
    plan = LedgerPlan(flags=old.flags, differences=list(census.differences))
    for ledger in census.ledgers:
        if old.trusts(ledger) and ledger not in old.damaged:
            right = sources.right_keys.get(ledger)
            plan.rows[ledger] = _with_a_key(ledger, old.rows[ledger], right, plan.differences)
            if ledger in old.collapsed:
                kept = "the 8-byte row" if old.collapsed[ledger] else "its content, under an 8-byte key"
                plan.differences.append(
                    Difference("rebuilt_key_collapsed", ledger, f"16-byte row dropped; kept: {kept}")
                )
        else:
            plan.rows[ledger] = _known_otherwise(ledger, old, census, sources, plan.differences)
    return plan


def put_into_limbo(plan: LedgerPlan, ledgers: Mapping[int, str]) -> None:
    """Set limbo on ledgers that may have lost entries; the values say why."""
    for ledger, why in sorted(ledgers.items()):
        data = plan.rows.get(ledger)
        if data is not None and not data.limbo:
            plan.rows[ledger] = replace(data, limbo=True)
            plan.differences.append(Difference("limbo_set", ledger, f"{why}; index limbo --clear ends it"))


def _with_a_key(
    ledger: int, row: LedgerData, right: bytes | None, differences: list[Difference]
) -> LedgerData:
    """Return an old row, with the key of the metadata where a client could bring its own key no more."""
    if not is_damaged_key(row.master_key, right):
        return row
    if right is None:
        detail = f"it has {len(row.master_key)} bytes, which no client brings, and no metadata have another"
        differences.append(Difference("master_key_damaged", ledger, detail))
        return row
    differences.append(Difference("master_key_from_metadata", ledger, _CHANGED))
    return replace(row, master_key=right)


def _known_otherwise(
    ledger: int, old: OldRows, census: Census, sources: LedgerSources, differences: list[Difference]
) -> LedgerData:
    """Work out the row of a ledger whose old row cannot be read or relied on."""
    journals = sources.journals
    row = old.rows.get(ledger)
    metadata = sources.metadata.get(ledger)
    key = _key(ledger, row, journals, key_of_metadata(metadata), differences)
    fenced, why = _fence(ledger, row, sources, metadata)
    lac = journals.explicit_lacs.get(ledger) or (row.explicit_lac if row is not None else None)
    if row is None:
        where = ", ".join(source.value for source in census.added.get(ledger, ()))
        known = f"; known from: {where}" if where else ""
        differences.append(Difference("ledger_added", ledger, f"no readable row before{known}"))
    if fenced and not (row is not None and row.fenced):
        differences.append(Difference("fenced", ledger, why))
    if is_blank(key):
        differences.append(Difference("master_key_unknown", ledger, "in no journal and no metadata"))
    if lac is None:
        differences.append(
            Difference("explicit_lac_lost", ledger, "if it had one: the row is unreadable, no journal has it")
        )
    elif row is None or lac != row.explicit_lac:
        differences.append(Difference("explicit_lac_from_journal", ledger, "taken from a journal"))
    limbo = row.limbo if row is not None else None
    if row is None and sources.has_limbo:
        limbo = True
        differences.append(
            Difference(
                "limbo_set",
                ledger,
                "whether entries of it had been lost stood in its row alone; index limbo --clear ends it when"
                " 'bkctl index check' finds no damage and names no lost entries of it",
            )
        )
    return LedgerData(fenced, key, lac, limbo)


def _key(
    ledger: int,
    row: LedgerData | None,
    journals: JournalFacts,
    right: bytes | None,
    differences: list[Difference],
) -> bytes:
    """Return the master key of a ledger whose old row cannot be relied on.

    The key of the metadata, ``right``, wins over one of a journal, which nothing proves.
    """
    key = row.master_key if row is not None else b""
    if is_blank(key):
        key = journals.master_keys.get(ledger, b"")
        if right is not None and not is_blank(key) and key != right and not is_damaged_key(key, right):
            detail = "a journal has another one, which nothing proves"
            differences.append(Difference("master_key_from_metadata", ledger, detail))
            return right
    if is_damaged_key(key, right):
        if right is not None:
            differences.append(Difference("master_key_from_metadata", ledger, _CHANGED))
        key = b""
    if is_blank(key):
        return right or key
    return key


def _fence(
    ledger: int, row: LedgerData | None, sources: LedgerSources, metadata: LedgerMetadata | None
) -> tuple[bool, str]:
    journals = sources.journals
    if row is not None and row.fenced:
        return True, "as before"
    if ledger in journals.fenced:
        return True, "a journal fences it"
    if metadata is None:
        return True, "whether it was fenced cannot be known without its metadata (--metadata)"
    if metadata.state is not LedgerState.OPEN:
        return True, f"its metadata says {metadata.state.value}"
    if not sources.is_current:
        return True, "its metadata said OPEN, but it may have been fenced since (--metadata)"
    if journals.damaged:
        return True, "its metadata says OPEN, but a journal that may have fenced it is damaged"
    return False, ""
