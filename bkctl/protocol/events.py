"""The events that a server's connection hands to its owner besides requests and runs of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.protocol.framing import CloseReason
from bkctl.protocol.messages import Request
from bkctl.protocol.runs import AddRun, ReadRun
from bkctl.types import ResultCode


@dataclass(frozen=True, slots=True)
class Answer:
    """The protocol itself answers: send ``frame``, there is nothing to execute."""

    frame: bytes = field(repr=False)
    code: ResultCode
    request: Request


@dataclass(frozen=True, slots=True)
class Refusal:
    """Send ``frame``: it answers requests that may not be sent in clear. A Close follows."""

    frame: bytes = field(repr=False)
    code: ResultCode


@dataclass(frozen=True, slots=True)
class StartTls:
    """Send ``frame`` in clear, then start the server's half of the TLS handshake."""

    frame: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, without an answer; nothing comes behind it."""

    reason: CloseReason
    detail: str = ""


#: In order of arrival. Requests of one ledger keep the order of the connection when segments do.
Segment = AddRun | ReadRun | Request | Answer | Close

ServerEvent = Segment | Refusal | StartTls
