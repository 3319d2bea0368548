"""Model bookies with the replicas of one ledger, and steps that run machines against them at once.

A replica is the bytes that a bookie has, :data:`UNREADABLE` for one that it cannot read; what is not there is
unknown while the bookie has the ledger in limbo. Every add is noted, and :attr:`ReplicaWorld.kill_after` ends
the run behind a number of adds, as a kill does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bkctl.client.distribution import Distribution
from bkctl.client.machine import Answered, Machine, Send, SetTimer, Silence, TimerFired, Unanswered
from bkctl.client.ops.metadata_update import closed
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import RefusedError
from bkctl.metadata.api import RegisteredBookies, StoredLedger
from bkctl.protocol.messages import AddRequest, ReadRequest, Response
from bkctl.replication.fragments import fragments
from bkctl.replication.in_place_repair import InPlaceRepair, InPlaceSettings
from bkctl.replication.rate import ByteRate
from bkctl.replication.repair_outcome import LedgerOutcome
from bkctl.types import LedgerState, ResultCode
from tests.support.machine_rig import LEDGER, Rig, entry_body
from tests.support.manual_clock import ManualClock

_Value = TypeVar("_Value")

UNREADABLE = b""


class Killed(BaseException):
    """The process is gone."""


@dataclass
class ModelReplicas:
    """One bookie. ``whole`` are the entries that metadata give it."""

    entries: dict[int, bytes] = field(default_factory=dict)
    whole: dict[int, bytes] = field(default_factory=dict)
    limbo: bool = False
    fenced: bool = True
    down: bool = False
    silent: bool = False
    read_only: bool = False
    #: Its disk takes no fence.
    cannot_fence: bool = False
    #: A Java bookie: nobody takes a ledger out of limbo while it runs.
    is_java: bool = False
    adds: list[int] = field(default_factory=list)
    refuses: Callable[[int], bool] = field(default=lambda entry: False)

    def answer(self, request: object) -> Response:
        if isinstance(request, AddRequest):
            assert request.recovery, "a copy has to pass the fence"
            if self.read_only:
                return request.answer(ResultCode.READ_ONLY)
            if self.refuses(request.entry):
                return request.answer(ResultCode.IO_ERROR)
            self.adds.append(request.entry)
            self.entries[request.entry] = bytes(request.body)
            return request.answer(ResultCode.OK)
        assert isinstance(request, ReadRequest), request
        if request.fence and self.cannot_fence:
            return request.answer(ResultCode.IO_ERROR, None)
        self.fenced = self.fenced or request.fence
        body = self.entries.get(request.entry)
        if body is None:
            code = ResultCode.UNKNOWN_LEDGER_STATE if self.limbo else ResultCode.NO_ENTRY
            return request.answer(code, None)
        return (
            request.answer(ResultCode.IO_ERROR, None)
            if body == UNREADABLE
            else request.answer(ResultCode.OK, body)
        )


@dataclass
class ReplicaWorld:
    """The metadata of one ledger and its bookies; all of them have everything at first."""

    metadata: LedgerMetadata
    kill_after: int | None = None
    #: The last entry that a recovery takes for confirmed, and does not write again.
    lac_found: int = 9
    bookies: dict[str, ModelReplicas] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        distribution = Distribution.of(self.metadata)
        for fragment in fragments(self.metadata, self.metadata.last_entry):
            for bookie in fragment.bookies:
                self.bookies.setdefault(bookie, ModelReplicas())
            for entry in fragment.entries:
                for index in distribution.write_set(entry):
                    self.bookies[fragment.bookies[index]].whole[entry] = entry_body(entry)
        for model in self.bookies.values():
            model.entries = dict(model.whole)

    def is_whole(self) -> bool:
        return all(
            {entry: model.entries.get(entry) for entry in model.whole} == model.whole
            for model in self.bookies.values()
        )

    def without_good_copy(self) -> set[int]:
        """Entries that no bookie has."""
        every = {entry for model in self.bookies.values() for entry in model.whole}
        good = {
            entry
            for model in self.bookies.values()
            for entry in model.whole
            if model.entries.get(entry) == model.whole[entry]
        }
        return every - good

    # --- steps ----------------------------------------------------------------------------------------------

    async def run(self, machine: Machine) -> object:
        if isinstance(machine, RecoveryMachine):
            self.metadata = closed(self.metadata, 9, 99)
            return RecoveryResult(
                self.metadata,
                1,
                False,
                9,
                99,
                lac_found=self.lac_found,
                entries_rewritten=9 - self.lac_found,
            )
        rig = Rig(machine).start()
        while rig.end is None:
            for one in list(rig.open):
                if rig.end is not None or one not in rig.open:
                    continue
                if isinstance(one, SetTimer):
                    rig.tell(TimerFired(one.token))
                elif isinstance(one, Send):
                    self._answer(rig, one)
        if rig.end.error is not None:
            raise rig.end.error
        return rig.end.value

    def _answer(self, rig: Rig, send: Send) -> None:
        self.asked[send.bookie] += 1
        model = self.bookies.setdefault(send.bookie, ModelReplicas())
        if model.down or model.silent:
            rig.tell(Unanswered(send.token, Silence.TIMEOUT, "nothing was heard of it"))
            return
        answer = model.answer(send.request)
        if (
            self.kill_after is not None
            and sum(len(one.adds) for one in self.bookies.values()) >= self.kill_after
        ):
            self.kill_after = None
            raise Killed
        rig.tell(Answered(send.token, answer))

    async def pause(self, seconds: float) -> None:
        return None

    async def stored(self, ledger: int) -> StoredLedger:
        return StoredLedger(ledger, self.metadata, 1, 0)

    async def registered(self) -> RegisteredBookies:
        up = [name for name, model in self.bookies.items() if not model.down]
        writable = tuple([name for name in up if not self.bookies[name].read_only])
        return RegisteredBookies(writable, tuple([name for name in up if self.bookies[name].read_only]))

    async def call(self, blocking: Callable[[], _Value]) -> _Value:
        return blocking()

    def slow_bookies(self) -> frozenset[str]:
        return frozenset()

    # --- the repair -----------------------------------------------------------------------------------------

    def leave(self, bookie: str, ledger: int) -> None:
        """As the page of a bookie does: it looks for itself."""
        model = self.bookies[bookie]
        assert ledger == LEDGER
        assert self.metadata.state is LedgerState.CLOSED
        if model.is_java:
            raise RefusedError("a Java bookie")
        assert model.fenced, "what was lost may have been its fence"
        assert model.entries.keys() >= model.whole.keys(), "entries are missing"
        model.limbo = False
        self.left.append(bookie)

    async def repair(self, settings: InPlaceSettings | None = None) -> LedgerOutcome:
        rate = ByteRate(None, ManualClock())
        return await InPlaceRepair(LEDGER, self, rate, settings or InPlaceSettings(), self.leave).run()
