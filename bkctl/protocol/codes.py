"""The numbers of result codes and operations in each version.

==================== === === =============================================
code                 v2  v3  meaning
==================== === === =============================================
EOK                  0   0
ENOLEDGER            1   402 the bookie does not know the ledger
ENOENTRY             2   403 the ledger is known, the entry is not there
EBADREQ              100 404
EIO                  101 501
EUA                  102 502 wrong master key, or not authenticated
EBADVERSION          103 503
EFENCED              104 504
EREADONLY            105 505
ETOOMANYREQUESTS     106 506
EUNKNOWNLEDGERSTATE  101 507 v2 has 107, at which the Java client breaks
==================== === === =============================================

Java's v2 client closes the connection at 107 and at every number that is not in the table. So 107 is read
here but never sent: EIO takes its place, which says as little about the entry.

Source: ``BookkeeperProtocol.StatusCode``, ``org.apache.bookkeeper.proto.BookieProtocol``.
"""

from __future__ import annotations

import enum

from bkctl.protocol.framing import CloseReason, ProtocolError
from bkctl.types import ResultCode


class Operation(enum.Enum):
    """The operation of a request; the value is the number in v3 (``BookkeeperProtocol.OperationType``)."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


#: The operations that v2 really has. Java names 4, 5 and 6 too, and closes the connection at them.
V2_OPERATIONS = {
    Operation.ADD_ENTRY: 1,
    Operation.READ_ENTRY: 2,
    Operation.AUTH: 3,
    Operation.BATCH_READ_ENTRY: 7,
}

V2_CODES = {
    ResultCode.OK: 0,
    ResultCode.NO_LEDGER: 1,
    ResultCode.NO_ENTRY: 2,
    ResultCode.BAD_REQUEST: 100,
    ResultCode.IO_ERROR: 101,
    ResultCode.UNAUTHORIZED: 102,
    ResultCode.BAD_VERSION: 103,
    ResultCode.FENCED: 104,
    ResultCode.READ_ONLY: 105,
    ResultCode.TOO_MANY_REQUESTS: 106,
    ResultCode.UNKNOWN_LEDGER_STATE: 101,
}

V3_CODES = {
    ResultCode.OK: 0,
    ResultCode.NO_LEDGER: 402,
    ResultCode.NO_ENTRY: 403,
    ResultCode.BAD_REQUEST: 404,
    ResultCode.IO_ERROR: 501,
    ResultCode.UNAUTHORIZED: 502,
    ResultCode.BAD_VERSION: 503,
    ResultCode.FENCED: 504,
    ResultCode.READ_ONLY: 505,
    ResultCode.TOO_MANY_REQUESTS: 506,
    ResultCode.UNKNOWN_LEDGER_STATE: 507,
}

_V2_UNKNOWN_LEDGER_STATE = 107

#: Every number that a v2 answer may carry, 107 too, which is never sent.
V2_NUMBERS: dict[int, ResultCode] = {
    **{number: code for code, number in V2_CODES.items() if code is not ResultCode.UNKNOWN_LEDGER_STATE},
    _V2_UNKNOWN_LEDGER_STATE: ResultCode.UNKNOWN_LEDGER_STATE,
}
#: Every number that a v3 answer may carry.
V3_NUMBERS = {number: code for code, number in V3_CODES.items()}


def code_from_v2(number: int) -> ResultCode:
    """Return the code of a v2 answer. Raises ProtocolError for a number that v2 does not have."""
    code = V2_NUMBERS.get(number)
    if code is None:
        raise ProtocolError(CloseReason.UNKNOWN_CODE, str(number))
    return code


def code_from_v3(number: int) -> ResultCode:
    """Return the code of a v3 answer. Raises ProtocolError for a number that v3 does not have."""
    code = V3_NUMBERS.get(number)
    if code is None:
        raise ProtocolError(CloseReason.UNKNOWN_CODE, str(number))
    return code
