"""Connections, stages and what happens when they are full."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

#: Bounds where the configuration says "none of its own".
ADDS_IN_PROGRESS_MAX = 20_000
QUEUE_PER_THREAD_MAX = 10_000

KEYS: list[ConfigKey] = []
_NET = Declare(Area.NETWORK, KEYS)
_LOOP = "one event loop serves all connections"
_BUFFERS = "receive buffers grow by themselves"
_WHEEL = "waiting reads need no timer wheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Connections and stages. A bound of None is none of its own: memory bounds still hold."""

    read_threads: int = _NET.setting(
        "numReadWorkerThreads",
        Kind.INT,
        8,
        "Threads of the read stage. 0, with which Java reads on the network's threads, means the default.",
        lower=0,
        upper=256,
    )
    high_priority_threads: int = _NET.setting(
        "numHighPriorityWorkerThreads",
        Kind.INT,
        8,
        "Threads of the high-priority stage: recovery and fencing. 0 means the default.",
        lower=0,
        upper=256,
        default_text="8",
    )
    read_queue_per_thread_max: int | None = _NET.setting(
        "maxPendingReadRequestsPerThread",
        Kind.INT,
        10000,
        "Reads that wait per thread of a stage; more are answered with too-many-requests. 0: 10,000.",
        lower=0,
        none_below=1,
    )
    add_queue_max: int | None = _NET.setting(
        "maxPendingAddRequestsPerThread",
        Kind.INT,
        10000,
        "Adds that wait in the write stage; more are answered with too-many-requests. 0: 10,000.",
        lower=0,
        none_below=1,
    )
    adds_in_progress_max: int | None = _NET.setting(
        "maxAddsInProgressLimit",
        Kind.INT,
        0,
        "Adds between their arrival and their answer; at the bound no socket is read. 0: 20,000.",
        lower=0,
        none_below=1,
    )
    reads_in_progress_max: int | None = _NET.setting(
        "maxReadsInProgressLimit",
        Kind.INT,
        0,
        "Reads between their arrival and their answer; at the bound no socket is read. 0: "
        "as many as may wait (maxPendingReadRequestsPerThread for each thread).",
        lower=0,
        none_below=1,
    )
    close_slow_readers: bool = _NET.setting(
        "closeChannelOnResponseTimeout",
        Kind.BOOL,
        False,
        "Close a connection that does not take its answers within waitTimeoutOnResponseBackpressureMs.",
    )
    slow_reader_timeout_ms: int | None = _NET.setting(
        "waitTimeoutOnResponseBackpressureMs",
        Kind.LONG,
        -1,
        "How long a connection may leave its answers untaken; -1: for ever, and so long its requests wait.",
        unit="ms",
        lower=-1,
        none_below=0,
    )
    write_buffer_low_bytes: int = _NET.setting(
        "serverWriteBufferLowWaterMark",
        Kind.INT,
        384 << 10,
        "A connection is read again when its unsent answers fall below this.",
        unit="bytes",
        lower=0,
    )
    write_buffer_high_bytes: int = _NET.setting(
        "serverWriteBufferHighWaterMark",
        Kind.INT,
        512 << 10,
        "A connection is not read while its unsent answers exceed this.",
        unit="bytes",
        lower=1,
    )
    _NET.ignored("serverTcpNoDelay", Kind.BOOL, True, "small answers are always sent at once")
    _NET.ignored("serverSockKeepalive", Kind.BOOL, True, "dead peers are always noticed (SO_KEEPALIVE)")
    connections_max: int = _NET.setting(
        "bkctlMaxConnections",
        Kind.INT,
        10_000,
        "Clients that may be connected. One more takes the place of the one that has left a frame, or its"
        " first one, unfinished for longest (a second at least), or is closed. The process's limit of "
        "descriptors lowers it, as half of them, at most 4096, are kept for files.",
        lower=1,
        upper=1_000_000,
        java_default="no such key",
    )
    frame_timeout_ms: int = _NET.setting(
        "bkctlFrameTimeoutMs",
        Kind.INT,
        30_000,
        "How long the first frame of a connection, and the rest of any frame, may take to come; then the "
        "connection is closed.",
        unit="ms",
        lower=100,
        upper=3_600_000,
        java_default="no such key",
    )
    connection_memory_bytes_max: int = _NET.setting(
        "bkctlConnectionMemoryMaxMb",
        Kind.INT,
        256,
        "Memory of all connections together. Adds without an answer may have a quarter of it: with more, "
        "sockets that bring adds are not read, and adds held for want of room are refused with too-many-"
        "requests. Long polls may have a half (2 KiB each), or are refused with too-many-requests; TLS "
        "handshakes an eighth (64 KiB each), or the oldest is ended. Partial frames, answers that clients"
        " do not take and reads that wait have the rest: beyond it the connection with the largest "
        "partial frame is closed, or the one that has not taken its answers for longest.",
        unit="MiB",
        lower=8,
        upper=65_536,
        java_default="no such key",
    )
    _NET.ignored("serverTcpLinger", Kind.INT, 0, "closing a connection never waits", unit="s")
    frame_bytes_max: int = _NET.setting(
        "nettyMaxFrameSizeBytes",
        Kind.INT,
        5 << 20,
        "The largest request: the largest entry and its header. Must be what the clients use.",
        unit="bytes",
        lower=1024,
        upper=1 << 30,
    )
    batch_read_bytes_max: int = _NET.setting(
        "maxBatchReadSize",
        Kind.LONG,
        5 << 20,
        "Bound on the entries of one batch-read answer.",
        unit="bytes",
        lower=1,
    )
    #: Connections that the system holds until they are accepted; net.core.somaxconn lowers it.
    backlog: int = 4096
    long_polls_max: int = 50_000
    long_polls_per_connection_max: int = 10_000
    #: Whether anything but START_TLS and AUTH is refused in clear; needs a TLS context.
    tls_required: bool = False
    handshake_timeout_ms: int = 10_000
    close_timeout_ms: int = 5_000
    drain_timeout_ms: int = 5_000

    @property
    def adds_max(self) -> int:
        """The adds that may be in progress."""
        return self.adds_in_progress_max or ADDS_IN_PROGRESS_MAX

    @property
    def reads_max(self) -> int:
        """The reads that the read stage may have."""
        return self.reads_in_progress_max or self._queued_max * self.read_threads

    @property
    def high_priority_max(self) -> int:
        """The requests that the high-priority stage may have."""
        return self._queued_max * self.high_priority_threads

    @property
    def answers_timeout_ms(self) -> int | None:
        """How long a connection may leave its answers untaken before it is closed; None is for ever."""
        return self.slow_reader_timeout_ms if self.close_slow_readers else None

    @property
    def _queued_max(self) -> int:
        return self.read_queue_per_thread_max or QUEUE_PER_THREAD_MAX


