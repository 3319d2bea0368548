"""Connections, stages and what happens when they are full."""

from __future__ import annotations

from bkctl.config.keys import Area, ConfigKey, Declare, Kind

_NET = Declare(Area.NETWORK)
_LOOP = "one event loop serves all connections"
_BUFFERS = "receive buffers grow by themselves"
_WHEEL = "waiting reads need no timer wheel"

KEYS: tuple[ConfigKey, ...] = (
    _NET.honoured(
        "numReadWorkerThreads",
        Kind.INT,
        8,
        "Threads of the read stage. 0, with which Java reads on the network's threads, means the default.",
        lower=0,
        upper=256,
    ),
    _NET.honoured(
        "numHighPriorityWorkerThreads",
        Kind.INT,
        8,
        "Threads of the high-priority stage: recovery and fencing. 0 means the default.",
        lower=0,
        upper=256,
        default_text="8",
    ),
    _NET.honoured(
        "maxPendingReadRequestsPerThread",
        Kind.INT,
        10000,
        "Reads that wait per thread of a stage; more are answered with too-many-requests. 0: no such bound.",
        lower=0,
    ),
    _NET.honoured(
        "maxPendingAddRequestsPerThread",
        Kind.INT,
        10000,
        "Adds that wait in the write stage; more are answered with too-many-requests. 0: no such bound.",
        lower=0,
    ),
    _NET.honoured(
        "maxAddsInProgressLimit",
        Kind.INT,
        0,
        "Adds between their arrival and their answer; at the bound no socket is read. 0: no such bound.",
        lower=0,
    ),
    _NET.honoured(
        "maxReadsInProgressLimit",
        Kind.INT,
        0,
        "Reads between their arrival and their answer; at the bound no socket is read. 0: no such bound.",
        lower=0,
    ),
    _NET.honoured(
        "closeChannelOnResponseTimeout",
        Kind.BOOL,
        False,
        "Close a connection that does not take its answers within waitTimeoutOnResponseBackpressureMs.",
    ),
    _NET.honoured(
        "waitTimeoutOnResponseBackpressureMs",
        Kind.LONG,
        -1,
        "How long a connection may leave its answers untaken; -1: for ever, its requests wait meanwhile.",
        unit="ms",
        lower=-1,
    ),
    _NET.honoured(
        "serverWriteBufferLowWaterMark",
        Kind.INT,
        384 << 10,
        "A connection is read again when its unsent answers fall below this.",
        unit="bytes",
        lower=0,
    ),
    _NET.honoured(
        "serverWriteBufferHighWaterMark",
        Kind.INT,
        512 << 10,
        "A connection is not read while its unsent answers exceed this.",
        unit="bytes",
        lower=1,
    ),
    _NET.ignored("serverTcpNoDelay", Kind.BOOL, True, "small answers are always sent at once"),
    _NET.ignored("serverSockKeepalive", Kind.BOOL, True, "dead peers are always noticed (SO_KEEPALIVE)"),
    _NET.honoured(
        "bkctlMaxConnections",
        Kind.INT,
        10_000,
        "Clients that may be connected. One more takes the place of the one that has left a frame, or its"
        " first one, unfinished for longest (a second at least), or is closed. The process's limit of "
        "descriptors lowers it, as half of them, at most 4096, are kept for files.",
        lower=1,
        upper=1_000_000,
        java_default="no such key",
    ),
    _NET.honoured(
        "bkctlFrameTimeoutMs",
        Kind.INT,
        30_000,
        "How long the first frame of a connection, and the rest of any frame, may take to come; then the "
        "connection is closed.",
        unit="ms",
        lower=100,
        upper=3_600_000,
        java_default="no such key",
    ),
    _NET.honoured(
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
    ),
    _NET.ignored("serverTcpLinger", Kind.INT, 0, "closing a connection never waits", unit="s"),
    _NET.honoured(
        "nettyMaxFrameSizeBytes",
        Kind.INT,
        5 << 20,
        "The largest request: the largest entry and its header. Must be what the clients use.",
        unit="bytes",
        lower=1024,
        upper=1 << 30,
    ),
    _NET.honoured(
        "maxBatchReadSize",
        Kind.LONG,
        5 << 20,
        "Bound on the entries of one batch-read answer.",
        unit="bytes",
        lower=1,
    ),
    _NET.ignored(
        "numAddWorkerThreads", Kind.INT, 1, "one write stage takes the adds of all connections in batches"
    ),
    _NET.ignored("numLongPollWorkerThreads", Kind.INT, 0, "a long-poll read waits without a thread"),
    _NET.ignored("serverNumIOThreads", Kind.INT, None, _LOOP),
    _NET.ignored("serverNumAcceptorThreads", Kind.INT, 1, _LOOP),
    _NET.ignored(
        "readWorkerThreadsThrottlingEnabled",
        Kind.BOOL,
        True,
        "a connection that takes no answers is never read on",
    ),
    _NET.ignored("byteBufAllocatorSizeInitial", Kind.INT, 64 << 10, _BUFFERS, unit="bytes"),
    _NET.ignored("byteBufAllocatorSizeMin", Kind.INT, 64 << 10, _BUFFERS, unit="bytes"),
    _NET.ignored("byteBufAllocatorSizeMax", Kind.INT, 1 << 20, _BUFFERS, unit="bytes"),
    _NET.ignored(
        "enableBusyWait", Kind.BOOL, False, "spinning threads would stop the others of a Python process"
    ),
    _NET.ignored("requestTimerTickDurationMs", Kind.INT, 10, _WHEEL, unit="ms"),
    _NET.ignored("requestTimerNumTicks", Kind.INT, 1024, _WHEEL),
)
