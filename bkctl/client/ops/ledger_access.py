"""One ledger's secrets, and what is made and checked with them: entries, requests, answers.

An answer to a read says one of three things: *have it* (an entry whose digest checks), *never had it* ("no
such entry", "no such ledger"), or *do not know* (any other code, no answer, bytes that do not check). Only
the second is evidence that an entry is not there.

Source: ``org.apache.bookkeeper.proto.checksum.DigestManager`` (``verifyDigest``,
``verifyDigestAndReturnLastConfirmed``, ``verifyDigestAndReturnLac``).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from bkctl.client.errors import (
    AccessDeniedError,
    BookieRefusalError,
    ClientError,
    DigestMismatchError,
    HandleFencedError,
    NoAnswerError,
)
from bkctl.client.machine import Answered, Event, Unanswered
from bkctl.codec.digest import Digester, master_key
from bkctl.codec.entry import HEADER, HEADER_BYTES, EntryHeader, encode
from bkctl.codec.explicit_lac import BYTES_MIN, ExplicitLac, decode_explicit_lac, encode_explicit_lac
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import UsageError
from bkctl.protocol.messages import HIGH_PRIORITY, AddRequest, ReadRequest, ReadResponse, WriteLacRequest
from bkctl.reporting import counted
from bkctl.types import DigestType, ResultCode

#: Codes of a bookie that does not have an entry, as opposed to one that could not look for it.
MISSING_CODES = frozenset({ResultCode.NO_ENTRY, ResultCode.NO_LEDGER})


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry whose digest checks. ``lac`` and ``length`` are its header's, ``bookie`` has sent it."""

    ledger: int
    entry: int
    lac: int
    length: int
    payload: bytes = field(repr=False)
    bookie: str = ""


@dataclass(frozen=True, slots=True)
class NeverHadIt:
    """The bookie answered that it has no such entry, or does not know the ledger."""

    bookie: str


@dataclass(frozen=True, slots=True)
class DoNotKnow:
    """The bookie did not say whether it has the entry; ``error`` is why."""

    bookie: str
    error: ClientError


ReadOutcome = LedgerEntry | NeverHadIt | DoNotKnow


