"""Reading entries from each of their bookies alone, and naming the state of every replica.

============= ================================================================================================
state         when
============= ================================================================================================
present       its digest checks
never written the bookie says that it has no such entry
corrupt       bytes came that the digest does not prove
unknown       the bookie answered with an error (a ledger in limbo, a log that cannot be read)
no answer     no answer came from the bookie
different     its digest checks, and more of the proved replicas agree on another payload; where no payload
              has the most, all of them are different
============= ================================================================================================

Replicas that differ only in the last add confirmed of their headers are the same entry: a recovery has
written it again.

======= ============================== =====================================================================
state   input                          next state, effect
======= ============================== =====================================================================
NEW     ``start``                      READING, an EntryRead of the first replica
READING no answer, or too many         READING, SetTimer before the same EntryRead, once a replica; the
        requests                       second time as any other error
READING the entry, EntryMissing, or an READING, the replica's state is known; an EntryRead of each next one,
        error                          as many as the bounds allow
READING no read is left                FINISHED with the replicas
======= ============================== =====================================================================
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bkctl.client.errors import DigestMismatchError, NoAnswerError
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.client.ops.read import EntryMissing, EntryOutcome, EntryRead
from bkctl.errors import UsageError
from bkctl.replication.fragment_check import is_for_now


class ReplicaState(enum.Enum):
    """The state of a replica; the value is the JSON form."""

    PRESENT = "present"
    NEVER_WRITTEN = "never_written"
    UNKNOWN = "unknown"
    CORRUPT = "corrupt"
    NO_ANSWER = "no_answer"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Replica:
    """One entry on one bookie. Without a proved entry ``lac``, ``length`` and ``size_bytes`` are None.

    ``sha256`` is the payload's, in hexadecimal digits; ``detail`` says why it is not present.
    """

    entry: int
    bookie: str
    state: ReplicaState
    lac: int | None = None
    length: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    detail: str = ""

    @property
    def is_present(self) -> bool:
        """Whether the replica is proved to be the entry."""
        return self.state is ReplicaState.PRESENT


@dataclass(frozen=True, slots=True)
class EntryReplicas:
    """The replicas of one entry, in the order of its write set."""

    entry: int
    replicas: tuple[Replica, ...]

    @property
    def are_equal(self) -> bool:
        """Whether every bookie that was asked has the same entry."""
        return all(replica.is_present for replica in self.replicas)

    @property
    def are_in_conflict(self) -> bool:
        """Whether two replicas prove themselves and are not the same."""
        return any(replica.state is ReplicaState.DIFFERENT for replica in self.replicas)

    @property
    def proved(self) -> tuple[str, ...]:
        """The bookies whose replicas are proved."""
        return tuple([replica.bookie for replica in self.replicas if replica.is_present])


@dataclass(frozen=True, slots=True)
class WantedReplicas:
    """An entry, and the bookies to read it from."""

    entry: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """At most ``reads_max`` reads, of about ``bytes_max`` bytes, are under way at once.

    ``ask_again_ms`` is the pause before a bookie that did not answer, or has too much to do, is asked once
    more.
    """

    reads_max: int = 32
    bytes_max: int = 16 << 20
    ask_again_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.reads_max < 1 or self.bytes_max < 1:
            raise UsageError("reads_max and bytes_max must be 1 or more")


class ReplicaReadMachine(OperationMachine):
    """Read entries from each bookie alone; finishes with a tuple of :class:`Replica`, in any order.

    It never fails: what cannot be learned of a replica is in its state. Payloads are not kept, and replicas
    are not compared; see :func:`judged`.
    """

    def __init__(
        self, access: LedgerAccess, wanted: Sequence[WantedReplicas], bounds: ReadBounds | None = None
    ) -> None:
        super().__init__()
        self._access = access
        self._bounds = bounds or ReadBounds()
        self._found: list[Replica] = []
        self._probes: Iterator[tuple[int, str]] = iter(
            [(one.entry, bookie) for one in wanted for bookie in one.bookies]
        )
        self._reading = 0
        self._done = 0
        self._largest_bytes = 1024
        self._filling = False
        self._asked_again: set[tuple[int, str]] = set()

    def _begin(self) -> None:
        self._read_on()

    def _read_on(self) -> None:
        if self._filling:
            return
        self._filling = True
        while self._has_room():
            probe = next(self._probes, None)
            if probe is None:
                break
            self._reading += 1
            self._ask(*probe)
        self._filling = False
        if not self._reading:
            self.exchange.finish(tuple(self._found))

    def _has_room(self) -> bool:
        # The first entry shows how large entries are, before many are asked for.
        if self._reading >= min(self._bounds.reads_max, 1 + self._done):
            return False
        return not self._reading or (self._reading + 1) * self._largest_bytes <= self._bounds.bytes_max

    def _ask(self, entry: int, bookie: str) -> None:
        EntryRead(
            self.exchange,
            self._access,
            entry,
            [bookie],
            partial(self._answered, entry, bookie),
            heard=set(),
            slow=set(),
            speculation=None,
        ).begin()

    def _answered(self, entry: int, bookie: str, outcome: EntryOutcome) -> None:
        if is_for_now(outcome) and (entry, bookie) not in self._asked_again:
            self._asked_again.add((entry, bookie))
            self.exchange.set_timer(self._bounds.ask_again_ms / 1000, lambda _: self._ask(entry, bookie))
            return
        replica = replica_of(entry, bookie, outcome)
        self._found.append(replica)
        self._reading -= 1
        self._done += 1
        self._largest_bytes = max(self._largest_bytes, replica.size_bytes or 0)
        self._read_on()


def replica_of(entry: int, bookie: str, outcome: EntryOutcome) -> Replica:
    """Return the replica that a read of one entry from one bookie has found."""
    if isinstance(outcome, LedgerEntry):
        digest = hashlib.sha256(outcome.payload).hexdigest()
        size = len(outcome.payload)
        return Replica(entry, bookie, ReplicaState.PRESENT, outcome.lac, outcome.length, size, digest)
    if isinstance(outcome, EntryMissing):
        return Replica(entry, bookie, ReplicaState.NEVER_WRITTEN, detail="it says that it has no such entry")
    state = ReplicaState.UNKNOWN
    if isinstance(outcome, DigestMismatchError):
        state = ReplicaState.CORRUPT
    elif isinstance(outcome, NoAnswerError):
        state = ReplicaState.NO_ANSWER
    return Replica(entry, bookie, state, detail=outcome.message)


def judged(entry: int, replicas: Sequence[Replica]) -> EntryReplicas:
    """Return the replicas of an entry, those that are not what the most of them are as different."""
    counts = Counter((one.length, one.sha256) for one in replicas if one.is_present)
    if len(counts) <= 1:
        return EntryReplicas(entry, tuple(map(partial(_with_lac, _lacs(replicas)), replicas)))
    (first, most), (_, second) = counts.most_common(2)
    chosen = first if most > second else None
    detail = "it proves itself, and others that do have another payload"
    return EntryReplicas(
        entry,
        tuple(
            [
                replace(one, state=ReplicaState.DIFFERENT, detail=detail)
                if one.is_present and (one.length, one.sha256) != chosen
                else one
                for one in replicas
            ]
        ),
    )


def _lacs(replicas: Sequence[Replica]) -> frozenset[int | None]:
    return frozenset(one.lac for one in replicas if one.is_present)


def _with_lac(lacs: frozenset[int | None], replica: Replica) -> Replica:
    if len(lacs) <= 1 or not replica.is_present:
        return replica
    return replace(replica, detail="only its header's last add confirmed differs: a recovery wrote it again")
