r"""Under-replication: the marks of ledgers that miss replicas, and the locks of who replicates them.

Protobuf text (``codec.protobuf_text``) in the metadata store, below the ledgers root. With ``h`` the ledger's
id as 16 hexadecimal digits and ``d`` as ten decimal ones or more::

    underreplication/ledgers/<h[0:4]>/<h[4:8]>/<h[8:12]>/<h[12:16]>/urL<d>
        replica: "127.0.0.1:2313"\n
        replica: "127.0.0.1:2311"\n
        ctime: 1795263329069\n

    underreplication/locks/urL<d>
        bookieId: "worker-host"\n

    underreplication/auditorelection/V_<ten digits>
        bookieId: "127.0.0.1:3181"\n

    underreplication/LAYOUT
        type: "BASIC"\n
        version: 1\n

    underreplication/disable                      empty; autorecovery rests while it is there
    underreplication/lostBookieRecoveryDelay      seconds, decimal ASCII
    underreplication/checkallledgersctime         08 <varint>: when the check was last completed, ms
    underreplication/placementpolicycheckctime    since 1970, as binary protobuf
    underreplication/replicascheckctime

``replica`` are the bookies that the ledger misses; a mark without any is for a worker to find out. ``ctime``
is when it was last marked, milliseconds since 1970. The lock's ``bookieId`` is the worker's host name, a
vote's the candidate's bookie id; the candidate with the lowest number is the auditor.

Source: ``org.apache.bookkeeper.meta.ZkLedgerUnderreplicationManager``, ``ZkLedgerAuditorManager``,
``DataFormats.proto``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkctl.codec.protobuf_text import merge_text, quote
from bkctl.errors import CorruptionError, RefusedError, UsageError

if TYPE_CHECKING:
    from google.protobuf.message import Message

MARKS = "underreplication/ledgers"
LOCKS = "underreplication/locks"
ELECTION = "underreplication/auditorelection"
DISABLED = "underreplication/disable"
LOST_BOOKIE_DELAY = "underreplication/lostBookieRecoveryDelay"
LAYOUT = "underreplication/LAYOUT"
LAYOUT_DATA = b'type: "BASIC"\nversion: 1\n'
VOTE_PREFIX = "V_"
#: Of this project alone: see codec.maintenance.
MAINTENANCE = "underreplication/bkctl-maintenance"
#: The node at which Pulsar's metadata driver elects an auditor, which it does in another way.
PULSAR_LEADER = "underreplication/leader"

_VOTE = re.compile(r"V_(-?[0-9]{1,10})\Z")
_SECONDS = re.compile(rb"\s*([+-]?[0-9]{1,10})\s*\Z")
_NAME = re.compile(r"urL([0-9]{10,19})\Z")
_ID_MAX = 2**63 - 1


class CheckKind(enum.Enum):
    """A periodical check of the auditor; the value is the name of the node that keeps its time stamp."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class UnderreplicatedMark:
    """Bookies that the ledger misses; ``marked_ms`` None where the time was not stored."""

    replicas: tuple[str, ...]
    marked_ms: int | None = None

    def with_missing(self, bookies: Iterable[str], marked_ms: int | None) -> UnderreplicatedMark:
        """Return the mark with more bookies, marked at ``marked_ms``; the same mark where all are named."""
        added = tuple(dict.fromkeys(bookie for bookie in bookies if bookie not in self.replicas))
        if not added:
            return self
        return UnderreplicatedMark(self.replicas + added, self.marked_ms if marked_ms is None else marked_ms)


def check_path(kind: CheckKind) -> str:
    """Return the path of a check's time stamp, below the ledgers root."""
    return f"underreplication/{kind.value}"


def mark_path(ledger: int) -> str:
    """Return the path of a ledger's mark, below the ledgers root.

    Raises UsageError for an id that no ledger can have.
    """
    name = mark_name(ledger)
    digits = f"{ledger:016x}"
    return "/".join((MARKS, *(digits[at : at + 4] for at in range(0, 16, 4)), name))


