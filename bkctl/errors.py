"""The one hierarchy of errors. Every class says which exit code a command ends with.

::

    BkctlError                 7  anything below
    +- UsageError              2  the call was wrong: an option, a path of the wrong kind
    |  +- MissingPackageError  2  it needs a package that only an extra of bkctl brings
    |  +- WrongFileError       2  a file that was named is of another kind than it was given as
    +- CorruptionError         1  bytes that cannot be what they should be
    +- PartialError            3  some of what was asked for could not be done
    +- RefusedError            4  doing it would not be safe
    +- ConnectionFailedError   5  no answer from a server
    +- NotFoundError           6  no such ledger, entry, log or file
    +- StorageError            7  the operating system or RocksDB failed
       +- NoSpaceError         7  the disk, the quota or the table of open files is full; more room heals it
       +- SyncError            7  a sync failed; what was written since the last one may be lost
    +- BookieError             7  a bookie refused an operation on a ledger; has a wire code
       +- NoLedgerError        6
       +- NoEntryError         6
       +- LedgerFencedError    4
       +- UnauthorizedError    4
       +- BadRequestError      2
       +- ReadOnlyBookieError  4
       +- TooManyRequestsError 5
       +- LedgerLimboError     3  entries may be missing: "unknown", never "no such entry"
       +- BookieIOError        7
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from bkctl.types import ResultCode

#: The advice when the system gives no thread or no memory.
LIMITS = (
    "look at the limits on processes and memory"
    " (ulimit -u, ulimit -v, pids.max and memory.max of the control group)"
)
# Also no descriptor for one more file: nothing was tried yet, and it goes over as a full disk does.
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class BkctlError(Exception):
    """Root of all errors that are not bugs."""

    exit_code: ClassVar[int] = 7


class UsageError(BkctlError):
    """The caller asked for something that has no meaning."""

    exit_code: ClassVar[int] = 2


class MissingPackageError(UsageError):
    """The caller asked for something that needs a package of an extra that is not installed."""


class WrongFileError(UsageError):
    """A file that the caller named is of another kind than it was given as.

    ``what`` is that, and ``expected`` a phrase on how such a file is made or begins.
    """

    def __init__(self, path: str, what: str, expected: str) -> None:
        self.path = path
        self._parts = (path, what, expected)
        super().__init__(f"{path}: is not {what} ({expected})")

    def __reduce__(self) -> tuple[type[WrongFileError], tuple[str, str, str]]:
        """Return what makes the error again in another process, where worker processes hand it over."""
        return type(self), self._parts


class CorruptionError(BkctlError):
    """Bytes do not decode.

    ``offset`` counts from the first byte handed to the decoder; readers of files add where those bytes
    stood (:meth:`located`). ``expected`` and ``found`` are short phrases for people.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        offset: int = 0,
        expected: str = "",
        found: str = "",
        path: str | None = None,
    ) -> None:
        self.what = what
        self.offset = offset
        self.expected = expected
        self.found = found
        self.path = path
        super().__init__(what)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        text = f"{where}{self.what} at offset {self.offset}"
        if self.expected:
            text += f": expected {self.expected}"
            if self.found:
                text += f", found {self.found}"
        elif self.found:
            text += f": found {self.found}"
        return text

    def located(self, path: str, base: int = 0) -> CorruptionError:
        """Return the same error with the file named and ``base`` added to the offset."""
        return CorruptionError(
            self.what,
            offset=self.offset + base,
            expected=self.expected,
            found=self.found,
            path=path,
        )


class PartialError(BkctlError):
    """A part was done, another was not; the message says which."""

    exit_code: ClassVar[int] = 3


class RefusedError(BkctlError):
    """Going on could lose data or disturb a running bookie."""

    exit_code: ClassVar[int] = 4


class ConnectionFailedError(BkctlError):
    """A server did not answer, or not in time."""

    exit_code: ClassVar[int] = 5


class NotFoundError(BkctlError):
    """No such thing."""

    exit_code: ClassVar[int] = 6


