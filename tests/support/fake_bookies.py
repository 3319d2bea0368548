"""Bookies that answer reads at once, out of a table; they run the machines that ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bkctl.client.machine import Answered, Event, Finished, Machine, Send, Silence, Unanswered
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.protocol.messages import LAST_ADD_CONFIRMED, ReadRequest
from bkctl.replication.fragments import fragments
from bkctl.types import ResultCode


class FakeBookies:
    """What each bookie has; ``silent`` ones do not answer. ``asked`` counts requests by bookie."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int, int], bytes] = {}
        self.silent: set[str] = set()
        self.asked: dict[str, int] = {}

    def fill(self, ledger: int, metadata: LedgerMetadata, last_entry: int | None = None) -> None:
        """Give every bookie of a ledger the entries that belong to it, and one more than is confirmed."""
        access = LedgerAccess.of(ledger, metadata)
        last = metadata.last_entry if last_entry is None else last_entry
        for fragment in fragments(metadata, last):
            for entry in fragment.entries:
                body = access.encode(entry, entry - 1, 10 * (entry + 1), b"ten bytes.")
                for shift in range(metadata.write_quorum):
                    bookie = fragment.bookies[(entry + shift) % metadata.ensemble_size]
                    self.entries[bookie, ledger, entry] = body

    def lose(self, bookie: str, ledger: int, entries: Iterable[int]) -> None:
        """A bookie has lost some entries."""
        for entry in entries:
            del self.entries[bookie, ledger, entry]

    def damage(self, bookie: str, ledger: int, entry: int) -> None:
        """A bookie's copy of an entry has another last byte."""
        body = self.entries[bookie, ledger, entry]
        self.entries[bookie, ledger, entry] = body[:-1] + bytes([body[-1] ^ 1])

    async def run(self, machine: Machine) -> object:
        """Run a machine of the client to its end."""
        waiting = machine.start()
        while waiting:
            instruction = waiting.pop(0)
            if isinstance(instruction, Finished):
                if instruction.error is not None:
                    raise instruction.error
                return instruction.value
            if isinstance(instruction, Send):
                await asyncio.sleep(0)
                waiting += machine.on_event(self._answer(instruction))
        raise AssertionError("the machine waits for nothing")

    def _answer(self, send: Send) -> Event:
        self.asked[send.bookie] = self.asked.get(send.bookie, 0) + 1
        if send.bookie in self.silent:
            return Unanswered(send.token, Silence.TIMEOUT, f"{send.bookie} does not answer")
        request = send.request
        assert isinstance(request, ReadRequest)
        entry = request.entry
        if entry == LAST_ADD_CONFIRMED:
            mine = [
                e for bookie, ledger, e in self.entries if (bookie, ledger) == (send.bookie, request.ledger)
            ]
            entry = max(mine, default=-1)
        body = self.entries.get((send.bookie, request.ledger, entry))
        code = ResultCode.NO_ENTRY if body is None else ResultCode.OK
        return Answered(send.token, request.answer(code, body))
