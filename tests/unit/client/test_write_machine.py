"""The writer: order, acknowledgements, ensemble change, close, explicit LAC, force."""

from __future__ import annotations

import pytest

from bkctl.client.errors import (
    AccessDeniedError,
    AddTimeoutError,
    ClosedDifferentlyError,
    HandleClosedError,
    HandleFencedError,
    NotEnoughBookiesError,
    WriteFailedError,
)
from bkctl.client.machine import ChooseBookies, MetadataIs, SetTimer, Silence, WriteMetadata
from bkctl.client.ops.metadata_update import UpdateOutcome, closed, in_recovery
from bkctl.client.ops.write import Asked, WriteMachine, WriteSettings
from bkctl.codec.digest import master_key
from bkctl.codec.entry import decode_header
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.metadata.api import VersionConflictError
from bkctl.protocol.messages import AddRequest, WriteLacRequest
from bkctl.types import LedgerState, ResultCode
from tests.support.machine_rig import ACCESS, LEDGER, PASSWORD, Rig, metadata


class Writer(Rig):
    """A rig whose machine is a writer; ``tokens`` by entry id."""

    machine: WriteMachine

    def __init__(self, stored: LedgerMetadata | None = None, settings: WriteSettings | None = None) -> None:
        super().__init__(WriteMachine(ACCESS, stored or metadata(), 0, settings))
        self.tokens: dict[int, int] = {}
        self.start()

    def append(self, *payloads: bytes) -> None:
        for payload in payloads:
            appended = self.machine.append(payload)
            self.tokens[appended.token] = appended.entry
            self.carry_out(appended.instructions)

    def close(self) -> None:
        self.carry_out(self.machine.close())

    def asks(self, asked: Asked) -> int:
        self.carry_out(asked.instructions)
        return asked.token

    @property
    def done(self) -> list[int]:
        return [
            self.tokens[one.token] for one in self.notified if one.error is None and one.token in self.tokens
        ]

    @property
    def failed(self) -> dict[int, type]:
        return {self.tokens[one.token]: type(one.error) for one in self.notified if one.error is not None}

    def body_to(self, bookie: str, entry: int) -> bytes:
        request = self.send_to(bookie, entry).request
        assert isinstance(request, AddRequest)
        return request.body


def test_an_entry_goes_to_its_write_set_with_key_digest_lac_and_length() -> None:
    writer = Writer()
    writer.append(b"one", b"three")
    assert writer.asked() == ["a", "b", "b", "c"]
    request = writer.send_to("b", 1).request
    assert isinstance(request, AddRequest)
    assert request.master_key == master_key(PASSWORD)
    assert not request.recovery
    assert request.priority == 0
    header = decode_header(request.body)
    assert (header.ledger, header.entry, header.lac, header.length) == (LEDGER, 1, -1, 8)
    assert ACCESS.digester.checks(request.body)


def test_appends_complete_in_order_whatever_the_order_of_the_answers() -> None:
    writer = Writer()
    writer.append(b"0", b"1", b"2")
    for bookie, entry in (("c", 2), ("a", 2), ("b", 1), ("c", 1), ("a", 0)):
        writer.answer(bookie, entry=entry)
        assert writer.done == []
    assert writer.machine.pending == 3
    writer.answer("b", entry=0)
    assert writer.done == [0, 1, 2]
    assert (writer.machine.lac, writer.machine.length, writer.machine.pending_bytes) == (2, 3, 0)


def test_the_lac_goes_out_with_the_next_entry() -> None:
    writer = Writer()
    writer.append(b"0")
    writer.answer("a")
    writer.answer("b")
    writer.append(b"1")
    assert decode_header(writer.body_to("b", 1)).lac == 0


def failing(settings: WriteSettings | None = None, stored: LedgerMetadata | None = None) -> Writer:
    """Entry 0 is acknowledged, 1 (b, c) and 2 (c, a) are pending, and c has failed 1."""
    writer = Writer(stored, settings)
    writer.append(b"0", b"1", b"2")
    writer.answer("a", entry=0)
    writer.answer("b", entry=0)
    writer.answer("b", entry=1)
    writer.silent("c", 1)
    return writer


