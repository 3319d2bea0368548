"""A bookie in a few lines: entries, a fence, and the answers of protocol.md's tables. One ledger.

State survives a crash, as acknowledged means on disk. A bookie that is ``sick`` answers with codes that say
nothing, whatever it did; one that is in ``limbo`` does not know whether it has an entry, which one that
``forgets_after_fence`` is from its answer to the fence on, so that others have to say what is there; one
that is ``rotten`` sends bytes that do not check; one that is ``wild`` sends any value in the fields that no
digest covers.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

from bkctl.protocol.messages import (
    AddRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    WriteLacRequest,
)
from bkctl.types import ResultCode

#: The one ledger.
LEDGER = 7

LAC = struct.Struct(">q")

#: Last add confirmed values and entry ids of a wild bookie.
WILD_VALUES = (-(2**63), -1, 0, 3, 7, 20, 2**31, 2**63 - 1)

SICK_CODES = (ResultCode.UNKNOWN_LEDGER_STATE, ResultCode.IO_ERROR, ResultCode.TOO_MANY_REQUESTS)


class ModelBookie:
    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.up = True
        self.sick = False
        self.rotten = False
        self.wild = False
        self.read_only = False
        self.limbo = False
        self.forgets_after_fence = False
        self.fenced = False
        self.known = False
        self.entries: dict[int, bytes] = {}
        self.lac_body: bytes | None = None
        self._random = random

    def handle(self, request: Request) -> Response:
        response = self._answer(request)
        if self.wild and isinstance(response, ReadResponse):
            return replace(response, entry=self._wild_value(), max_lac=self._wild_value())
        if self.wild and isinstance(response, ReadLacResponse):
            # The ledger's id and the value, and behind them a digest that cannot check.
            lac_body = LAC.pack(LEDGER) + LAC.pack(self._wild_value()) + b"none"
            return replace(response, lac_body=lac_body)
        return response

    def _wild_value(self) -> int:
        return self._random.choice(WILD_VALUES)

    def _answer(self, request: Request) -> Response:
        if isinstance(request, AddRequest):
            return request.answer(self._add(request))
        if isinstance(request, ReadRequest):
            response = self._read(request)
            if request.fence and self.forgets_after_fence:
                self.limbo = True
            return response
        if isinstance(request, ReadLacRequest):
            return self._read_lac(request)
        if isinstance(request, WriteLacRequest):
            self.known = True
            self.lac_body = request.body
            return request.answer(ResultCode.OK)
        if isinstance(request, ForceLedgerRequest):
            return request.answer(ResultCode.OK)
        raise AssertionError(f"the model has no {request}")

    def _add(self, request: AddRequest) -> ResultCode:
        if self.read_only and not request.high_priority:
            return ResultCode.READ_ONLY
        if self.fenced and not request.recovery:
            return ResultCode.FENCED
        if self.sick and self._random.random() < 0.5:
            return self._random.choice(SICK_CODES)
        self.known = True
        self.entries[request.entry] = request.body
        # Stored, and reported as failed: what an error of an add says about the entry is nothing.
        return self._random.choice(SICK_CODES) if self.sick else ResultCode.OK

    def _read(self, request: ReadRequest) -> Response:
        if request.fence:
            self.fenced = True
            self.known = True
        if self.sick:
            return request.answer(self._random.choice(SICK_CODES))
        if self.limbo:
            return request.answer(ResultCode.UNKNOWN_LEDGER_STATE)
        if not self.known:
            return request.answer(ResultCode.NO_LEDGER)
        entry = request.entry if request.entry >= 0 else max(self.entries, default=-1)
        body = self.entries.get(entry)
        if body is None:
            return request.answer(ResultCode.NO_ENTRY)
        if self.rotten:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return request.answer(ResultCode.OK, body, max_lac=None if request.fence else self.max_lac())

    def _read_lac(self, request: ReadLacRequest) -> Response:
        if self.sick:
            return request.answer(self._random.choice(SICK_CODES))
        newest = self.entries.get(max(self.entries, default=-1))
        if newest is None:
            return request.answer(
                ResultCode.IO_ERROR if self.lac_body else ResultCode.NO_ENTRY, self.lac_body
            )
        return request.answer(ResultCode.OK, self.lac_body, newest)

    def max_lac(self) -> int:
        told = [LAC.unpack_from(body, 16)[0] for body in self.entries.values()]
        if self.lac_body is not None:
            told.append(LAC.unpack_from(self.lac_body, 8)[0])
        return int(max(told, default=-1))
