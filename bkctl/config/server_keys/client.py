"""The client of autorecovery and of the commands: placement, time-outs, connections, TLS.

A bookie without autorecovery has no client, and of these keys it uses none.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

KEYS: list[ConfigKey] = []
_PL = Declare(Area.CLIENT, KEYS)
_CLIENT = "the client here has no such setting"
SASL_FACTORY = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
_FORMS = ("JKS", "PKCS12", "PEM")
_FORM = "Form of that file, which must be PEM here."

#: Name, type and Java's default of what only Java's client uses.
_OF_THE_CLIENT: tuple[tuple[str, Kind, bool | int | float | str | None], ...] = (
    ("networkTopologyScriptNumberArgs", Kind.INT, 100),
    ("enforceMinNumFaultDomainsForWrite", Kind.BOOL, False),
    ("ignoreLocalNodeInPlacementPolicy", Kind.BOOL, False),
    ("useHostnameResolveLocalNodePlacementPolicy", Kind.BOOL, False),
    ("networkTopologyStabilizePeriodSeconds", Kind.INT, 0),
    ("bookieAddressResolverEnabled", Kind.BOOL, True),
    ("reorderReadSequenceEnabled", Kind.BOOL, True),
    ("opportunisticStriping", Kind.BOOL, False),
    ("delayEnsembleChange", Kind.BOOL, False),
    ("readTimeout", Kind.INT, 5),
    ("addEntryQuorumTimeoutSec", Kind.INT, -1),
    ("speculativeReadTimeout", Kind.INT, 2000),
    ("firstSpeculativeReadTimeout", Kind.INT, None),
    ("maxSpeculativeReadTimeout", Kind.INT, None),
    ("speculativeReadTimeoutBackoffMultiplier", Kind.FLOAT, 2.0),
    ("firstSpeculativeReadLACTimeout", Kind.INT, 1500),
    ("maxSpeculativeReadLACTimeout", Kind.INT, 5000),
    ("speculativeReadLACTimeoutBackoffMultiplier", Kind.FLOAT, 2.0),
    ("numIOThreads", Kind.INT, None),
    ("numWorkerThreads", Kind.INT, None),
    ("throttle", Kind.INT, 5000),
    ("clientTcpUserTimeoutMillis", Kind.INT, None),
    ("tcpKeepIdle", Kind.INT, -1),
    ("tcpKeepIntvl", Kind.INT, -1),
    ("tcpKeepCnt", Kind.INT, -1),
    ("bookieHealthCheckEnabled", Kind.BOOL, False),
    ("bookieHealthCheckIntervalSeconds", Kind.INT, 60),
    ("bookieErrorThresholdPerInterval", Kind.LONG, 100),
    ("bookieQuarantineTimeSeconds", Kind.INT, 1800),
    ("bookieQuarantineRatio", Kind.FLOAT, 1.0),
    ("enableBookieFailureTracking", Kind.BOOL, True),
    ("bookieFailureHistoryExpirationMSec", Kind.LONG, 60000),
    ("enableParallelRecoveryRead", Kind.BOOL, False),
    ("recoveryReadBatchSize", Kind.INT, 1),
    ("batchReadEnabled", Kind.BOOL, True),
    ("recoveryBatchReadEnabled", Kind.BOOL, False),
    ("explicitLacInterval", Kind.INT, 0),
    ("maxNumEnsembleChanges", Kind.INT, None),
    ("clientTrustStorePasswordPath", Kind.PATH, None),
    ("startTLSTimeoutSecs", Kind.INT, 10),
    ("clientSendBufferSize", Kind.INT, 1 << 20),
    ("clientReceiveBufferSize", Kind.INT, 1 << 20),
    ("clientWriteBufferLowWaterMark", Kind.INT, 384 << 10),
    ("clientWriteBufferHighWaterMark", Kind.INT, 512 << 10),
    ("clientTcpNoDelay", Kind.BOOL, True),
    ("clientSockKeepalive", Kind.BOOL, True),
    ("nettyUsePooledBuffers", Kind.BOOL, True),
    ("waitTimeoutOnBackpressureMs", Kind.LONG, -1),
    ("getBookieInfoRetryIntervalSeconds", Kind.INT, 60),
    ("pcbcTimeoutTimerTickDurationMs", Kind.LONG, 100),
    ("pcbcTimeoutTimerNumTicks", Kind.INT, 1024),
    ("timeoutTimerTickDurationMs", Kind.LONG, 100),
    ("timeoutTimerNumTicks", Kind.INT, 1024),
    ("timeoutTaskIntervalMillis", Kind.LONG, None),
    ("timeoutMonitorIntervalSec", Kind.LONG, None),
    ("readReorderThresholdPendingRequests", Kind.INT, 0),
    ("ensemblePlacementPolicyOrderSlowBookies", Kind.BOOL, False),
    ("enableBookieAddressTracking", Kind.BOOL, True),
    ("disableEnsembleChangeFeatureName", Kind.STRING, None),
    ("clientRole", Kind.STRING, "standard"),
    ("clientConnectBookieUnavailableLogThrottling", Kind.INT, 5000),
    ("preserveMdcForTaskExecution", Kind.BOOL, False),
    ("taskExecutionWarnTimeMicros", Kind.LONG, 1_000_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """The way in which a client chooses bookies. Texts of classes are those of the file; None is not set.

    Bookies are asked for their free space every ``space_interval_s`` where their weights count.
    """

    policy: str | None = _PL.setting(
        "ensemblePlacementPolicy",
        Kind.CLASS,
        None,
        "Rackaware-, RegionAware-, Zoneaware- or DefaultEnsemblePlacementPolicy, for copies.",
        default_text="racks where a script or mapping is named",
    )
    resolver: str | None = _PL.setting(
        "reppDnsResolverClass",
        Kind.CLASS,
        None,
        "ScriptBasedMapping, or Pulsar's BookieRackAffinityMapping.",
        default_text="ScriptBasedMapping",
    )
    script: str | None = _PL.setting(
        "networkTopologyScriptFileName", Kind.PATH, None, "Prints the locations of addresses."
    )
    racks_min: int = _PL.setting("minNumRacksPerWriteQuorum", Kind.INT, 2, "Racks of a write set.", lower=1)
    enforce_racks: bool = _PL.setting(
        "enforceMinNumRacksPerWriteQuorum", Kind.BOOL, False, "Rather fail than break that."
    )
    zones_min: int = _PL.setting(
        "minNumZonesPerWriteQuorum", Kind.INT, 2, "Zones of a write set at least.", lower=1
    )
    zones_desired: int = _PL.setting(
        "desiredNumZonesPerWriteQuorum", Kind.INT, 3, "Zones that it should have.", lower=1
    )
    enforce_zones: bool = _PL.setting(
        "enforceStrictZoneawarePlacement", Kind.BOOL, True, "Rather fail than break that."
    )
    regions: str | None = _PL.setting(
        "reppRegionsToWrite", Kind.STRING, None, "Only these regions, as R1;R2."
    )
    regions_min: int = _PL.setting(
        "reppMinimumRegionsForDurability", Kind.INT, 2, "Regions of a write set.", lower=1
    )
    enforce_regions: bool = _PL.setting(
        "reppEnableDurabilityEnforcementInReplace", Kind.BOOL, True, "Rather fail than break that."
    )
    by_space: bool = _PL.setting(
        "diskWeightBasedPlacementEnabled", Kind.BOOL, False, "Prefer bookies with more room."
    )
    multiple_max: int = _PL.setting(
        "bookieMaxMultipleForWeightBasedPlacement",
        Kind.INT,
        3,
        "Weight at most this times the median; 0: no bound.",
        lower=0,
    )
    space_interval_s: int = _PL.setting(
        "getBookieInfoIntervalSeconds",
        Kind.INT,
        86400,
        "Time between two questions for that room.",
        unit="s",
        factor=1,
    )
    space_timeout_s: int = _PL.setting(
        "getBookieInfoTimeoutSecs", Kind.INT, 5, "Wait for a bookie's answer.", unit="s", lower=1, factor=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKeys:
    """The requests of the client, as far as keys bound them."""

    add_timeout_ms: int = _PL.setting(
        "addEntryTimeoutSec",
        Kind.INT,
        5,
        "Wait for a bookie's answer to an add.",
        unit="s",
        lower=1,
        upper=3600,
    )
    read_timeout_ms: int = _PL.setting(
        "readEntryTimeoutSec",
        Kind.INT,
        5,
        "Wait for a bookie's answer to a read.",
        unit="s",
        lower=1,
        upper=3600,
    )
    sticky_reads: bool = _PL.setting(
        "stickyReadSEnabled", Kind.BOOL, False, "Read the next entry from the bookie that answered last."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetKeys:
    """The connections of the client to bookies, as far as keys of the client bound them.

    A bookie that wants no authentication has not shown who it is: a client with credentials goes on with it
    only with ``allow_unauthenticated_bookies``.
    """

    connect_timeout_ms: int = _PL.setting(
        "clientConnectTimeoutMillis",
        Kind.INT,
        5000,
        "Wait for a connection, its TLS and its authentication.",
        unit="ms",
        lower=1,
        upper=3_600_000,
        java_default="10000",
    )
    connections_per_bookie: int = _PL.setting(
        "numChannelsPerBookie", Kind.INT, 1, "Connections to each bookie.", lower=1, upper=64
    )
    allow_unauthenticated_bookies: bool = _PL.setting(
        "bkctlAllowUnauthenticatedBookies",
        Kind.BOOL,
        False,
        "With SASL credentials, go on with a bookie that wants no authentication.",
        java_default="no such key",
    )


_PL.honoured("useV2WireProtocol", Kind.BOOL, False, "Talk the older protocol, without protobuf.")
_PL.honoured(
    "clientAuthProviderFactoryClass",
    Kind.CLASS,
    None,
    "SASLClientProviderFactory: DIGEST-MD5 with $BKCTL_SASL_USER and $BKCTL_SASL_PASSWORD.",
    default_text="no authentication",
)
_PL.honoured(
    "clientTrustStore",
    Kind.PATH,
    None,
    "Certificates that bookies' are checked against.",
    or_else="tlsTrustStore",
)
_PL.honoured("clientTrustStoreType", Kind.STRING, "JKS", _FORM, choices=_FORMS)
_PL.honoured(
    "clientKeyStore", Kind.PATH, None, "The private key that is shown to bookies.", or_else="tlsKeyStore"
)
_PL.honoured("clientKeyStoreType", Kind.STRING, "JKS", _FORM, choices=_FORMS)
_PL.honoured(
    "clientKeyStorePasswordPath",
    Kind.PATH,
    None,
    "File with the password of that key.",
    or_else="tlsKeyStorePasswordPath",
)
_PL.honoured("tlsHostnameVerificationEnabled", Kind.BOOL, False, "A bookie's certificate must name its host.")
for _name, _kind, _default in _OF_THE_CLIENT:
    _PL.ignored(_name, _kind, _default, _CLIENT)