class LedgerAccess:
    """The knowledge besides metadata that a client needs to read or write a ledger."""

    __slots__ = ("digester", "key", "ledger")

    def __init__(self, ledger: int, digest_type: DigestType, password: bytes) -> None:
        self.ledger = ledger
        self.digester = Digester.of(digest_type, password)
        self.key = master_key(password)

    @classmethod
    def of(cls, ledger: int, metadata: LedgerMetadata, password: bytes | None = None) -> LedgerAccess:
        """Return the access that metadata want; ``password`` None takes the stored one, as administrators do.

        The stored digest type is used where there is one, CRC32 (Java's default) where there is none. Raises
        AccessDeniedError when ``password`` is not the stored one.
        """
        stored = metadata.password
        if password is None:
            password = stored or b""
        elif stored is not None and not hmac.compare_digest(stored, password):
            raise AccessDeniedError("the password is not the ledger's", ledger=ledger)
        return cls(ledger, metadata.digest_type or DigestType.CRC32, password)

    # --- entries --------------------------------------------------------------------------------------------

    def encode(self, entry: int, lac: int, length: int, data: bytes) -> bytes:
        """Return the bytes of an entry; ``length`` counts the ledger's payload up to and with this entry."""
        return encode(EntryHeader(self.ledger, entry, lac, length), data, self.digester)

    def checked(self, body: bytes | None, entry: int | None, bookie: str) -> LedgerEntry | DoNotKnow:
        """Return an entry as it came from ``bookie``; ``entry`` None where the newest was asked for."""
        if body is None or not self.digester.checks(body):
            return self._mismatch("the entry's digest does not check", entry, bookie)
        ledger, found, lac, length = HEADER.unpack_from(body)
        if ledger != self.ledger or found < 0 or (entry is not None and found != entry):
            return self._mismatch(f"it sent entry {found} of ledger {ledger}", entry, bookie)
        return LedgerEntry(
            ledger, found, lac, length, body[HEADER_BYTES + self.digester.size_bytes :], bookie
        )

    def explicit_lac(self, body: bytes | None) -> int | None:
        """Return the value of an explicit LAC, None when there is none or it does not check."""
        if body is None or not self.digester.checks(body, BYTES_MIN):
            return None
        value = decode_explicit_lac(body)
        return value.lac if value.ledger == self.ledger else None

    # --- requests -------------------------------------------------------------------------------------------

    def add_request(
        self, entry: int, body: bytes, *, recovery: bool = False, deferred_sync: bool = False
    ) -> AddRequest:
        """Return an add. A recovery's is not refused by the fence, nor by a read-only bookie."""
        return AddRequest(
            self.ledger,
            entry,
            self.key,
            body,
            recovery,
            deferred_sync,
            priority=HIGH_PRIORITY if recovery else 0,
        )

    def copy_request(self, entry: int, body: bytes) -> AddRequest:
        """Return an add of a copy.

        The fence does not refuse it; a read-only bookie does, as it is no recovery.
        """
        return AddRequest(self.ledger, entry, self.key, body, recovery=True)

    def read_request(self, entry: int, *, fence: bool = False, priority: int = 0) -> ReadRequest:
        """Return a read of one entry, -1 for the newest.

        With ``fence`` the writer is refused from then on.
        """
        return ReadRequest(self.ledger, entry, self.key if fence else None, fence, priority=priority)

    def write_lac_request(self, lac: int) -> WriteLacRequest:
        """Return an explicit LAC."""
        header = encode_explicit_lac(ExplicitLac(self.ledger, lac))
        body = header + self.digester.compute(header, b"")
        return WriteLacRequest(self.ledger, lac, self.key, body)

    # --- answers --------------------------------------------------------------------------------------------

    def outcome(self, event: Event, entry: int | None, bookie: str) -> ReadOutcome:
        """Return what a bookie's answer to a read proves about ``entry`` (None: the newest)."""
        if isinstance(event, Answered) and isinstance(event.response, ReadResponse):
            code = event.response.code
            if code is ResultCode.OK:
                return self.checked(event.response.body, entry, bookie)
            if code in MISSING_CODES:
                return NeverHadIt(bookie)
        return DoNotKnow(bookie, self.failure(event, -1 if entry is None else entry, bookie))

    def failure(self, event: Event, entry: int, bookie: str) -> ClientError:
        """Return the error for an answer that is none, or not OK."""
        if isinstance(event, Unanswered):
            said = f": {event.detail}" if event.detail else ""
            return NoAnswerError(
                f"no answer ({event.silence.value}){said}", ledger=self.ledger, entry=entry, bookie=bookie
            )
        code = answer_code(event)
        if code is ResultCode.UNAUTHORIZED:
            return AccessDeniedError(
                "the bookie keeps another master key: not the ledger's password, or not authenticated",
                ledger=self.ledger,
                entry=entry,
                bookie=bookie,
            )
        if code is ResultCode.FENCED:
            return HandleFencedError(
                "the ledger is fenced: somebody recovers it", ledger=self.ledger, entry=entry, bookie=bookie
            )
        if code is None:
            return NoAnswerError(
                "an answer to another question", ledger=self.ledger, entry=entry, bookie=bookie
            )
        return BookieRefusalError(
            f"the bookie answered {code.value}", code=code, ledger=self.ledger, entry=entry, bookie=bookie
        )

    def _mismatch(self, message: str, entry: int | None, bookie: str) -> DoNotKnow:
        at = -1 if entry is None else entry
        return DoNotKnow(bookie, DigestMismatchError(message, ledger=self.ledger, entry=at, bookie=bookie))


def answer_code(event: Event) -> ResultCode | None:
    """Return the code of an answer of the operations on a ledger; None when there is no answer."""
    if isinstance(event, Answered):
        code = getattr(event.response, "code", None)
        return code if isinstance(code, ResultCode) else None
    return None


def require_quorum_fields(metadata: LedgerMetadata, ledger: int) -> None:
    """Raise UsageError for metadata that no client can work with: no segment, or one of another size."""
    if not metadata.segments:
        raise UsageError(f"ledger {ledger}: its metadata has no segment")
    for segment in metadata.segments:
        if len(segment.bookies) != metadata.ensemble_size:
            raise UsageError(
                f"ledger {ledger}: the segment from entry {segment.first_entry} names "
                f"{counted(len(segment.bookies), 'bookie')}, the ensemble has {metadata.ensemble_size}"
            )
