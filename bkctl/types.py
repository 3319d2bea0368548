"""Ids and enums of BookKeeper, without behaviour.

Ids are plain integers everywhere: a ledger id is an i64 >= 0, an entry id an i64 >= 0, a log id an i32 >= 0,
a journal id an i64 >= 0.
"""

from __future__ import annotations

import enum


class DigestType(enum.Enum):
    """How an entry's bytes are checked. The value is the name used in JSON and on the command line."""

    CRC32C = "crc32c"
    CRC32 = "crc32"
    MAC = "mac"
    DUMMY = "dummy"


class LedgerState(enum.Enum):
    """State of a ledger in its metadata (``LedgerMetadataFormat.State``); the value is the JSON form."""

    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


class ResultCode(enum.Enum):
    """The result in an answer. The value is the upstream name (``BookkeeperProtocol.StatusCode``).

    ``bkctl.protocol`` knows the numbers of each wire version.
    """

    OK = "EOK"
    NO_LEDGER = "ENOLEDGER"
    NO_ENTRY = "ENOENTRY"
    BAD_REQUEST = "EBADREQ"
    IO_ERROR = "EIO"
    UNAUTHORIZED = "EUA"
    BAD_VERSION = "EBADVERSION"
    FENCED = "EFENCED"
    READ_ONLY = "EREADONLY"
    TOO_MANY_REQUESTS = "ETOOMANYREQUESTS"
    UNKNOWN_LEDGER_STATE = "EUNKNOWNLEDGERSTATE"
