"""Requests that come one by one: what each of them means for the engine, and its answer.

Runs of plain adds and reads do not pass through here (``bookie_connection``). Called on the event loop's
thread; what touches memory only is done there, what may wait for the disk goes to the read or the
high-priority stage.

Source: the ``*ProcessorV3`` and ``*Processor`` classes of ``org.apache.bookkeeper.proto``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bkctl.clock import Clock
from bkctl.codec.location import ID_MAX
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.read_stage import LAST_ENTRY
from bkctl.errors import BkctlError, BookieError, NoLedgerError
from bkctl.protocol.entry_list import encode_entry_list
from bkctl.protocol.messages import (
    AUTH_DISABLED_PLUGIN,
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    WriteLacRequest,
)
from bkctl.protocol.refusal import refusal
from bkctl.server.wire.answer_codes import code_of, code_of_any, log_io
from bkctl.server.wire.long_polls import Client, LongPolls, Respond
from bkctl.server.wire.request_meters import RequestMeters
from bkctl.server.wire.stage_pool import StagePool
from bkctl.types import ResultCode

_log = logging.getLogger(__name__)

#: Bytes that a batch read counts before its first entry, and before each entry.
_BATCH_HEAD_BYTES = 36
_BATCH_ENTRY_BYTES = 4
_SERVING = "serving a request"

RequestT = TypeVar("RequestT", bound=Request)


class RequestProcessor:
    """Answers requests; every one gets exactly one answer."""

    def __init__(
        self,
        bookie: Bookie,
        read_stage: StagePool,
        high_priority_stage: StagePool,
        long_polls: LongPolls,
        meters: RequestMeters,
        clock: Clock,
        *,
        batch_read_bytes_max: int,
        frame_bytes_max: int,
    ) -> None:
        self._bookie = bookie
        self._read_stage = read_stage
        self._high_priority_stage = high_priority_stage
        self._long_polls = long_polls
        self._meters = meters
        self._now_s = clock.monotonic
        self._batch_read_bytes_max = batch_read_bytes_max
        self._frame_bytes_max = frame_bytes_max
        self._singles = _Singles()

    def process(self, request: Request, respond: Respond, client: Client) -> None:
        """Serve one request of ``client``. Never raises; every error is an answer."""
        refused = refusal(request)
        if refused is not None:
            respond(request.refuse(refused))
            return
        try:
            self._dispatch(request, respond, client)
        except Exception as error:  # noqa: BLE001 - without an answer it would keep its place for good
            respond(request.refuse(code_of_any(_SERVING, error)))

    def _dispatch(self, request: Request, respond: Respond, client: Client) -> None:
        match request:
            case AddRequest():
                self._add(request, respond)
            case ReadRequest() if request.fence:
                self._fence(
                    request.ledger, request.master_key, request, partial(self._read, request), respond
                )
            case ReadRequest() if request.long_poll:
                self._long_polls.start(request, respond, client)
            case ReadRequest():
                stage = self._high_priority_stage if request.high_priority else self._read_stage
                stage.submit(partial(_answer_with, self._read, request, respond))
            case BatchReadRequest() if request.fence:
                self._fence(
                    request.ledger, request.master_key, request, partial(self._batch_read, request), respond
                )
            case BatchReadRequest():
                stage = self._high_priority_stage if request.high_priority else self._read_stage
                stage.submit(partial(_answer_with, self._batch_read, request, respond))
            case ReadLacRequest():
                self._read_stage.submit(partial(_answer_with, self._read_lac, request, respond))
            case WriteLacRequest():
                self._bookie.explicit_lacs.write(
                    request.body,
                    request.master_key,
                    lambda error: respond(request.answer(_code(error))),
                    high_priority=request.high_priority,
                )
            case ForceLedgerRequest():
                self._bookie.force_ledger(request.ledger, lambda error: respond(request.answer(_code(error))))
            case BookieInfoRequest():
                self._read_stage.submit(partial(_answer_with, self._info, request, respond))
            case ListOfEntriesRequest():
                self._read_stage.submit(partial(_answer_with, self._list, request, respond))
            case AuthRequest():
                respond(request.answer(ResultCode.OK, AUTH_DISABLED_PLUGIN))
            case _:
                respond(request.refuse(ResultCode.BAD_REQUEST))

    def _add(self, request: AddRequest, respond: Respond) -> None:
        self._bookie.writes.add(
            SingleAdd(
                request.body,
                request.master_key,
                self._singles,
                (request, respond),
                recovery=request.recovery,
                deferred_sync=request.deferred_sync,
                high_priority=request.high_priority,
            )
        )

    def _fence(
        self,
        ledger: int,
        master_key: bytes | None,
        request: Request,
        read: Callable[[Respond], None],
        respond: Respond,
    ) -> None:
        """Fence a ledger, wait until that is durable, then read; errors too are answered only after that."""
        if master_key is None:
            respond(request.refuse(ResultCode.UNAUTHORIZED))
            return

        since_s = self._now_s()

        def read_fenced() -> None:
            started_s = self._now_s()
            _answer_with(lambda _, respond: read(respond), request, respond)
            self._meters.measured("READ_ENTRY_FENCE_READ", self._now_s() - started_s)

        def fenced(error: BookieError | None) -> None:
            self._meters.measured("READ_ENTRY_FENCE_WAIT", self._now_s() - since_s)
            if error is not None:
                respond(request.refuse(error.code))
                return
            try:
                self._high_priority_stage.submit(read_fenced)
            except BkctlError as full:
                respond(request.refuse(code_of(full)))

        self._bookie.fencing.fence(ledger, master_key, fenced)

    def _read(self, request: ReadRequest, respond: Respond) -> None:
        try:
            body = self._bookie.reads.read(request.ledger, request.entry)
        except BkctlError as error:
            _refuse(request, respond, error)
            return
        max_lac = None
        if not request.fence:
            try:
                max_lac = self._bookie.reads.last_add_confirmed(request.ledger)
            except BkctlError as error:
                # The entry was read, so it is answered without the last add confirmed.
                log_io(error)
        respond(request.answer(ResultCode.OK, body, max_lac=max_lac))

    def _batch_read(self, request: BatchReadRequest, respond: Respond) -> None:
        bytes_max = min(request.size_bytes_max, self._batch_read_bytes_max)
        bodies: list[bytes] = []
        size_bytes = _BATCH_HEAD_BYTES
        # Behind the highest id there is nothing, not even a key to ask for.
        count_max = min(request.count_max if request.count_max > 0 else ID_MAX, ID_MAX - request.entry + 1)
        while len(bodies) < count_max:
            try:
                body = self._bookie.reads.read(request.ledger, request.entry + len(bodies))
            except BkctlError as error:
                if not bodies:
                    _refuse(request, respond, error)
                    return
                break
            size_bytes += _BATCH_ENTRY_BYTES + len(body)
            if bodies and size_bytes > bytes_max:
                break
            bodies.append(body)
            if request.entry == LAST_ENTRY:
                break
        respond(request.answer(ResultCode.OK, tuple(bodies)))

    def _read_lac(self, request: ReadLacRequest, respond: Respond) -> None:
        """Read the explicit LAC and the newest entry.

        An unknown ledger has neither: Java says "no such entry" then.
        """
        started_s = self._now_s()
        lac_body = last_entry = None
        code = ResultCode.OK
        try:
            lac_body = self._bookie.reads.explicit_lac(request.ledger)
            last_entry = self._bookie.reads.read(request.ledger, LAST_ENTRY)
        except NoLedgerError:
            code = ResultCode.NO_ENTRY
        except BkctlError as error:
            log_io(error)
            code = code_of(error)
            if code is ResultCode.NO_ENTRY:
                self._meters.last_entry_missing += 1
            if code is ResultCode.NO_ENTRY and lac_body is not None:
                code = ResultCode.IO_ERROR
        self._meters.measured("READ_LAC", self._now_s() - started_s)
        respond(request.answer(code, lac_body, last_entry))

    def _info(self, request: BookieInfoRequest, respond: Respond) -> None:
        started_s = self._now_s()
        try:
            total_bytes, free_bytes = self._bookie.disk_space()
        except BkctlError as error:
            _refuse(request, respond, error)
            return
        self._meters.measured("GET_BOOKIE_INFO", self._now_s() - started_s)
        respond(
            request.answer(
                ResultCode.OK,
                total_bytes if request.total else None,
                free_bytes if request.free else None,
            )
        )

    def _list(self, request: ListOfEntriesRequest, respond: Respond) -> None:
        started_s = self._now_s()
        try:
            encoded = encode_entry_list(self._bookie.reads.entries(request.ledger))
        except BkctlError as error:
            _refuse(request, respond, error)
            return
        self._meters.measured("GET_LIST_OF_ENTRIES_OF_LEDGER", self._now_s() - started_s)
        if len(encoded) > self._frame_bytes_max // 2:
            # A frame that no client takes would cost the connection and everything outstanding on it.
            _log.warning("ledger %d: its list of entries takes %d bytes", request.ledger, len(encoded))
            respond(request.refuse(ResultCode.IO_ERROR))
            return
        respond(request.answer(ResultCode.OK, encoded))


def _answer_with(job: Callable[[RequestT, Respond], None], request: RequestT, respond: Respond) -> None:
    """Do what answers a request; an error that nobody foresaw is an answer, too. On a stage."""
    try:
        job(request, respond)
    except Exception as error:  # noqa: BLE001 - as in `RequestProcessor.process`
        respond(request.refuse(code_of_any(_SERVING, error)))


def _refuse(request: Request, respond: Respond, error: BkctlError) -> None:
    log_io(error)
    respond(request.refuse(code_of(error)))


class _Singles:
    """Takes the journal's word for single adds."""

    def journaled(self, batches: list[JournalBatch]) -> None:
        for batch in batches:
            _answer(batch, ResultCode.OK)

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        code = code_of(error)
        for batch in batches:
            _answer(batch, code)


def _answer(batch: JournalBatch, code: ResultCode) -> None:
    request, respond = batch.context  # type: ignore[misc]
    respond(request.answer(code))  # type: ignore[has-type]


def _code(error: BookieError | None) -> ResultCode:
    return ResultCode.OK if error is None else error.code