def test_a_failed_bookie_is_replaced_from_lac_plus_one_on() -> None:
    writer = failing()
    choice = writer.choose("d")
    assert (choice.count, choice.replace, choice.ensemble) == (1, (2,), ("a", "b", "c"))
    assert choice.exclude == {"a", "b", "c"}
    stored = writer.stored()
    assert stored.segments == (Segment(0, ("a", "b", "c")), Segment(1, ("a", "b", "d")))
    assert (stored.state, stored.c_token) == (LedgerState.OPEN, 0)
    # Both pending entries go to d, only there; a's and b's acknowledgements stay.
    assert [(send.bookie, send.request.entry) for send in writer.sends("d")] == [("d", 1), ("d", 2)]  # type: ignore[attr-defined]
    assert writer.done == [0]
    writer.answer("d", entry=1)
    assert writer.done == [0, 1]


def test_a_segment_without_anything_confirmed_is_replaced() -> None:
    writer = Writer()
    writer.append(b"0")
    writer.silent("a", 0, Silence.NOT_CONNECTED)
    writer.choose("d")
    assert writer.stored().segments == (Segment(0, ("d", "b", "c")),)


def test_nothing_completes_while_the_ensemble_changes() -> None:
    writer = failing()
    writer.append(b"3")
    writer.choose("d")
    write = writer.only(WriteMetadata)
    writer.answer("a", entry=2)
    # c was asked before it was replaced: what it says about 2 counts no more after the change.
    writer.answer("c", entry=2)
    assert writer.done == [0]
    writer.tell(MetadataIs(write.token, write.metadata, 1))
    assert writer.done == [0]
    writer.answer("d", entry=1)
    assert writer.done == [0, 1]
    writer.answer("d", entry=2)
    assert writer.done == [0, 1, 2]


def test_a_late_answer_of_a_replaced_bookie_does_not_count() -> None:
    writer = failing()
    late = writer.send_to("c", 2)
    writer.answer("a", entry=2)
    writer.choose("d")
    writer.stored()
    writer.answer("d", entry=1)
    assert writer.done == [0, 1]
    writer.open.insert(0, late)
    writer.answer("c", entry=2)
    assert writer.done == [0, 1]
    # Nor does its late failure replace anybody.
    assert not writer.of(ChooseBookies)


def test_bookies_that_fail_during_a_change_are_replaced_in_a_second_one() -> None:
    writer = failing()
    writer.silent("a", 2)
    writer.choose("d")
    write = writer.only(WriteMetadata)
    writer.tell(MetadataIs(write.token, write.metadata, 1))
    choice = writer.choose("e")
    assert (choice.replace, choice.ensemble) == ((0,), ("a", "b", "d"))
    assert writer.stored(2).segments[-1] == Segment(1, ("e", "b", "d"))
    assert {send.bookie for send in writer.sends()} == {"c", "d", "e"}  # c's old one is still out


def test_a_failure_behind_the_quorum_is_mended_with_the_next_append() -> None:
    writer = Writer(metadata(3, 3, 2))
    writer.append(b"0")
    writer.answer("a")
    writer.answer("b")
    writer.answer("c", ResultCode.IO_ERROR)
    assert not writer.of(ChooseBookies)
    writer.append(b"1")
    assert writer.choose("d").replace == (2,)
    assert writer.stored().segments[-1] == Segment(1, ("a", "b", "d"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ResultCode.FENCED, HandleFencedError), (ResultCode.UNAUTHORIZED, AccessDeniedError)],
)
def test_a_refusal_ends_the_handle(code: ResultCode, kind: type) -> None:
    writer = Writer()
    writer.append(b"0", b"1")
    writer.answer("a", code, entry=0)
    assert writer.failed == {0: kind, 1: kind}
    with pytest.raises(kind, match=f"ledger {LEDGER}"):
        writer.machine.append(b"2")
    # What still comes in changes nothing.
    writer.answer("b", entry=0)
    writer.silent("c", 1)
    assert writer.done == []
    assert not writer.of(ChooseBookies)


