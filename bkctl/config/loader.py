"""From a ``bk_server.conf``, the environment and ``-X key=value`` to a :class:`BookieConfig`.

Precedence: ``-X`` over the environment (``BKCTL_METADATA_URI``) over the file over defaults. Without a file
the bookie lives in ``./bkctl-data`` with embedded metadata and listens on the loopback only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from bkctl.config import bookie as settings
from bkctl.config.checks import check
from bkctl.config.metadata_uri import metadata_uri
from bkctl.config.properties import Properties, ReadBytes, load_properties, read_bytes
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.config.server_keys.identity import IdentitySettings
from bkctl.config.server_keys.journal import DirectorySettings, JournalSettings
from bkctl.config.server_keys.metadata import MetadataSettings
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.config.server_keys.security import TLS_FACTORY, BookieTlsSettings
from bkctl.config.server_keys.statistics import HttpSettings, StatisticsSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.config.values import GivenValues, Notice, gather
from bkctl.errors import UsageError

#: Directory of a bookie without a configuration, below the working directory.
DATA_DIRECTORY = "bkctl-data"
METADATA_FILE = "metadata.db"

_MIB = 1 << 20


def load(
    path: str | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    memory_bytes: int | None = None,
    working_directory: str | None = None,
    read: ReadBytes = read_bytes,
) -> tuple[settings.BookieConfig, list[Notice]]:
    """Load the settings, and the notices that the user should read.

    ``path`` None means no configuration file. ``memory_bytes`` is ``--memory``, the total of the caches.
    ``working_directory`` (absolute; default: the process's) is where ``bkctl-data`` goes. Raises
    NotFoundError when there is no such file and UsageError naming file, line, key and what is allowed.
    """
    properties = Properties() if path is None else load_properties(path, environment, read)
    defaults = without_a_file(working_directory or os.getcwd()) if path is None else {}
    values = GivenValues(gather(properties, defaults, environment, overrides), environment)
    notices = [
        Notice(True, place, "not ASCII: read as ISO-8859-1, as Java does; write \\uXXXX instead")
        for place in properties.beyond_ascii
    ]
    notices += values.notices()
    loopback_only = path is None and not {"advertisedAddress", "listeningInterface"} & overrides.keys()
    config = build(values, memory_bytes, loopback_only=loopback_only, notices=notices)
    notices += check(config, values, memory_given=memory_bytes is not None)
    return config, notices


def without_a_file(working_directory: str) -> dict[str, tuple[str, ...]]:
    """Return the settings that count when there is no configuration file, as items of keys."""
    home = os.path.join(working_directory, DATA_DIRECTORY)
    return {
        "journalDirectories": (os.path.join(home, "journal"),),
        "ledgerDirectories": (os.path.join(home, "ledgers"),),
        "metadataServiceUri": (f"embedded://{os.path.join(home, METADATA_FILE)}",),
        "advertisedAddress": ("127.0.0.1",),
        "allowLoopback": ("true",),
    }


def build(
    values: GivenValues, memory_bytes: int | None, *, loopback_only: bool, notices: list[Notice]
) -> settings.BookieConfig:
    """Return every section out of the values. Raises UsageError."""
    memory = settings.DEFAULT_MEMORY_BYTES if memory_bytes is None else memory_bytes
    if memory < _MIB:
        raise UsageError(f"--memory: expected at least 1 MiB, found {memory} bytes")
    directories = values.fill(DirectorySettings)
    return settings.BookieConfig(
        identity=_identity(values, loopback_only),
        directories=directories,
        journal=_journal(values, memory),
        entry_log=values.fill(EntryLogSettings),
        storage=_storage(values, memory, len(directories.ledgers)),
        disks=_disks(values),
        gc=_gc(values),
        network=_network(values),
        tls=_tls(values),
        metadata=values.fill(MetadataSettings, uri=metadata_uri(values, notices)),
        http=values.fill(HttpSettings, required=values.is_given("httpServerEnabled")),
        statistics=values.fill(StatisticsSettings),
        autorecovery=values.truth("autoRecoveryDaemonEnabled"),
        memory_bytes=memory,
        given=values.shown(),
        values=values,
    )


def _identity(values: GivenValues, loopback_only: bool) -> IdentitySettings:
    port = values.integer("bookiePort")
    if port == 0 and not values.truth("allowEphemeralPorts"):
        raise UsageError(
            f"{values.where('bookiePort')}: bookiePort: 0 goes with allowEphemeralPorts=true only; name a "
            "port from 1 to 65535"
        )
    identity = values.fill(IdentitySettings, loopback_only=loopback_only)
    address = (identity.advertised_address or "").strip() or None
    return replace(identity, advertised_address=address)


def _journal(values: GivenValues, memory: int) -> JournalSettings:
    share = max(int(memory * settings.JOURNAL_SHARE), settings.JOURNAL_MEMORY_BYTES_MIN)
    return values.fill(JournalSettings, queue_bytes_max=share)


def _storage(values: GivenValues, memory: int, directories: int) -> StorageSettings:
    return values.fill(
        StorageSettings,
        write_cache_bytes_max=int(memory * settings.WRITE_CACHE_SHARE),
        read_cache_bytes_max=int(memory * settings.READ_CACHE_SHARE),
        index_block_cache_bytes=max(int(memory * settings.BLOCK_CACHE_SHARE) // max(directories, 1), _MIB),
    )


def _disks(values: GivenValues) -> DiskSettings:
    log_free = values.integer_or_none("minUsableSizeForEntryLogCreation")
    # A cast in Java turns the intended 1.2 times the log's size into once.
    log_free = values.integer("logSizeLimit") if log_free is None else log_free
    usage = values.number("diskUsageThreshold")
    return values.fill(DiskSettings, usage_low=usage, free_bytes_min=log_free)


def _gc(values: GivenValues) -> GcSettings:
    gc = values.fill(GcSettings)
    return replace(
        gc,
        entries_per_s=None if gc.throttle_by_bytes else gc.entries_per_s,
        bytes_per_s=gc.bytes_per_s if gc.throttle_by_bytes else None,
        log_size_bytes=values.integer("logSizeLimit") if gc.use_log_size else None,
    )


def _network(values: GivenValues) -> NetworkSettings:
    network, defaults = values.fill(NetworkSettings), NetworkSettings()
    # With 0 Java reads on its network threads. The one event loop must not wait for a disk, so a pool stays.
    return replace(
        network,
        read_threads=network.read_threads or defaults.read_threads,
        high_priority_threads=network.high_priority_threads or defaults.high_priority_threads,
    )


def _tls(values: GivenValues) -> BookieTlsSettings | None:
    key, certificate = values.text("tlsKeyStore"), values.text("tlsCertificatePath")
    made = values.fill(BookieTlsSettings, required=values.truth("tlsClientAuthentication"))
    authentication, trust = made.client_authentication, made.trust_path
    required = values.value("bkctlTlsRequired")
    if values.text("tlsProviderFactoryClass") is None:
        for name, wanted in (("tlsClientAuthentication", authentication), ("bkctlTlsRequired", required)):
            if wanted:
                raise UsageError(
                    f"{values.where(name)}: {name} needs TLS, which is off: every client would be served in "
                    f"clear; set tlsProviderFactoryClass={TLS_FACTORY}, or take the key out"
                )
        return None
    if authentication and not made.required:
        raise UsageError(
            f"{values.where('bkctlTlsRequired')}: bkctlTlsRequired=false with tlsClientAuthentication=true: "
            "a client without a certificate would only have to leave TLS out"
        )
    values.require_pem("tlsKeyStore")
    if trust is not None:
        values.require_pem("tlsTrustStore")
    for name, text in (("tlsKeyStore", key), ("tlsCertificatePath", certificate)):
        if text is None:
            raise UsageError(f"{values.where('tlsProviderFactoryClass')}: TLS needs {name}, a PEM file")
    if made.client_authentication and trust is None:
        raise UsageError(
            f"{values.where('tlsClientAuthentication')}: tlsClientAuthentication needs tlsTrustStore, a PEM "
            "file"
        )
    return made
