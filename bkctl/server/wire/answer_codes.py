"""Which code a failed request is answered with, and which failures an operator must see."""

from __future__ import annotations

import logging

from bkctl.engine.engine_thread import logged_failure
from bkctl.errors import BkctlError, BookieError, NoSpaceError
from bkctl.types import ResultCode

_log = logging.getLogger(__name__)


def code_of(error: BkctlError) -> ResultCode:
    """Return the code that answers an error: its own, or I/O error where it has none.

    A write that found the disk full has made the bookie read-only.
    """
    if isinstance(error, NoSpaceError):
        return ResultCode.READ_ONLY
    return error.code if isinstance(error, BookieError) else ResultCode.IO_ERROR


def code_of_any(doing: str, error: Exception) -> ResultCode:
    """Return the answer to requests that an error ended; one that nobody foresaw is logged."""
    return code_of(logged_failure(doing, error))


def log_io(error: BkctlError) -> None:
    """Log an error that comes from this bookie's disks, and no other."""
    if code_of(error) is ResultCode.IO_ERROR:
        _log.error("%s", error)
