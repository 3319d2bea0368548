"""Plays the driver for one machine, by hand: looks at what it asks, answers what the test wants answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from bkctl.client.machine import (
    Answered,
    BookiesAre,
    CancelTimer,
    ChooseBookies,
    Event,
    Finished,
    Instruction,
    Machine,
    MetadataFailed,
    MetadataIs,
    Notify,
    ReadMetadata,
    Send,
    SetTimer,
    Silence,
    TimerFired,
    Unanswered,
    WriteMetadata,
)
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import BkctlError
from bkctl.protocol.messages import AddRequest, ReadLacRequest, ReadRequest, WriteLacRequest
from bkctl.types import DigestType, LedgerState, ResultCode

LEDGER = 42
PASSWORD = b"pw"
ACCESS = LedgerAccess(LEDGER, DigestType.CRC32C, PASSWORD)

_Kind = TypeVar("_Kind")


def metadata(
    ensemble: int = 3,
    write: int = 2,
    ack: int = 2,
    *,
    segments: tuple[Segment, ...] = (),
    state: LedgerState = LedgerState.OPEN,
    last_entry: int = -1,
    length: int = 0,
) -> LedgerMetadata:
    bookies = tuple("abcdefgh"[:ensemble])
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=write,
        ensemble_size=ensemble,
        ack_quorum=ack,
        length=length,
        last_entry=last_entry,
        state=state,
        segments=segments or (Segment(0, bookies),),
        digest_type=DigestType.CRC32C,
        password=PASSWORD,
        c_token=77,
    )


def entry_body(entry: int, lac: int | None = None, length: int = 0, data: bytes = b"data") -> bytes:
    return ACCESS.encode(entry, entry - 1 if lac is None else lac, length, data)


@dataclass
class Rig:
    """``open`` are the instructions that wait for an outcome, oldest first."""

    machine: Machine
    open: list[Instruction] = field(default_factory=list)
    notified: list[Notify] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    end: Finished | None = None

    def start(self) -> Rig:
        self.carry_out(self.machine.start())
        return self

    def carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            assert self.end is None, f"{instruction} after the end"
            if isinstance(instruction, Finished):
                self.end = instruction
            elif isinstance(instruction, Notify):
                self.notified.append(instruction)
            elif isinstance(instruction, CancelTimer):
                self.cancelled.add(instruction.token)
                self.open = [one for one in self.open if one.token != instruction.token]  # type: ignore[union-attr]
            else:
                self.open.append(instruction)

    def tell(self, event: Event) -> None:
        self.open = [one for one in self.open if one.token != event.token]  # type: ignore[union-attr]
        self.carry_out(self.machine.on_event(event))

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [one for one in self.open if isinstance(one, kind)]

    # --- bookies --------------------------------------------------------------------------------------------

    def sends(self, bookie: str | None = None) -> list[Send]:
        return [one for one in self.of(Send) if bookie is None or one.bookie == bookie]

    def asked(self) -> list[str]:
        return [send.bookie for send in self.sends()]

    def send_to(self, bookie: str, entry: int | None = None) -> Send:
        found = [
            send
            for send in self.sends(bookie)
            if entry is None or getattr(send.request, "entry", None) == entry
        ]
        assert found, f"nothing sent to {bookie} for {entry}: {self.open}"
        return found[0]

    def answer(
        self,
        bookie: str,
        code: ResultCode = ResultCode.OK,
        *,
        entry: int | None = None,
        body: bytes | None = None,
        max_lac: int | None = None,
        lac_body: bytes | None = None,
        of_entry: int | None = None,
    ) -> None:
        """Answer the oldest request to ``bookie`` (for ``entry``); ``of_entry`` as a long poll names it."""
        send = self.send_to(bookie, entry)
        request = send.request
        if isinstance(request, ReadRequest):
            response = request.answer(code, body, max_lac=max_lac, entry=of_entry)
            self.tell(Answered(send.token, response))
        elif isinstance(request, ReadLacRequest):
            self.tell(Answered(send.token, request.answer(code, lac_body, body)))
        else:
            assert isinstance(request, AddRequest | WriteLacRequest) or hasattr(request, "answer")
            self.tell(Answered(send.token, request.answer(code)))

    def silent(self, bookie: str, entry: int | None = None, silence: Silence = Silence.TIMEOUT) -> None:
        self.tell(Unanswered(self.send_to(bookie, entry).token, silence, f"{bookie} is gone"))

    # --- the rest -------------------------------------------------------------------------------------------

    def only(self, kind: type[_Kind]) -> _Kind:
        found = self.of(kind)
        assert len(found) == 1, f"{kind.__name__}: {found}"
        return found[0]

    def fire(self) -> None:
        """The oldest timer."""
        self.tell(TimerFired(self.of(SetTimer)[0].token))

    def tell_timers(self) -> None:
        """All that run now."""
        for timer in self.of(SetTimer):
            self.tell(TimerFired(timer.token))

    def choose(self, *bookies: str) -> ChooseBookies:
        choice = self.only(ChooseBookies)
        self.tell(BookiesAre(choice.token, bookies))
        return choice

    def stored(self, version: int = 1) -> LedgerMetadata:
        """The write that waits succeeds."""
        write = self.only(WriteMetadata)
        self.tell(MetadataIs(write.token, write.metadata, version))
        return write.metadata

    def not_stored(self, error: BkctlError) -> None:
        self.tell(MetadataFailed(self.only(WriteMetadata).token, error))

    def read_brings(self, found: LedgerMetadata, version: int) -> None:
        self.tell(MetadataIs(self.only(ReadMetadata).token, found, version))

    @property
    def value(self) -> object:
        assert self.end is not None, f"not finished: {self.open}"
        assert self.end.error is None, self.end.error
        return self.end.value

    @property
    def error(self) -> BkctlError:
        assert self.end is not None, f"not finished: {self.open}"
        assert self.end.error is not None, self.end
        return self.end.error