def mark_name(ledger: int) -> str:
    """Return the name of a ledger's mark and lock. Raises UsageError for an id that no ledger can have."""
    if not 0 <= ledger <= _ID_MAX:
        raise UsageError(f"{ledger} is not a ledger id (expected 0 to {_ID_MAX})")
    return f"urL{ledger:010d}"


def ledger_of_mark(name: str) -> int | None:
    """Return the ledger that a mark's name is about; None for a name that is none."""
    found = _NAME.match(name)
    if found is None or int(found[1]) > _ID_MAX or mark_name(int(found[1])) != name:
        return None
    return int(found[1])


def decode_mark(data: bytes) -> UnderreplicatedMark:
    """Return the mark. Raises CorruptionError."""
    from bkctl.codec.proto.bookkeeper_pb2 import UnderreplicatedLedgerFormat

    message = UnderreplicatedLedgerFormat()
    _merge(message, data, "under-replication mark")
    return UnderreplicatedMark(tuple(message.replica), message.ctime if message.HasField("ctime") else None)


def encode_mark(mark: UnderreplicatedMark) -> bytes:
    """Return the mark's text, byte for byte as Java writes it."""
    lines = [f"replica: {quote(replica.encode())}\n" for replica in mark.replicas]
    if mark.marked_ms is not None:
        lines.append(f"ctime: {mark.marked_ms}\n")
    return "".join(lines).encode()


def encode_holder(holder: str) -> bytes:
    """Return the text of a lock or a vote."""
    return f"bookieId: {quote(holder.encode())}\n".encode()


def check_layout(data: bytes) -> None:
    """Raise RefusedError for nodes that are arranged in another way than Java's and ours.

    Raises CorruptionError for what is no layout.
    """
    from bkctl.codec.proto.bookkeeper_pb2 import LedgerRereplicationLayoutFormat

    message = LedgerRereplicationLayoutFormat()
    _merge(message, data, "under-replication layout")
    if (message.type, message.version) != ("BASIC", 1):
        raise RefusedError(
            f"the under-replication layout is {message.type} {message.version}; only BASIC 1 is supported"
        )


def encode_check_completed(completed_ms: int) -> bytes:
    """Return the bytes of a check's time stamp."""
    from bkctl.codec.proto.bookkeeper_pb2 import CheckCompletedFormat

    return CheckCompletedFormat(ctime=completed_ms).SerializeToString()


def decode_check_completed(data: bytes) -> int | None:
    """Return when a check was last completed, None where no time was stored. Raises CorruptionError."""
    from google.protobuf.message import DecodeError

    from bkctl.codec.proto.bookkeeper_pb2 import CheckCompletedFormat

    message = CheckCompletedFormat()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise CorruptionError("time of a check", expected="a protobuf message") from None
    return message.ctime if message.HasField("ctime") else None


def decode_holder(data: bytes) -> str:
    """Return the holder of a lock or the voter of a vote, "" where none is named. Raises CorruptionError."""
    from bkctl.codec.proto.bookkeeper_pb2 import LockDataFormat

    message = LockDataFormat()
    _merge(message, data, "holder of a lock or vote")
    return str(message.bookieId)


def vote_number(name: str) -> int | None:
    """Return the number of a vote by its name; None for a name that is none."""
    found = _VOTE.match(name)
    return None if found is None else int(found[1])


def decode_delay_s(data: bytes) -> int:
    """Return the seconds that an auditor waits for a lost bookie. Raises CorruptionError."""
    found = _SECONDS.match(data)
    if found is None:
        raise CorruptionError("lost bookie recovery delay", expected="a number of seconds")
    return int(found[1])


def encode_delay_s(seconds: int) -> bytes:
    """Return the text of a number of seconds. Raises UsageError for one that is no i32 or negative."""
    if not 0 <= seconds < 2**31:
        raise UsageError(f"a delay of {seconds} seconds: 0 to {2**31 - 1}")
    return str(seconds).encode("ascii")


def _merge(message: Message, data: bytes, what: str) -> None:
    merge_text(message, data, what=what)
    if not message.IsInitialized():
        raise CorruptionError(what, expected="all fields")
