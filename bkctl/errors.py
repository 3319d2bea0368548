"""The one hierarchy of errors. Every class says which exit code a command ends with.

::

    BkctlError                 7  anything below
    +- UsageError              2  the call was wrong: an option, a path of the wrong kind
    +- CorruptionError         1  bytes that cannot be what they should be
    +- PartialError            3  some of what was asked for could not be done
    +- RefusedError            4  doing it would not be safe
    +- ConnectionFailedError   5  no answer from a server
    +- NotFoundError           6  no such ledger, entry, log or file
    +- StorageError            7  the operating system or RocksDB failed
"""

from __future__ import annotations

from typing import ClassVar


class BkctlError(Exception):
    """Root of all errors that are not bugs."""

    exit_code: ClassVar[int] = 7


class UsageError(BkctlError):
    """The caller asked for something that has no meaning."""

    exit_code: ClassVar[int] = 2


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
        """The same error with the file named and ``base`` added to the offset."""
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
