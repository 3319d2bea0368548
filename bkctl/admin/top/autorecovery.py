"""The work of autorecovery in the metadata store: marks, the auditor, the workers that copy, and how fast."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from bkctl.admin.top.sample import AutorecoveryState, RecoveryWorker
from bkctl.clock import Clock, SystemClock
from bkctl.errors import CorruptionError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.autorecovery_api import Underreplication

#: Marks that are read at once; of more it is only said that there are more.
MARKS_MAX = 1_000
#: Workers that are named.
WORKERS_MAX = 16


class AutorecoveryWatch:
    """Looks at a cluster's autorecovery from time to time.

    The marks that went between two samples make a rate.
    """

    def __init__(self, store: MetadataStore, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._marks: frozenset[int] = frozenset()
        self._looked_s: float | None = None

    def look(self) -> AutorecoveryState:
        """Return the state of autorecovery. Blocks while the store answers, and raises the store's errors."""
        recorded = self._store.underreplication
        marks = frozenset(ledger for ledger, _ in islice(recorded.marked_ledgers(), MARKS_MAX + 1))
        all_of_them = len(marks) <= MARKS_MAX
        hosts = Counter(lock.host for lock in recorded.locks().values())
        now_s = self._clock.monotonic()
        rate = None
        if self._looked_s is not None and now_s > self._looked_s and all_of_them:
            rate = len(self._marks - marks) / (now_s - self._looked_s)
        self._marks, self._looked_s = marks, now_s
        return AutorecoveryState(
            enabled=recorded.enabled(),
            auditor=recorded.auditor(),
            ledgers=min(len(marks), MARKS_MAX),
            more_ledgers=not all_of_them,
            ledgers_done_per_s=rate,
            workers=tuple(
                RecoveryWorker(host=host, ledgers=count) for host, count in hosts.most_common(WORKERS_MAX)
            ),
            maintenance=_begun_by(recorded),
        )


def _begun_by(recorded: Underreplication) -> str | None:
    """Return the name of the operator who has begun a maintenance that is on."""
    try:
        found = recorded.maintenance()
    except CorruptionError:
        return "somebody"
    return None if found is None else found[0].by
