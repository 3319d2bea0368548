"""From a bookie's configuration to the settings of the engine and the port."""

from __future__ import annotations

from dataclasses import replace

from bkctl.config.bookie import BookieConfig
from bkctl.config.server_keys.network import QUEUE_PER_THREAD_MAX, NetworkSettings
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.engine.settings import BookieSettings
from bkctl.metadata.settings import MetadataSettings
from bkctl.server.wire.connection_memory import adds_bytes_max
from bkctl.server.wire.descriptor_limit import bookie_connections_max, descriptor_limit


def bookie_settings(config: BookieConfig) -> BookieSettings:
    """Return the settings of the engine. Raises UsageError for values that do not go together."""
    journals = config.directories.journals
    return BookieSettings(
        journal_directories=journals,
        ledger_directories=config.directories.ledgers,
        index_directories=config.directories.indexes,
        journal=replace(config.journal, queue_bytes_max=config.journal.queue_bytes_max // len(journals)),
        entry_log=config.entry_log,
        storage=config.storage,
        writes=HeldAddsSettings(
            held_entries_max=config.network.add_queue_max or QUEUE_PER_THREAD_MAX,
            held_bytes_max=adds_bytes_max(config.network.connection_memory_bytes_max),
        ),
        disks=config.disks,
        gc=config.gc,
    )


def server_settings(config: BookieConfig) -> NetworkSettings:
    """Return the settings of the port; the limit of descriptors lowers its connections."""
    network = config.network
    return replace(
        network,
        connections_max=bookie_connections_max(descriptor_limit(), network.connections_max),
        tls_required=config.tls is not None and config.tls.required,
    )


def metadata_settings(config: BookieConfig) -> MetadataSettings:
    """Return the settings of the metadata store's client."""
    metadata, defaults = config.metadata, MetadataSettings()
    return MetadataSettings(
        session_timeout_ms=metadata.session_timeout_ms,
        connect_timeout_ms=metadata.session_timeout_ms,
        retry_backoff_start_ms=metadata.retry_backoff_start_ms or defaults.retry_backoff_start_ms,
        retry_backoff_max_ms=metadata.retry_backoff_max_ms or defaults.retry_backoff_max_ms,
    )
