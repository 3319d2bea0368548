"""The metadata store."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

KEYS: list[ConfigKey] = []
_MD = Declare(Area.METADATA, KEYS)
_WAIT_MS_MAX = 3_600_000
_PLUG = "metadata stores are built in"


_MD.honoured(
    "metadataServiceUri",
    Kind.URI,
    None,
    "The cluster's metadata: zk+hierarchical://host:2181;host2:2181/ledgers or embedded:///path. "
    "BKCTL_METADATA_URI in the environment wins over the file.",
    default_text="made of zkServers; ./bkctl-data/metadata.db without a configuration file",
    sample="zk+hierarchical://localhost:2181/ledgers",
)
_MD.honoured(
    "zkServers",
    Kind.LIST,
    (),
    "ZooKeeper servers, host:port.",
    default_text="none",
    use_instead="metadataServiceUri",
)
_MD.honoured(
    "zkLedgersRootPath",
    Kind.PATH,
    "/ledgers",
    "Root of the metadata, with zkServers.",
    use_instead="metadataServiceUri",
)
_MD.honoured(
    "ledgerManagerFactoryClass",
    Kind.CLASS,
    None,
    "Layout of the ledgers' metadata, with zkServers.",
    default_text="the layout that is there",
    use_instead="metadataServiceUri",
)
_MD.honoured(
    "ledgerManagerType",
    Kind.STRING,
    None,
    "Layout of the ledgers' metadata, with zkServers.",
    choices=("flat", "hierarchical", "longhierarchical", "ms"),
    default_text="the layout that is there",
    use_instead="metadataServiceUri",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """The metadata store and the patience with it; None is the patience of the store itself."""

    session_timeout_ms: int = _MD.setting(
        "zkTimeout", Kind.INT, 10000, "Length of the session.", unit="ms", lower=1, upper=_WAIT_MS_MAX
    )
    retry_backoff_start_ms: int | None = _MD.setting(
        "zkRetryBackoffStartMs",
        Kind.INT,
        None,
        "First wait before a request is sent again.",
        unit="ms",
        lower=1,
        upper=_WAIT_MS_MAX,
        default_text="100",
        java_default="zkTimeout",
    )
    retry_backoff_max_ms: int | None = _MD.setting(
        "zkRetryBackoffMaxMs",
        Kind.INT,
        None,
        "Longest wait before a request is sent again.",
        unit="ms",
        lower=1,
        upper=_WAIT_MS_MAX,
        default_text="2000",
        java_default="zkTimeout",
    )
    #: metadataServiceUri, or made of zkServers and the keys beside it.
    uri: str = ""


_MD.ignored(
    "zkRetryBackoffMaxRetries", Kind.INT, 2**31 - 1, "a request is retried for a bounded time instead"
)
_MD.planned(
    "zkRequestRateLimit", Kind.FLOAT, 0.0, "Requests to ZooKeeper; 0: no bound.", unit="per s", lower=0
)
_MD.planned("ledgerMetadataVersion", Kind.INT, -1, "Version of ledger metadata to write; -1: the newest.")
_MD.planned(
    "storeSystemTimeAsLedgerCreationTime", Kind.BOOL, False, "Keep the creation time in ledger metadata."
)
_MD.ignored("allowShadedLedgerManagerFactoryClass", Kind.BOOL, False, "Java class loading")
_MD.ignored("shadedLedgerManagerFactoryClassPrefix", Kind.STRING, "dlshade.", "Java class loading")
_MD.ignored("ledgerManagerFactoryDisableClassCheck", Kind.BOOL, False, "Java class loading")
_MD.ignored(
    "enableHealthCheck",
    Kind.BOOL,
    True,
    "Java reads it nowhere; the node disableHealthCheck is the switch",
)
_MD.ignored("registrationManagerClass", Kind.CLASS, None, _PLUG)
_MD.ignored("registrationClientClass", Kind.CLASS, None, _PLUG)
_MD.ignored("metastoreImplClass", Kind.CLASS, None, _PLUG)
_MD.ignored("metastoreMaxEntriesPerScan", Kind.INT, 50, _PLUG)
