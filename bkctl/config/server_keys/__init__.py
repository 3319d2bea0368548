"""Every key of a BookKeeper 4.17.3 server, by area."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bkctl.config.keys import ConfigKey
from bkctl.config.server_keys import (
    autorecovery,
    client,
    disks,
    garbage,
    identity,
    journal,
    metadata,
    network,
    security,
    statistics,
    storage,
)

#: The areas in the order of the documents.
MODULES = (
    identity,
    network,
    security,
    journal,
    storage,
    garbage,
    disks,
    metadata,
    autorecovery,
    client,
    statistics,
)


def by_name(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    """Return the keys by their names, of which none may stand twice."""
    found: dict[str, ConfigKey] = {}
    for key in keys:
        assert key.name not in found, f"{key.name} is declared twice"
        found[key.name] = key
    return MappingProxyType(found)


#: Every key by its name, in the order of the documents.
SERVER_KEYS = by_name(key for module in MODULES for key in module.KEYS)
