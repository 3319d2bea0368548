"""The requests that are refused before any ledger is read.

A pure rule over decoded requests. Beside the protocol's own checks it keeps ids that the journal uses for its
own records (-0x1000, -0x2000, -0x4000, -0x8000) away from it: Java takes an add with such an id and cannot
start again afterwards. A plain read of a negative ledger passes; it is just not there.

Values that stay in memory are bounded here too: a master key is 20 bytes, as every client derives it (SHA-1
of the password), and an explicit LAC at most 1 KiB. Java takes both up to the size of a frame and keeps them;
a few hundred requests then fill a bookie's memory, also after its next start.

Source: ``org.apache.bookkeeper.proto.PacketProcessorBaseV3.isVersionCompatible`` and the processors.
"""

from __future__ import annotations

from bkctl.codec.digest import MASTER_KEY_BYTES
from bkctl.protocol.messages import (
    LAST_ADD_CONFIRMED,
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    UnsupportedRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.types import ResultCode

#: Shortest body that a bookie stores: it has to read ledger, entry and LAC out of it.
BODY_BYTES_MIN = 24

#: Longest body of an explicit LAC: ids and the longest digest take 36 bytes.
LAC_BODY_BYTES_MAX = 1024

_LAC_BODY_BYTES_MIN = 16
_NEGATIVE = 0x80


def refusal(request: Request) -> ResultCode | None:
    """Return the code to answer with, or None when the request is to be served."""
    if isinstance(request, UnsupportedRequest):
        return ResultCode.BAD_REQUEST
    if not isinstance(request, AuthRequest | StartTlsRequest) and not _version_fits(request):
        return ResultCode.BAD_VERSION
    return ResultCode.BAD_REQUEST if _has_no_meaning(request) else None


def _version_fits(request: Request) -> bool:
    if request.wire is Wire.V2:
        return 0 <= request.version <= 2
    return request.version == 3


def _has_no_meaning(request: Request) -> bool:
    if _has_foreign_key(request):
        return True
    if isinstance(request, AddRequest):
        body = request.body
        return len(body) < BODY_BYTES_MIN or body[0] >= _NEGATIVE or body[8] >= _NEGATIVE
    if isinstance(request, ReadRequest):
        if request.long_poll and request.piggyback and request.entry != LAST_ADD_CONFIRMED:
            return True
        return request.fence and request.ledger < 0  # it would be created, and fenced, under that id
    if isinstance(request, BatchReadRequest):
        return request.fence and request.ledger < 0
    if isinstance(request, WriteLacRequest):
        if not _LAC_BODY_BYTES_MIN <= len(request.body) <= LAC_BODY_BYTES_MAX:
            return True
        return request.body[0] >= _NEGATIVE
    return isinstance(request, ForceLedgerRequest) and request.ledger < 0


def _has_foreign_key(request: Request) -> bool:
    """Return whether a request carries a master key that no client derives."""
    if isinstance(request, AddRequest | ReadRequest | BatchReadRequest | WriteLacRequest):
        key = request.master_key
        return key is not None and len(key) != MASTER_KEY_BYTES
    return False
