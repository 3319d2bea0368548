"""Which ledgers there are and what is known of each: from the old rows, else from everything else.

Where an old row is readable it is kept as it is. Where it is not, the master key comes from the journals or
from the password in the ledgers' metadata, the explicit LAC from the journals, and the ledger is fenced
unless its metadata says OPEN and no journal fences it: a fence too many stops a writer, one too few loses
acknowledged entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from bkctl.admin.offline.rebuild.difference import Difference
from bkctl.admin.offline.rebuild.journal_facts import JournalFacts
from bkctl.codec.digest import master_key
from bkctl.codec.ledger_data import FLAGS_ID, KEY_BYTES, LedgerData, decode_ledger_key, encode_ledger_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.scan.index import LedgerIndex
from bkctl.scan.index_rows import IndexDamage
from bkctl.types import LedgerState


@dataclass(slots=True)
class OldRows:
    """The rows of an index. ``problem`` says why it cannot be trusted as a whole, ``damaged`` are ledgers
    whose row does not decode, ``collapsed`` ledgers with a 16-byte row, ``flags`` the row of flags."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    problem: str | None = None
    damaged: set[int] = field(default_factory=set)
    collapsed: dict[int, bool] = field(default_factory=dict)
    flags: bytes | None = None

    def trusts(self, ledger: int) -> bool:
        """Whether the ledger's old row says all there is to know."""
        return self.problem is None and ledger in self.rows


@dataclass(frozen=True, slots=True)
class LedgerSources:
    """Where ledgers are known from besides the old rows. ``metadata`` None means that none was given."""

    journals: JournalFacts
    logs: frozenset[int]
    metadata: dict[int, LedgerMetadata] | None = None


@dataclass(slots=True)
class LedgerPlan:
    """The rows to write, ``flags`` unchanged, and how they differ from what was there."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    flags: bytes | None = None
    differences: list[Difference] = field(default_factory=list)


def read_old_rows(directory: str) -> OldRows:
    """Rows of a ``ledgers`` database as far as they can be read. Raises StorageError when the disk fails."""
    old = OldRows()
    try:
        index = LedgerIndex(store := open_read_only(directory))
    except NotFoundError:
        old.problem = "there is no ledgers database"
        return old
    except CorruptionError as error:
        old.problem = str(error)
        return old
    try:
        for row in index.rows():
            if isinstance(row, IndexDamage):
                _damaged(old, row)
            elif row.key_bytes == KEY_BYTES:
                old.rows[row.ledger] = row.data
            else:
                # Rows come in key order, so the 8-byte one, which wins, is there already.
                old.collapsed[row.ledger] = row.ledger in old.rows
                old.rows.setdefault(row.ledger, row.data)
        old.flags = store.get(encode_ledger_key(FLAGS_ID))
        if store.never_written:
            # It was made in the place of one that is lost: it does not say that there are no ledgers.
            old.problem = "nothing was ever written to it"
    except CorruptionError as error:
        old.problem = str(error)
    finally:
        index.close()
    return old


def _damaged(old: OldRows, row: IndexDamage) -> None:
    """Note the ledger of a row that does not decode; where its key does not tell, it may be any ledger's."""
    key = bytes.fromhex(row.key_hex)
    try:
        ledger, key_bytes = decode_ledger_key(key)
    except CorruptionError:
        if len(key) != KEY_BYTES:  # eight bytes are a negative id, which no ledger has
            old.problem = f"row {row.key_hex}: {row.reason}" if key else row.reason
        return
    # A 16-byte row counts only where the ledger has no other, which would have come before it.
    if ledger >= 0 and (key_bytes == KEY_BYTES or ledger not in old.rows):
        old.damaged.add(ledger)


def plan_ledgers(
    old: OldRows,
    sources: LedgerSources,
    serves: Callable[[int], bool],
    limbo: Iterable[int] = (),
) -> LedgerPlan:
    """The rows of one directory. ``limbo`` are ledgers that may have lost entries."""
    plan = LedgerPlan(flags=old.flags)
    for ledger in sorted(_ledgers(old, sources, serves, plan)):
        if old.trusts(ledger) and ledger not in old.damaged:
            plan.rows[ledger] = old.rows[ledger]
            if ledger in old.collapsed:
                kept = "the 8-byte row" if old.collapsed[ledger] else "its content, under an 8-byte key"
                plan.differences.append(
                    Difference("rebuilt_key_collapsed", ledger, f"16-byte row dropped; kept: {kept}")
                )
        else:
            plan.rows[ledger] = _known_otherwise(ledger, old, sources, plan.differences)
    for ledger in limbo:
        data = plan.rows.get(ledger)
        if data is not None and not data.limbo:
            plan.rows[ledger] = replace(data, limbo=True)
            plan.differences.append(
                Difference(
                    "limbo_set", ledger, "entries may be lost with the damage; index limbo --clear ends it"
                )
            )
    return plan


def _ledgers(
    old: OldRows, sources: LedgerSources, serves: Callable[[int], bool], plan: LedgerPlan
) -> set[int]:
    if old.problem is None:
        return old.rows.keys() | old.damaged
    ledgers = {
        ledger
        for ledger in old.rows.keys() | old.damaged | sources.logs | sources.journals.ledgers
        if ledger >= 0 and serves(ledger)
    }
    if sources.metadata is None:
        return ledgers
    gone = ledgers - sources.metadata.keys()
    plan.differences += [
        Difference("ledger_not_in_metadata", ledger, "the metadata given says that it is deleted; no row")
        for ledger in sorted(gone)
    ]
    return ledgers - gone


def _known_otherwise(
    ledger: int, old: OldRows, sources: LedgerSources, differences: list[Difference]
) -> LedgerData:
    """A ledger whose old row cannot be read or relied on."""
    journals = sources.journals
    row = old.rows.get(ledger)
    metadata = (sources.metadata or {}).get(ledger)
    key = row.master_key if row is not None else b""
    key = key or journals.master_keys.get(ledger, b"")
    if not key and metadata is not None and metadata.password is not None:
        key = master_key(metadata.password)
    fenced, why = _fence(ledger, row, journals, metadata)
    lac = journals.explicit_lacs.get(ledger) or (row.explicit_lac if row is not None else None)
    if row is None:
        differences.append(Difference("ledger_added", ledger, "no readable row before"))
    if fenced and not (row is not None and row.fenced):
        differences.append(Difference("fenced", ledger, why))
    if not key:
        differences.append(Difference("master_key_unknown", ledger, "in no journal and no metadata"))
    if lac is None:
        differences.append(
            Difference("explicit_lac_lost", ledger, "if it had one: the row is unreadable, no journal has it")
        )
    elif row is None or lac != row.explicit_lac:
        differences.append(Difference("explicit_lac_from_journal", ledger, "taken from a journal"))
    return LedgerData(fenced, key, lac, row.limbo if row is not None else None)


def _fence(
    ledger: int, row: LedgerData | None, journals: JournalFacts, metadata: LedgerMetadata | None
) -> tuple[bool, str]:
    if row is not None and row.fenced:
        return True, "as before"
    if ledger in journals.fenced:
        return True, "a journal fences it"
    if metadata is None:
        return True, "whether it was fenced cannot be known without its metadata (--ledger-metadata)"
    if metadata.state is not LedgerState.OPEN:
        return True, f"its metadata says {metadata.state.value}"
    if journals.damaged:
        return True, "its metadata says OPEN, but a journal that may have fenced it is damaged"
    return False, ""
