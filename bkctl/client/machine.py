"""The instructions that a client operation gives, and the events that it takes.

An operation (append, read, recovery, a metadata update, ...) is a machine: it is started once, gets events,
and answers each with instructions. It never sends, sleeps, waits or looks at a clock, so that a simulation
can drive it through losses, reorderings and crashes with the same code that runs in production. Its driver
carries out the instructions in their order and reports each outcome as one event with the instruction's
``token``; an outcome that comes after the machine has finished is dropped. A machine finishes with exactly
one :class:`Finished`.

Source of the idea: the operations themselves follow ``org.apache.bookkeeper.client`` (``PendingAddOp``,
``PendingReadOp``, ``LedgerRecoveryOp``, ``ReadLastConfirmedOp``, ``EnsembleUtils``, ``MetadataUpdateLoop``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.protocol.messages import Request, Response

#: Names an instruction within its machine; never used twice.
Token = int


# --- instructions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a bookie: :class:`Answered` or :class:`Unanswered`, in bounded time."""

    token: Token
    bookie: str
    request: Request


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Say :class:`TimerFired` after ``seconds``, unless it is cancelled."""

    token: Token
    seconds: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is not needed any more; its event may come all the same."""

    token: Token


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata: :class:`MetadataIs` or :class:`MetadataFailed`."""

    token: Token
    ledger: int


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Replace the metadata that has ``version``: MetadataIs with the new version, or MetadataFailed."""

    token: Token
    ledger: int
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class NewLedgerId:
    """Request an id that no other client gets: :class:`LedgerIdIs` or :class:`MetadataFailed`."""

    token: Token


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Store a new ledger: MetadataIs, or MetadataFailed (AlreadyExistsError, ...)."""

    token: Token
    ledger: int
    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class DeleteMetadata:
    """Delete the metadata that has ``version``: :class:`MetadataGone` (also if it was), or MetadataFailed."""

    token: Token
    ledger: int
    version: int


@dataclass(frozen=True, slots=True)
class ChooseBookies:
    """Choose ``count`` bookies outside ``exclude`` that go with ``ensemble`` (indices ``replace`` go).

    :class:`BookiesAre`, with fewer when there are not as many. ``write_quorum`` 0 is not known.
    """

    token: Token
    count: int
    exclude: frozenset[str]
    ensemble: tuple[str, ...] = ()
    replace: tuple[int, ...] = ()
    write_quorum: int = 0


@dataclass(frozen=True, slots=True)
class Notify:
    """Report to the caller of a part of the operation (one append) how it ended; not the machine's end."""

    token: Token
    value: object = None
    error: BkctlError | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The machine's end: a value, or an error."""

    value: object = None
    error: BkctlError | None = None


Instruction = (
    Send
    | SetTimer
    | CancelTimer
    | ReadMetadata
    | WriteMetadata
    | NewLedgerId
    | CreateMetadata
    | DeleteMetadata
    | ChooseBookies
    | Notify
    | Finished
)


# --- events -------------------------------------------------------------------------------------------------


class Silence(enum.Enum):
    """Why a request has no answer. In none of these cases it is known whether the bookie carried it out."""

    TIMEOUT = "timeout"
    NOT_CONNECTED = "not connected"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Answered:
    """A bookie's answer, whatever its code is."""

    token: Token
    response: Response


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer came; ``detail`` names the bookie and what happened."""

    token: Token
    silence: Silence
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time is over."""

    token: Token


@dataclass(frozen=True, slots=True)
class MetadataIs:
    """The stored metadata of a ledger, and their version."""

    token: Token
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """The store's error: VersionConflictError, NotFoundError, or one that leaves the outcome unknown."""

    token: Token
    error: BkctlError


@dataclass(frozen=True, slots=True)
class MetadataGone:
    """The ledger has no metadata now."""

    token: Token


@dataclass(frozen=True, slots=True)
class LedgerIdIs:
    """The new id."""

    token: Token
    ledger: int


@dataclass(frozen=True, slots=True)
class BookiesAre:
    """The chosen bookies."""

    token: Token
    bookies: tuple[str, ...]


Event = (
    Answered | Unanswered | TimerFired | MetadataIs | MetadataFailed | MetadataGone | LedgerIdIs | BookiesAre
)


class Machine(Protocol):
    """An operation. Not safe for two threads at once."""

    def start(self) -> list[Instruction]:
        """Return the first instructions. Called once, before anything else."""

    def on_event(self, event: Event) -> list[Instruction]:
        """Return what follows from an event; empty when it changes nothing."""


@dataclass(slots=True)
class Tokens:
    """Gives tokens out."""

    _next: Token = field(default=0)

    def take(self) -> Token:
        """Return a token that was not given out before."""
        self._next += 1
        return self._next