class StorageError(BkctlError):
    """Reading or writing failed below us; never to be taken for "there is nothing"."""

    exit_code: ClassVar[int] = 7

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        super().__init__(message)

    @property
    def is_denied(self) -> bool:
        """Whether the system refused it to this user: nothing then speaks for damage."""
        return isinstance(self.__cause__, PermissionError)


class NoSpaceError(StorageError):
    """No room for new bytes or names, or no descriptor for a file.

    Earlier data is unharmed; a later attempt may succeed.
    """


class SyncError(StorageError):
    """Bytes or names could not be made durable. It is never tried again: their user stops."""


class BookieError(BkctlError):
    """A bookie refuses an operation; ``code`` is what it answers on the wire."""

    code: ClassVar[ResultCode] = ResultCode.IO_ERROR

    def __init__(self, message: str, *, ledger: int = -1, entry: int = -1) -> None:
        self.ledger = ledger
        self.entry = entry
        super().__init__(message)


class NoLedgerError(BookieError):
    """The bookie does not know the ledger."""

    exit_code: ClassVar[int] = 6
    code: ClassVar[ResultCode] = ResultCode.NO_LEDGER


class NoEntryError(BookieError):
    """The ledger is known, the entry is not there."""

    exit_code: ClassVar[int] = 6
    code: ClassVar[ResultCode] = ResultCode.NO_ENTRY


class LedgerFencedError(BookieError):
    """The ledger is fenced: only recovery may add."""

    exit_code: ClassVar[int] = 4
    code: ClassVar[ResultCode] = ResultCode.FENCED


class UnauthorizedError(BookieError):
    """The master key is not the one the ledger was made with."""

    exit_code: ClassVar[int] = 4
    code: ClassVar[ResultCode] = ResultCode.UNAUTHORIZED


class BadRequestError(BookieError):
    """A request that has no meaning, such as a negative entry id."""

    exit_code: ClassVar[int] = 2
    code: ClassVar[ResultCode] = ResultCode.BAD_REQUEST


class ReadOnlyBookieError(BookieError):
    """The bookie takes no writes."""

    exit_code: ClassVar[int] = 4
    code: ClassVar[ResultCode] = ResultCode.READ_ONLY


class TooManyRequestsError(BookieError):
    """A queue or both write caches stayed full for too long."""

    exit_code: ClassVar[int] = 5
    code: ClassVar[ResultCode] = ResultCode.TOO_MANY_REQUESTS


class LedgerLimboError(BookieError):
    """The ledger may have lost entries here, so what is absent is unknown."""

    exit_code: ClassVar[int] = 3
    code: ClassVar[ResultCode] = ResultCode.UNKNOWN_LEDGER_STATE


class BookieIOError(BookieError):
    """Reading or writing failed while a request was served."""

    code: ClassVar[ResultCode] = ResultCode.IO_ERROR


@contextmanager
def as_storage_errors(path: str) -> Iterator[None]:
    """Raise StorageError, NoSpaceError for an OSError of the block.

    The message names the file of the error, where the system gives one, else ``path``. No block for a sync of
    bytes that nobody writes again: only ``storage_error`` with ``syncing`` makes a SyncError.
    """
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else None
        raise storage_error(error, path, named=named) from error


def storage_error(
    error: OSError,
    path: str,
    doing: str = "",
    offset: int | None = None,
    *,
    syncing: bool = False,
    named: str | None = None,
) -> StorageError:
    """Return the error to raise, with ``error`` as its cause.

    The message names path (or ``named``, a file below it), ``doing`` (a phrase) and the reason. A sync that
    reports a full disk (late allocation) is a SyncError all the same: the bytes it was asked for may be gone,
    and room that comes back does not bring them back.
    """
    kind: type[StorageError] = StorageError
    if syncing:
        kind = SyncError
    elif error.errno in _NO_SPACE:
        kind = NoSpaceError
    reason = error.strerror or str(error)
    made = kind(": ".join(filter(None, (named or path, doing, reason))), path=path, offset=offset)
    made.__cause__ = error
    return made
