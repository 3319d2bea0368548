"""Find out who uses the space of a bookie's entry logs: bytes of each ledger, alive and dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.admin.gc.survey import LOST_INDEX_STEP, read_logs, survey
from bkctl.admin.ledgers.known_ledgers import Cluster
from bkctl.clock import Clock
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import Advance, nobody
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class LedgerSpace:
    """The space of one ledger in the entry logs of one directory, with the size words of its records.

    ``live_bytes`` are those of entries that the index has where they stand, of a ledger that exists.
    """

    dir: str
    ledger: int
    bytes: int
    live_bytes: int
    logs: int


@dataclass(frozen=True, slots=True)
class UnreadLog:
    """A log whose bytes are not counted, or not all of them, and why."""

    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reason why dead bytes of a directory may be alive after all; nothing is known with ``is_lost``."""

    dir: str
    why: str
    is_lost: bool = False


def space_use(
    filesystem: FileSystem,
    spaces: Sequence[IndexSpace],
    cluster: Cluster,
    clock: Clock,
    *,
    advance: Advance = nobody,
) -> Iterator[LedgerSpace | UnreadLog | Reservation]:
    """Yield what each ledger takes in each directory, and the logs that could not be read to their end.

    Raises RefusedError with another cluster's metadata, CorruptionError and StorageError when an index or the
    metadata cannot be read.
    """
    for space in spaces:
        totals: dict[int, list[int]] = {}
        with IndexReader(filesystem, space) as index:
            found = survey(filesystem, space, index, cluster)
            if found.unreplayed.records and not found.index_is_lost:
                why = "the journal has records that no start has replayed: their entries count as dead here"
                yield Reservation(space.dir, why)
            for facts in read_logs(filesystem, found, clock, advance=advance):
                if facts.problem is not None:
                    yield UnreadLog(facts.log.path, facts.problem)
                for ledger, size in facts.totals.items():
                    counted = totals.setdefault(ledger, [0, 0, 0])
                    counted[0] += size
                    counted[1] += facts.live.get(ledger, 0)
                    counted[2] += 1
            if found.index_is_lost and totals:
                why = f"the index is lost, so that everything counts as dead here; {LOST_INDEX_STEP}"
                yield Reservation(space.dir, why, is_lost=True)
        directory = space.dir
        for ledger, (size, live, logs) in sorted(totals.items()):
            yield LedgerSpace(directory, ledger, size, live, logs)
