"""The bookie's port, as far as its connections need it."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from bkctl.engine.bookie import Bookie
from bkctl.metrics.latency import LatencyHistogram
from bkctl.protocol.framing import CloseReason
from bkctl.protocol.messages import Request, Response
from bkctl.protocol.runs import AddRun
from bkctl.server.wire.add_answers import AddAnswers, AddsInProgress
from bkctl.server.wire.answers import AnswerQueue
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_watch import ConnectionWatch
from bkctl.server.wire.handshakes import Handshakes
from bkctl.server.wire.read_pace import ReadPace
from bkctl.server.wire.read_queue import ReadQueue
from bkctl.server.wire.request_processor import RequestProcessor
from bkctl.server.wire.silent_sockets import SilentSockets
from bkctl.server.wire.stage_pool import StagePool


class AddIntake(Protocol):
    """The way of runs of adds from the sockets into the engine. On the loop's thread only."""

    def add(self, connection: Channel, run: AddRun) -> None:
        """Take in a run that came on a connection; the engine gets it now or before the loop's turn ends."""

    def hand_over(self) -> None:
        """Have the engine get now what was taken in."""


class Port(Protocol):
    """The part of the server that a connection and its runs of reads use.

    Times are seconds of ``now_s``; a timeout of None never ends.
    """

    bookie: Bookie
    loop: asyncio.AbstractEventLoop
    now_s: Callable[[], float]
    tls: ssl.SSLContext | None
    tls_required: bool
    frame_bytes_max: int
    write_low_bytes: int
    write_high_bytes: int
    slow_reader_timeout_s: float | None
    handshake_timeout_s: float
    close_timeout_s: float
    answers: AnswerQueue
    adds: AddsInProgress
    add_answers: AddAnswers
    add_intake: AddIntake
    handshakes: Handshakes
    processor: RequestProcessor
    read_stage: StagePool
    read_pace: ReadPace
    #: By ledger directory.
    read_queues: list[ReadQueue]
    watch: ConnectionWatch
    silent_sockets: SilentSockets
    #: The time of handing answers, of one request or many, to a connection.
    channel_writes: LatencyHistogram
    #: The time for which runs of reads waited for their turn.
    reads_waited: LatencyHistogram
    #: Reads of runs that were refused.
    reads_refused: int
    #: Why connections were closed.
    closed_for: Counter[CloseReason]

    def connected(self, connection: Channel) -> None:
        """Count a new connection; where there is no place it takes that of one that stalls, or is closed."""

    def disconnected(self, connection: Channel) -> None:
        """Forget a connection that is gone."""

    def request_ended(self, request: Request, response: Response, time_s: float) -> None:
        """Count a request that came by itself and was answered."""

    def reads_ended(self, count: int, failed: int, size_bytes: int, since_s: float, worked_s: float) -> None:
        """Count a chunk of reads: ``count`` with entries of so many bytes, ``failed`` without."""

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to a task until it is done."""