def test_a_fenced_writer_writes_no_metadata() -> None:
    writer = Writer()
    writer.append(b"0")
    writer.answer("a", ResultCode.FENCED)
    writer.close()
    assert isinstance(writer.error, HandleFencedError)


@pytest.mark.parametrize(
    ("other", "kind"),
    [(in_recovery(metadata()), HandleFencedError), (closed(metadata(), 0, 1), HandleClosedError)],
)
def test_a_change_that_finds_the_ledger_not_open_ends_the_handle(other: LedgerMetadata, kind: type) -> None:
    writer = failing()
    writer.choose("d")
    writer.not_stored(VersionConflictError("changed"))
    writer.read_brings(other, 5)
    assert set(writer.failed.values()) == {kind}
    assert writer.machine.death is not None


def test_a_lost_answer_of_the_store_is_looked_after() -> None:
    writer = failing()
    writer.choose("d")
    write = writer.only(WriteMetadata)
    writer.not_stored(ConnectionFailedError("no answer"))
    writer.fire()
    # The write had been carried out: c is not in the ensemble any more, nothing is written again.
    writer.read_brings(write.metadata, 1)
    assert writer.machine.metadata.segments[-1].bookies == ("a", "b", "d")
    writer.answer("d", entry=1)
    assert writer.done == [0, 1]


def test_without_a_replacement_the_handle_ends() -> None:
    writer = failing()
    writer.choose()
    assert set(writer.failed.values()) == {NotEnoughBookiesError}
    writer.close()
    stored = writer.stored()
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.CLOSED, 0, 1)


def test_what_can_be_replaced_is_and_the_rest_ends_the_handle_when_it_is_needed() -> None:
    writer = Writer()
    writer.append(b"0")
    writer.silent("a", 0)
    writer.silent("b", 0)
    writer.choose("d")
    write = writer.only(WriteMetadata)
    writer.tell(MetadataIs(write.token, write.metadata, 1))
    writer.choose()
    assert writer.failed == {0: NotEnoughBookiesError}


@pytest.mark.parametrize("found", [1, 2])
def test_a_writer_that_is_left_without_an_ack_quorum_ends(found: int) -> None:
    """Its appends would else neither complete nor fail."""
    writer = Writer(metadata(3, 3, 3))
    writer.append(b"0")
    writer.silent("a")
    writer.silent("b")
    writer.silent("c")
    writer.choose("d")
    write = writer.only(WriteMetadata)
    writer.tell(MetadataIs(write.token, write.metadata, 1))
    writer.choose(*"ef"[:found])
    assert writer.stored(2).segments[-1].bookies == ("d", "e", "cf"[found - 1])
    assert writer.failed == ({0: NotEnoughBookiesError} if found == 1 else {})
    if found == 1:
        with pytest.raises(NotEnoughBookiesError):
            writer.append(b"1")
        # What the others say now confirms nothing.
        for bookie in ("d", "e"):
            writer.answer(bookie, entry=0)
        writer.close()
        assert writer.stored(3).last_entry == -1
    else:
        for bookie in ("d", "e", "f"):
            writer.answer(bookie, entry=0)
        assert writer.done == [0]


def test_delayed_changes_happen_only_when_an_append_needs_them() -> None:
    writer = Writer(metadata(3, 3, 2), WriteSettings(delay_ensemble_change=True))
    writer.append(b"0")
    writer.silent("a", 0)
    assert not writer.of(ChooseBookies)
    writer.silent("b", 0)
    assert writer.choose("d", "e").replace == (0, 1)


def test_a_read_only_bookie_is_replaced_at_once_even_when_changes_are_delayed() -> None:
    writer = Writer(metadata(3, 3, 2), WriteSettings(delay_ensemble_change=True))
    writer.append(b"0")
    writer.answer("a", ResultCode.READ_ONLY)
    assert writer.choose("d").replace == (0,)


def test_too_many_changes_end_the_handle() -> None:
    writer = failing(WriteSettings(ensemble_changes_max=0))
    assert set(writer.failed.values()) == {WriteFailedError}


