"""One marked ledger from its lock to the end of the work on it.

The mark is deleted only with the version that was taken: a ledger marked again since stays marked. A ledger
that could not be repaired keeps its lock for a while, so that no other worker tries the same in vain; the
lock is given back when that time is over, or at once when a bookie comes that could change the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.autorecovery_api import Taken, Underreplication
from bkctl.replication.errors import LockLostError
from bkctl.replication.ledger_repair import LedgerRepair
from bkctl.replication.steps import Steps
from bkctl.replication.verdict import Verdict

_Value = TypeVar("_Value")

#: The pause after a call of the store that had no answer; doubled each time, up to the longest.
_PAUSE_S = 0.5
_PAUSE_MAX_S = 30.0


class MarkedLedger:
    """The work on a ledger that was taken. ``may_write`` is False once the session of the lock has ended."""

    def __init__(
        self,
        taken: Taken,
        underreplication: Underreplication,
        steps: Steps,
        repair: LedgerRepair,
        may_write: Callable[[], bool],
    ) -> None:
        self.taken = taken
        self._underreplication = underreplication
        self._steps = steps
        self._repair = repair
        self._may_write = may_write

    @property
    def has_copied(self) -> bool:
        """Whether at least one fragment was given good copies."""
        return self._repair.has_copied

    async def repair(self) -> Verdict:
        """Repair the ledger, and delete its mark when nothing is left to do; otherwise the lock stays.

        Raises LockLostError when the session of the lock has ended.
        """
        if not await self._answered(partial(self._underreplication.is_held, self.taken)):
            raise LockLostError("the lock on it is lost", ledger=self.taken.ledger)
        verdict = await self._repair.run()
        if verdict.ends_the_work:
            await self._answered(partial(self._underreplication.finish, self.taken))
        return verdict

    async def give_back(self) -> None:
        """Give the lock back, unless it is lost already."""
        try:
            await self._answered(partial(self._underreplication.release, self.taken))
        except LockLostError:
            return

    async def _answered(self, call: Callable[[], _Value]) -> _Value:
        """Return what the store says, however often it must be asked; each of these calls may be repeated."""
        pause_s = _PAUSE_S
        while True:
            if not self._may_write():
                raise LockLostError("the lock on it is lost", ledger=self.taken.ledger)
            try:
                return await self._steps.call(call)
            except ConnectionFailedError:
                await self._steps.pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
