"""Ledgers of Apache Pulsar's that its metadata do not name any more: nobody will read or delete them.

Brokers name a topic's ledgers below ``/managed-ledgers`` and those of its schemas below ``/schemas``. A
ledger of a topic or cursor that is named nowhere is an orphan, if all of the following is known as well.
Otherwise it is ``unknown``, and never an orphan:

* every node that was read decodes: one that does not may name any ledger;
* the ledger is old: a broker makes a ledger before it names it, and drops its name before it deletes it;
* its namespace is there: several Pulsar clusters may share the bookies, and the other's topics are not here;
* it is of a kind that is always named here. The ledger of a compacted topic may be named in a cursor's ledger
  only, and other kinds (snapshots of delayed messages, functions' state) elsewhere.

The ledgers are listed before the names are read, so that a ledger that is made in between is either not
listed, or named. Those that remain are looked for once more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bkctl.codec.pulsar_metadata import decode_managed_cursor, decode_managed_ledger, decode_schema_locator
from bkctl.codec.pulsar_names import LedgerOwner, ledger_owner
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.reporting import counted

MANAGED_LEDGERS = "managed-ledgers"
SCHEMAS = "schemas"
_PULSAR = "pulsar"
_DOMAIN = "persistent"
#: Kinds of which the metadata store names every ledger.
_NAMED_KINDS = frozenset({"managed-ledger", "cursor", "schema"})
_SCHEME = "persistent://"


class Standing(enum.StrEnum):
    """The standing of a ledger with Pulsar."""

    NAMED = "named"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JudgedLedger:
    """One ledger of Pulsar's, and why it is unknown."""

    stored: StoredLedger
    owner: LedgerOwner
    standing: Standing
    why: str


@dataclass(slots=True)
class NamedLedgers:
    """The ledgers that nodes name. ``undecoded`` are paths of nodes that may name any other."""

    ledgers: set[int] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    undecoded: list[tuple[str, str]] = field(default_factory=list)
    nodes: int = 0
    has_schemas: bool = False


def read_names(store: MetadataStore, roots: Sequence[str], advance: Callable[[int], None]) -> NamedLedgers:
    """Read what each of Pulsar's roots names. Raises NotFoundError where there are no managed ledgers."""
    names = NamedLedgers(has_schemas=True)
    for root in roots:
        top = f"{root.rstrip('/')}/{MANAGED_LEDGERS}"
        nodes = store.nodes_below(top)
        first = next(nodes, None)
        if first is None:
            raise NotFoundError(
                f"{store.uri}: there is no node {top}: name the path of Pulsar's metadata with --root"
            )
        for path, data in nodes:
            names.nodes += 1
            advance(1)
            _take_managed(names, path, path.removeprefix(f"{top}/").split("/"), data)
        top = f"{root.rstrip('/')}/{SCHEMAS}"
        found = list(store.nodes_below(top))
        names.has_schemas &= bool(found)
        for path, data in found[1:]:
            names.nodes += 1
            if data:
                _take(names, path, data, decode_schema_locator)
    return names


def _take_managed(names: NamedLedgers, path: str, parts: list[str], data: bytes) -> None:
    """Take what a node below ``/managed-ledgers`` names.

    ``tenant/namespace/persistent/topic/cursor``, with a cluster behind the tenant before Pulsar 2.
    """
    at = next((at for at in (2, 3) if len(parts) > at and parts[at] == _DOMAIN), None)
    if at is not None:
        names.namespaces.add("/".join(parts[:at]))
    below = None if at is None else len(parts) - at - 1
    if below == 1:
        _take(names, path, data, decode_managed_ledger)
    elif below == 2:
        _take(names, path, data, decode_managed_cursor)
    elif data:
        names.undecoded.append((path, "is no tenant, namespace, topic or cursor"))


def _take(names: NamedLedgers, path: str, data: bytes, decode: Callable[[bytes], list[int]]) -> None:
    try:
        names.ledgers.update(decode(data))
    except CorruptionError as error:
        names.undecoded.append((path, str(error)))


def pulsars_ledgers(stored: Iterable[StoredLedger]) -> Iterator[tuple[StoredLedger, LedgerOwner]]:
    """Yield the ledgers whose custom metadata say that Pulsar made them."""
    for ledger in stored:
        owner = ledger_owner(ledger.metadata.custom_metadata)
        if owner.application == _PULSAR:
            yield ledger, owner


def judge(
    candidates: Iterable[tuple[StoredLedger, LedgerOwner]], names: NamedLedgers, made_before_ms: float
) -> Iterator[JudgedLedger]:
    """Say of each ledger of Pulsar's whether it is named, an orphan, or unknown and why."""
    for stored, owner in candidates:
        if stored.ledger in names.ledgers:
            yield JudgedLedger(stored, owner, Standing.NAMED, "")
            continue
        why = _doubt(stored, owner, names, made_before_ms)
        yield JudgedLedger(stored, owner, Standing.UNKNOWN if why else Standing.ORPHAN, why)


def _doubt(stored: StoredLedger, owner: LedgerOwner, names: NamedLedgers, made_before_ms: float) -> str:
    """Return why a ledger that is not named may be one all the same, an empty text where nothing speaks for
    it."""
    if names.undecoded:
        nodes = counted(len(names.undecoded), "node of Pulsar's does", "nodes of Pulsar's do")
        return f"{nodes} not decode, and may name it"
    if created_ms(stored) >= made_before_ms:
        return "too young: a broker makes a ledger before it names it"
    if owner.component not in _NAMED_KINDS:
        return f"its kind ({owner.component or 'none'}) may be named elsewhere"
    if owner.component == "schema" and not names.has_schemas:
        return "there is no node of schemas"
    namespace = _namespace(owner.topic)
    if namespace is None:
        return "it does not say of which topic it is"
    if namespace not in names.namespaces:
        return f"no topic of {namespace} is here: removed, or of another Pulsar cluster (--root)"
    return ""


def _namespace(topic: str | None) -> str | None:
    """Return ``tenant/namespace`` of a topic, with a cluster between them before Pulsar 2."""
    if topic is None or not topic.startswith(_SCHEME):
        return None
    parts = topic.removeprefix(_SCHEME).split("/")
    return "/".join(parts[:2]) if len(parts) == 3 else "/".join(parts[:3]) if len(parts) > 3 else None


def created_ms(stored: StoredLedger) -> int:
    """Return when a ledger was made: as its metadata say, or its node where they do not."""
    ctime_ms = stored.metadata.ctime_ms
    return stored.created_ms if ctime_ms is None or ctime_ms <= 0 else max(ctime_ms, stored.created_ms)