def test_as_many_changes_as_are_allowed_are_made() -> None:
    writer = failing(WriteSettings(ensemble_changes_max=1))
    writer.choose("d")
    writer.stored(7)
    assert not writer.failed
    writer.silent("d", 1)
    assert set(writer.failed.values()) == {WriteFailedError}


def test_each_change_is_made_of_what_the_one_before_has_stored() -> None:
    """The version is what keeps a writer from taking back what a recovery has written."""
    writer = failing()
    writer.choose("d")
    writer.stored(7)
    writer.silent("d", 1)
    writer.choose("e")
    assert writer.only(WriteMetadata).version == 7
    writer.stored(8)
    writer.close()
    assert writer.only(WriteMetadata).version == 8


@pytest.mark.parametrize("fenced", [False, True])
def test_behind_its_end_a_writer_replaces_nobody_and_tells_no_lac(fenced: bool) -> None:
    writer = Writer(settings=WriteSettings(explicit_lac_interval_s=1.0))
    writer.append(b"0", b"1")
    writer.answer("a", entry=0)
    writer.answer("b", entry=0)
    late = writer.send_to("c", 1)
    if fenced:
        writer.answer("b", ResultCode.FENCED, entry=1)
    else:
        writer.close()
    if late not in writer.open:
        writer.open.insert(0, late)
    writer.silent("c", 1)
    assert not writer.of(ChooseBookies)
    for _ in writer.of(SetTimer):
        writer.fire()
    assert not [send for send in writer.sends() if isinstance(send.request, WriteLacRequest)]


def test_an_append_has_its_time() -> None:
    writer = Writer(settings=WriteSettings(add_timeout_s=20.0))
    writer.append(b"0", b"1")
    assert [timer.seconds for timer in writer.of(SetTimer)] == [20.0, 20.0]
    writer.answer("a", entry=0)
    writer.answer("b", entry=0)
    assert len(writer.of(SetTimer)) == 1
    writer.fire()
    assert writer.failed == {1: AddTimeoutError}


# --- close --------------------------------------------------------------------------------------------------


def test_close_fails_what_is_pending_and_stores_the_lac() -> None:
    writer = Writer()
    writer.append(b"zero", b"1")
    writer.answer("a", entry=0)
    writer.answer("b", entry=0)
    writer.close()
    assert writer.failed == {1: HandleClosedError}
    stored = writer.stored(5)
    assert (writer.machine.metadata, writer.machine.version) == (stored, 5)
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.CLOSED, 0, 4)
    assert isinstance(writer.value, UpdateOutcome)
    with pytest.raises(HandleClosedError):
        writer.machine.append(b"2")
    assert writer.machine.close() == []


def test_an_empty_ledger_closes_empty() -> None:
    writer = Writer()
    writer.close()
    stored = writer.stored()
    assert (stored.last_entry, stored.length) == (-1, 0)


def test_a_close_whose_answer_was_lost_succeeds_when_it_is_stored() -> None:
    writer = Writer()
    writer.close()
    write = writer.only(WriteMetadata)
    writer.not_stored(ConnectionFailedError("no answer"))
    writer.fire()
    writer.read_brings(write.metadata, 1)
    assert isinstance(writer.value, UpdateOutcome)


def test_a_ledger_closed_elsewhere_with_another_end_is_an_error() -> None:
    writer = Writer()
    writer.close()
    writer.not_stored(VersionConflictError("changed"))
    writer.read_brings(closed(metadata(), 5, 50), 3)
    assert isinstance(writer.error, ClosedDifferentlyError)
    assert writer.error.exit_code == 4


def test_a_ledger_in_recovery_is_not_closed_by_its_writer() -> None:
    writer = Writer()
    writer.close()
    writer.not_stored(VersionConflictError("changed"))
    writer.read_brings(in_recovery(metadata()), 3)
    assert isinstance(writer.error, HandleFencedError)


