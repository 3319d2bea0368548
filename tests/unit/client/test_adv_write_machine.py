"""The writer who chooses the ids of entries: any order in, the order of ids out, no id twice."""

from __future__ import annotations

import pytest

from bkctl.client.errors import AddTimeoutError, DuplicateEntryError, HandleClosedError, HandleFencedError
from bkctl.client.machine import ChooseBookies
from bkctl.client.ops.metadata_update import UpdateOutcome
from bkctl.client.ops.write import WriteSettings
from bkctl.client.ops.write_adv import AdvWriteMachine
from bkctl.codec.entry import decode_header
from bkctl.errors import UsageError
from bkctl.protocol.messages import AddRequest
from bkctl.types import LedgerState, ResultCode
from tests.support.machine_rig import ACCESS, Rig, metadata


class AdvWriter(Rig):
    """A rig whose machine is a writer of chosen ids."""

    machine: AdvWriteMachine

    def __init__(self, settings: WriteSettings | None = None) -> None:
        super().__init__(AdvWriteMachine(ACCESS, metadata(), 0, settings))
        self.tokens: dict[int, int] = {}
        self.start()

    def append(self, *entries: int) -> None:
        for entry in entries:
            appended = self.machine.append_at(entry, b"x" * (entry + 1))
            assert appended.entry == entry
            self.tokens[appended.token] = entry
            self.carry_out(appended.instructions)

    def acknowledge(self, *entries: int) -> None:
        """By every bookie that was sent them."""
        for entry in entries:
            for send in [one for one in self.sends() if getattr(one.request, "entry", None) == entry]:
                self.answer(send.bookie, entry=entry)

    @property
    def done(self) -> list[int]:
        return [self.tokens[one.token] for one in self.notified if one.error is None]

    @property
    def failed(self) -> dict[int, type]:
        return {self.tokens[one.token]: type(one.error) for one in self.notified if one.error is not None}

    def header(self, entry: int) -> tuple[int, int]:
        """(LAC, length) in the entry as it was sent."""
        (send, *_) = [one for one in self.sends() if getattr(one.request, "entry", None) == entry]
        assert isinstance(send.request, AddRequest)
        found = decode_header(send.request.body)
        return found.lac, found.length


def test_entries_go_out_at_once_and_complete_in_the_order_of_their_ids() -> None:
    writer = AdvWriter()
    writer.append(2, 0, 3, 1)
    assert {send.request.entry for send in writer.sends()} == {0, 1, 2, 3}  # type: ignore[attr-defined]
    writer.acknowledge(3, 2)
    assert (writer.done, writer.machine.lac, writer.machine.next_entry) == ([], -1, 0)
    writer.acknowledge(0)
    assert (writer.done, writer.machine.lac, writer.machine.next_entry) == ([0], 0, 1)
    writer.acknowledge(1)
    assert (writer.done, writer.machine.lac, writer.machine.next_entry) == ([0, 1, 2, 3], 3, 4)
    assert (writer.machine.pending, writer.machine.pending_bytes) == (0, 0)
    assert writer.machine.length == 1 + 2 + 3 + 4


def test_a_header_counts_what_was_sent_before_and_never_a_lac_past_a_gap() -> None:
    writer = AdvWriter()
    writer.append(5, 0)
    assert writer.header(5) == (-1, 6)
    assert writer.header(0) == (-1, 7)
    writer.acknowledge(5, 0)
    writer.append(7)
    assert writer.header(7) == (0, 15)


def test_an_id_is_used_once() -> None:
    writer = AdvWriter()
    writer.append(1, 0)
    for entry in (0, 1):
        with pytest.raises(DuplicateEntryError, match=f"ledger 42, entry {entry}"):
            writer.machine.append_at(entry, b"again")
    writer.acknowledge(0, 1)
    for entry in (0, 1):
        with pytest.raises(DuplicateEntryError):
            writer.machine.append_at(entry, b"again")
    writer.append(2)
    assert not writer.failed


@pytest.mark.parametrize("entry", [-1, 2**63 - 1, 2**64])
def test_what_is_no_id(entry: int) -> None:
    with pytest.raises(UsageError, match=f"{entry} is no entry id"):
        AdvWriter().machine.append_at(entry, b"x")


def test_it_has_no_next_id_of_its_own() -> None:
    with pytest.raises(UsageError, match="give one"):
        AdvWriter().machine.append(b"x")


def test_a_close_fails_what_lies_above_a_gap() -> None:
    writer = AdvWriter()
    writer.append(0, 1, 3, 4)
    writer.acknowledge(0, 1, 3, 4)
    assert writer.done == [0, 1]
    writer.carry_out(writer.machine.close())
    assert writer.failed == {3: HandleClosedError, 4: HandleClosedError}
    stored = writer.stored()
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.CLOSED, 1, 3)
    assert isinstance(writer.value, UpdateOutcome)


def test_a_failed_bookie_is_replaced_from_lac_plus_one_on_whatever_the_order_was() -> None:
    writer = AdvWriter()
    writer.append(0)
    writer.acknowledge(0)
    writer.append(4, 2, 1)
    writer.acknowledge(4)
    writer.silent("c", entry=1)
    assert writer.only(ChooseBookies).replace == (2,)
    writer.choose("z")
    stored = writer.stored()
    assert [(one.first_entry, one.bookies) for one in stored.segments] == [
        (0, ("a", "b", "c")),
        (1, ("a", "b", "z")),
    ]
    assert {send.request.entry for send in writer.sends("z")} == {1, 2, 4} - {3}  # type: ignore[attr-defined]
    writer.acknowledge(1, 2, 4)
    assert (writer.done, writer.machine.lac) == ([0, 1, 2], 2)
    writer.append(3)
    writer.acknowledge(3)
    assert writer.done == [0, 1, 2, 3, 4]


def test_a_fence_fails_everything_that_is_pending() -> None:
    writer = AdvWriter()
    writer.append(3, 1)
    writer.answer("a", ResultCode.FENCED, entry=3)
    assert writer.failed == dict.fromkeys((1, 3), HandleFencedError)
    with pytest.raises(HandleFencedError):
        writer.machine.append_at(0, b"x")


def test_the_time_of_an_entry_that_only_waits_for_a_gap_is_not_over() -> None:
    writer = AdvWriter(WriteSettings(add_timeout_s=5))
    writer.append(1)
    writer.acknowledge(1)
    writer.fire()
    assert writer.machine.death is None
    writer.append(0)
    writer.tell_timers()
    assert writer.failed == dict.fromkeys((0, 1), AddTimeoutError)


def test_a_time_that_was_over_in_front_of_a_gap_runs_again_when_the_quorum_is_lost() -> None:
    """The bookies that had it were replaced: now it waits for one of its own, and not for ever."""
    writer = AdvWriter(WriteSettings(add_timeout_s=5))
    writer.append(1)
    writer.acknowledge(1)
    writer.fire()
    writer.append(0)
    writer.silent("b", entry=0)
    writer.choose("z")
    writer.stored()
    assert [send.request.entry for send in writer.sends("z")] == [0, 1]  # type: ignore[attr-defined]
    writer.acknowledge(0)
    assert (writer.done, writer.machine.pending) == ([0], 1)
    writer.fire()
    assert writer.failed == {1: AddTimeoutError}
