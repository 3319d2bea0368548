"""Names that Apache Pulsar writes into the custom metadata of its ledgers: whose they are.

Names and values, all of them bytes of UTF-8 (``LedgerMetadataUtils``); before 2.5 some had other names:

====================================  ========================================================
``application``                       ``pulsar``
``component``                         ``managed-ledger``, ``compacted-ledger``, ``schema``, ...
``pulsar/managed-ledger``             ``tenant/namespace/persistent/topic``, the topic URL-encoded
``pulsar/cursor``                     the subscription, on ledgers that keep its position
``pulsar/compactedTopic``             ``persistent://tenant/namespace/topic``
``pulsar/schemaId``                   ``tenant/namespace/topic``
====================================  ========================================================

Other applications may use ``application`` and ``component`` as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

_PULSAR = "pulsar"
_MANAGED_LEDGER = ("pulsar/managed-ledger", "psr/managed-ledger")
_CURSOR = ("pulsar/cursor", "psr/cursor")
_COMPACTED_TOPIC = ("pulsar/compactedTopic", "compactedTopic")
_SCHEMA = ("pulsar/schemaId", "schemaId")
_DOMAIN = "persistent"
_SCHEME = "persistent://"
_PARTITION = re.compile(r"-partition-[0-9]+$")


@dataclass(frozen=True, slots=True)
class LedgerOwner:
    """The owner of a ledger. ``component`` says what for, ``cursor`` whose position it keeps."""

    application: str | None = None
    component: str | None = None
    topic: str | None = None
    cursor: str | None = None


NOBODY = LedgerOwner()


def ledger_owner(custom_metadata: Iterable[tuple[str, bytes]]) -> LedgerOwner:
    """Return whose a ledger is, as its custom metadata say."""
    pairs = {name: value.decode("utf-8", "backslashreplace") for name, value in custom_metadata}
    if not pairs:
        return NOBODY
    cursor = _first(pairs, _CURSOR)
    component = pairs.get("component")
    if cursor is not None and component in (None, "managed-ledger"):
        component = "cursor"
    return LedgerOwner(pairs.get("application"), component, _topic(pairs), cursor)


def matches_topic(topic: str | None, wanted: str) -> bool:
    """Return whether a topic is the wanted one, a partition of it, or one of a wanted namespace or tenant."""
    if topic is None:
        return False
    name = wanted if "://" in wanted else _SCHEME + wanted
    return topic == name or _PARTITION.sub("", topic) == name or topic.startswith(name.rstrip("/") + "/")


def topic_of_managed_ledger(name: str) -> str:
    """Return the topic that a managed ledger keeps, ``persistent://tenant/namespace/topic``.

    A name that is not made as Pulsar makes them is returned as it is.
    """
    parts = name.split("/")
    if len(parts) not in (4, 5) or parts[-2] != _DOMAIN:
        return name
    return _SCHEME + "/".join([*parts[:-2], unquote(parts[-1])])


def _topic(pairs: dict[str, str]) -> str | None:
    managed = _first(pairs, _MANAGED_LEDGER)
    if managed is not None:
        return topic_of_managed_ledger(managed)
    compacted = _first(pairs, _COMPACTED_TOPIC)
    if compacted is not None:
        return compacted
    schema = _first(pairs, _SCHEMA)
    return None if schema is None or pairs.get("application") != _PULSAR else _SCHEME + schema


def _first(pairs: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((pairs[name] for name in names if name in pairs), None)
