"""The HTTP admin, statistics, and what belongs to the Java process."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

KEYS: list[ConfigKey] = []
_HTTP = Declare(Area.HTTP, KEYS)
_STAT = Declare(Area.STATISTICS, KEYS)
_MEM = Declare(Area.MEMORY, KEYS)
_MORE = Declare(Area.STREAM, KEYS)
_POOL = "netty's buffer pool"
_STREAM = "stream storage is not part of this bookie"
_REPORTER = "metrics are served in Prometheus' format by the HTTP admin"
_SHELL = "formats of Java's shell"
_NO_HTTPS = "httpServerTlsEnable"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - Java's default, named in documents


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The HTTP admin."""

    enabled: bool = _HTTP.setting(
        "httpServerEnabled",
        Kind.BOOL,
        True,
        "Serve the HTTP admin.",
        java_default="false",
    )
    port: int = _HTTP.setting(
        "httpServerPort",
        Kind.INT,
        8080,
        "Port of the HTTP admin; 0 lets the system choose.",
        lower=0,
        upper=65535,
    )
    host: str = _HTTP.setting(
        "httpServerHost",
        Kind.STRING,
        "127.0.0.1",
        "Address the HTTP admin listens on. Whoever reaches it can read the bookie's state.",
        java_default=_EVERYWHERE,
    )
    token_file: str | None = _HTTP.setting(
        "bkctlHttpAdminTokenFile",
        Kind.PATH,
        None,
        "File with the token (16 characters or more) that requests must carry to change something, read "
        "entries or see passwords; mode 0600 (0640 where root owns it). Without one nothing can be changed "
        "from another machine, nor through a proxy on this one.",
        java_default="no such key",
    )
    optional: bool = _HTTP.setting(
        "bkctlHttpServerOptional",
        Kind.BOOL,
        False,
        "Start without the HTTP admin, or without the port of the metrics, where the port is taken. "
        "Otherwise the bookie does not start: probes and scrapers would ask whoever has the port.",
        java_default="no such key",
    )
    #: Asked for, not just on by default: autorecovery beside a bookie of the same file else goes without.
    required: bool = field(default=False, compare=False)


_HTTP.refused(
    "httpServerTlsEnable",
    Kind.BOOL,
    False,
    "Serve the HTTP admin with TLS.",
    "the HTTP admin would speak in the clear; listen on 127.0.0.1 behind a proxy that ends TLS, name a "
    "bkctlHttpAdminTokenFile, and take the key out",
)
_HTTP.ignored("httpServerClass", Kind.CLASS, None, "the HTTP admin is built in")
_HTTP.ignored("httpServerKeyStorePath", Kind.PATH, None, f"goes with {_NO_HTTPS}")
_HTTP.ignored("httpServerKeyStorePassword", Kind.STRING, None, f"goes with {_NO_HTTPS}", secret=True)
_HTTP.ignored("httpServerTrustStorePath", Kind.PATH, None, f"goes with {_NO_HTTPS}")
_HTTP.ignored("httpServerTrustStorePassword", Kind.STRING, None, f"goes with {_NO_HTTPS}", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsSettings:
    """The choice of what is measured."""

    enabled: bool = _STAT.setting(
        "enableStatistics", Kind.BOOL, True, "Measure, and serve metrics under /metrics."
    )
    metrics_port: int | None = _STAT.setting(
        "prometheusStatsHttpPort",
        Kind.INT,
        None,
        "Port on which the metrics alone are served (/metrics), for scrapers that know it; 0 lets the system "
        "choose. As in Java it stays closed where httpServerEnabled=true is set: the HTTP admin serves them.",
        default_text="none: /metrics of the HTTP admin",
        java_default="8000",
        lower=0,
        upper=65535,
    )
    metrics_host: str = _STAT.setting(
        "prometheusStatsHttpAddress",
        Kind.STRING,
        _EVERYWHERE,
        "Address on which prometheusStatsHttpPort listens.",
    )
    metrics_http: bool = _STAT.setting(
        "prometheusStatsHttpEnable", Kind.BOOL, True, "Whether prometheusStatsHttpPort is opened at all."
    )
    rollover_s: int = _STAT.setting(
        "prometheusStatsLatencyRolloverSeconds",
        Kind.INT,
        60,
        "How far quantiles look back.",
        unit="s",
        lower=1,
        factor=1,
    )


_STAT.ignored("statsProviderClass", Kind.CLASS, None, _REPORTER)
_STAT.ignored("sanityCheckMetricsEnabled", Kind.BOOL, False, "the HTTP admin answers is_ready")
_STAT.ignored("limitStatsLogging", Kind.BOOL, True, "metrics carry no name per connection")
_STAT.ignored("enableTaskExecutionStats", Kind.BOOL, False, "every stage has its own metrics")
_STAT.ignored("exposeDefaultJVMMetrics", Kind.BOOL, True, "there is no Java process")
_STAT.ignored("codahaleStatsPrefix", Kind.STRING, None, _REPORTER)
_STAT.ignored("codahaleStatsOutputFrequencySeconds", Kind.INT, 60, _REPORTER, unit="s")
_STAT.ignored("codahaleStatsGraphiteEndpoint", Kind.STRING, None, _REPORTER)
_STAT.ignored("codahaleStatsCSVEndpoint", Kind.STRING, None, _REPORTER)
_STAT.ignored("codahaleStatsSlf4jEndpoint", Kind.STRING, None, _REPORTER)
_STAT.ignored("codahaleStatsJmxEndpoint", Kind.STRING, None, _REPORTER)
_MEM.ignored("allocatorPoolingPolicy", Kind.STRING, "PooledDirect", _POOL)
_MEM.ignored("allocatorPoolingConcurrency", Kind.INT, None, _POOL)
_MEM.ignored("allocatorOutOfMemoryPolicy", Kind.STRING, "FallbackToHeap", _POOL)
_MEM.ignored("allocatorLeakDetectionPolicy", Kind.STRING, "Disabled", _POOL)
_MEM.ignored("allocatorExitOnOutOfMemory", Kind.BOOL, False, _POOL)
_MORE.ignored("ledgerIdFormatterClass", Kind.CLASS, None, _SHELL)
_MORE.ignored("entryFormatterClass", Kind.CLASS, None, _SHELL)
_MORE.ignored("storageserver.grpc.port", Kind.INT, 4181, _STREAM)
_MORE.ignored("dlog.bkcEnsembleSize", Kind.INT, 3, _STREAM)
_MORE.ignored("dlog.bkcWriteQuorumSize", Kind.INT, 2, _STREAM)
_MORE.ignored("dlog.bkcAckQuorumSize", Kind.INT, 2, _STREAM)
_MORE.ignored("storage.range.store.dirs", Kind.LIST, ("data/bookkeeper/ranges",), _STREAM)
_MORE.ignored("storage.serve.readonly.tables", Kind.BOOL, False, _STREAM)
_MORE.ignored("storage.cluster.controller.schedule.interval.ms", Kind.INT, 30000, _STREAM, unit="ms")
