"""Every key of a BookKeeper 4.17.3 server, by area."""

from __future__ import annotations

from collections.abc import Mapping
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

#: Every key by its name, in the order of the documents.
SERVER_KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    {
        key.name: key
        for module in (
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
        for key in module.KEYS
    }
)