def test_a_close_waits_for_the_change_that_is_on_its_way() -> None:
    writer = failing()
    writer.choose("d")
    change = writer.only(WriteMetadata)
    writer.close()
    assert writer.of(WriteMetadata) == [change]
    writer.tell(MetadataIs(change.token, change.metadata, 1))
    stored = writer.stored(2)
    assert stored.segments[-1] == Segment(1, ("a", "b", "d"))
    assert (stored.state, stored.last_entry) == (LedgerState.CLOSED, 0)


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.IN_RECOVERY])
def test_only_an_open_ledger_has_a_writer(state: LedgerState) -> None:
    with pytest.raises(UsageError):
        WriteMachine(ACCESS, metadata(state=state), 0)


# --- explicit LAC and force ---------------------------------------------------------------------------------


def test_the_lac_of_an_idle_writer_is_told_once() -> None:
    writer = Writer(settings=WriteSettings(explicit_lac_interval_s=1.0))
    writer.append(b"0")
    writer.answer("a")
    writer.answer("b")
    writer.fire()
    assert writer.asked() == ["a", "b"]
    request = writer.sends()[0].request
    assert isinstance(request, WriteLacRequest)
    assert decode_explicit_lac(request.body).lac == 0
    assert ACCESS.explicit_lac(request.body) == 0
    writer.answer("a")
    writer.answer("b")
    writer.fire()
    assert writer.asked() == []


def test_a_flush_of_the_lac_says_how_it_ended() -> None:
    writer = Writer()
    writer.append(b"0")
    writer.answer("a")
    writer.answer("b")
    token = writer.asks(writer.machine.flush_lac())
    writer.answer("a", ResultCode.READ_ONLY)
    assert [one.token for one in writer.notified if one.error is not None] == [token]
    again = writer.asks(writer.machine.flush_lac())
    writer.answer("b")
    writer.answer("a")
    writer.answer("b")
    assert (writer.notified[-1].token, writer.notified[-1].value) == (again, 0)
    known = writer.asks(writer.machine.flush_lac())
    assert writer.notified[-1].token == known


def test_with_deferred_sync_only_force_moves_the_lac() -> None:
    writer = Writer(settings=WriteSettings(deferred_sync=True))
    writer.append(b"00", b"1")
    for bookie, entry in (("a", 0), ("b", 0), ("b", 1), ("c", 1)):
        writer.answer(bookie, entry=entry)
    assert (writer.done, writer.machine.lac) == ([0, 1], -1)
    token = writer.asks(writer.machine.force())
    assert writer.asked() == ["a", "b", "c"]
    for bookie in "abc":
        writer.answer(bookie)
    assert (writer.notified[-1].token, writer.notified[-1].value) == (token, 1)
    assert (writer.machine.lac, writer.machine.length) == (1, 3)


def test_with_deferred_sync_no_bookie_is_replaced() -> None:
    writer = Writer(settings=WriteSettings(deferred_sync=True))
    writer.append(b"0")
    writer.silent("a", 0)
    assert writer.failed == {0: WriteFailedError}


def test_a_force_needs_every_bookie() -> None:
    writer = Writer(settings=WriteSettings(deferred_sync=True))
    token = writer.asks(writer.machine.force())
    writer.answer("a")
    writer.silent("b")
    writer.answer("c")
    assert [(one.token, one.error is None) for one in writer.notified] == [(token, False)]


def test_a_force_that_ends_during_the_close_confirms_nothing() -> None:
    writer = Writer(settings=WriteSettings(deferred_sync=True))
    writer.append(b"0")
    for bookie in "ab":
        writer.answer(bookie, entry=0)
    token = writer.asks(writer.machine.force())
    writer.carry_out(writer.machine.close())
    assert writer.only(WriteMetadata).metadata.last_entry == -1
    for bookie in "abc":
        writer.answer(bookie)
    # The ledger is closed in front of the entry: nobody may be told that it is there for good.
    answers = [type(one.error) for one in writer.notified if one.token == token]
    assert answers == [HandleClosedError], "and whoever waits for it is told"
    assert writer.machine.lac == -1
    with pytest.raises(HandleClosedError):
        writer.machine.force()