_NET.ignored(
    "numAddWorkerThreads", Kind.INT, 1, "one write stage takes the adds of all connections in batches"
)
_NET.ignored("numLongPollWorkerThreads", Kind.INT, 0, "a long-poll read waits without a thread")
_NET.ignored("serverNumIOThreads", Kind.INT, None, _LOOP)
_NET.ignored("serverNumAcceptorThreads", Kind.INT, 1, _LOOP)
_NET.ignored(
    "readWorkerThreadsThrottlingEnabled",
    Kind.BOOL,
    True,
    "a connection that takes no answers is never read on",
)
_NET.ignored("byteBufAllocatorSizeInitial", Kind.INT, 64 << 10, _BUFFERS, unit="bytes")
_NET.ignored("byteBufAllocatorSizeMin", Kind.INT, 64 << 10, _BUFFERS, unit="bytes")
_NET.ignored("byteBufAllocatorSizeMax", Kind.INT, 1 << 20, _BUFFERS, unit="bytes")
_NET.ignored("enableBusyWait", Kind.BOOL, False, "spinning threads would stop the others of a Python process")
_NET.ignored("requestTimerTickDurationMs", Kind.INT, 10, _WHEEL, unit="ms")
_NET.ignored("requestTimerNumTicks", Kind.INT, 1024, _WHEEL)
