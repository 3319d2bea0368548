"""Recovery, step by step as the protocol document has it."""

from __future__ import annotations

import pytest

from bkctl.client.errors import AccessDeniedError, NoSuchLedgerError, RecoveryFailedError
from bkctl.client.machine import (
    ChooseBookies,
    MetadataFailed,
    MetadataIs,
    SetTimer,
    Silence,
    WriteMetadata,
)
from bkctl.client.ops.metadata_update import closed, in_recovery
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult, RecoverySettings
from bkctl.codec.entry import decode_header, payload
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import ConnectionFailedError, NotFoundError, UsageError
from bkctl.metadata.api import VersionConflictError
from bkctl.protocol.messages import HIGH_PRIORITY, AddRequest, ReadRequest
from bkctl.types import DigestType, LedgerState, ResultCode
from tests.support.machine_rig import ACCESS, LEDGER, Rig, entry_body, metadata

NO_ENTRY = ResultCode.NO_ENTRY


class Recovery(Rig):
    machine: RecoveryMachine

    def __init__(
        self, stored: LedgerMetadata | None = None, settings: RecoverySettings | None = None
    ) -> None:
        super().__init__(RecoveryMachine(ACCESS, stored or metadata(), 3, settings))
        self.start()

    @property
    def result(self) -> RecoveryResult:
        assert isinstance(self.value, RecoveryResult)
        return self.value

    def readers_of(self, entry: int) -> list[str]:
        """The bookies that are being asked for an entry."""
        sends = self.sends()
        return [
            send.bookie
            for send in sends
            if isinstance(send.request, ReadRequest) and send.request.entry == entry
        ]

    def fence(self, *newest: int | None) -> None:
        """The bookies' answers to the fencing read: the newest entry each has, None for none."""
        for bookie, entry in zip("abcdefgh", newest, strict=False):
            if entry is None:
                self.answer(bookie, NO_ENTRY, entry=-1)
            else:
                self.answer(bookie, entry=-1, body=entry_body(entry, length=4 * (entry + 1)))


def started(stored: LedgerMetadata | None = None, settings: RecoverySettings | None = None) -> Recovery:
    """IN_RECOVERY is stored."""
    recovery = Recovery(stored, settings)
    entered = recovery.stored(4)
    assert entered.state is LedgerState.IN_RECOVERY
    return recovery


def test_a_captured_run() -> None:
    """E3 Wq2 Aq2, entries 0 to 3: as protocol.md 6.8 has seen it."""
    recovery = started()
    assert recovery.asked() == ["a", "b", "c"]
    request = recovery.sends()[0].request
    assert isinstance(request, ReadRequest)
    assert (request.entry, request.fence, request.priority) == (-1, True, 0)
    assert request.master_key == ACCESS.key
    recovery.answer("a", entry=-1, body=entry_body(3))
    recovery.answer("b", entry=-1, body=entry_body(3))
    # Two of three cover: c can hold no ack quorum by itself. Its answer is waited for no more.
    read = recovery.send_to("a", 3).request
    assert isinstance(read, ReadRequest)
    assert (read.fence, read.priority, read.master_key) == (True, HIGH_PRIORITY, ACCESS.key)
    recovery.answer("a", entry=3, body=entry_body(3, length=28, data=b"entry-3"))
    adds = [send for send in recovery.sends() if isinstance(send.request, AddRequest)]
    assert [send.bookie for send in adds] == ["a", "b"]
    add = adds[0].request
    assert isinstance(add, AddRequest)
    assert (add.recovery, add.priority) == (True, HIGH_PRIORITY)
    header = decode_header(add.body)
    assert (header.entry, header.lac, header.length) == (3, 2, 28)
    assert payload(add.body, DigestType.CRC32C) == b"entry-3"
    # 4 is read without waiting for the adds, and one bookie without it is the end.
    recovery.answer("b", NO_ENTRY, entry=4)
    assert not recovery.of(WriteMetadata)
    recovery.answer("a", entry=3)
    recovery.answer("b", entry=3)
    stored = recovery.stored(5)
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.CLOSED, 3, 28)
    result = recovery.result
    assert (result.lac_found, result.last_entry, result.entries_rewritten) == (2, 3, 1)
    assert (result.adopted, result.missing_at, result.version) == (False, ("b",), 5)


def test_a_closed_ledger_is_finished() -> None:
    recovery = Recovery(closed(metadata(), 5, 50))
    assert recovery.result.adopted
    assert (recovery.result.last_entry, recovery.result.length) == (5, 50)


def test_a_ledger_in_recovery_is_gone_on_with() -> None:
    recovery = Recovery(in_recovery(metadata()))
    assert not recovery.of(WriteMetadata)
    assert recovery.asked() == ["a", "b", "c"]


def test_a_writer_that_closes_first_wins() -> None:
    recovery = Recovery()
    recovery.not_stored(VersionConflictError("changed"))
    recovery.read_brings(closed(metadata(), 1, 8), 9)
    assert (recovery.result.adopted, recovery.result.last_entry) == (True, 1)
    assert recovery.asked() == []


def test_a_segment_that_its_writer_began_meanwhile_is_the_one_that_is_recovered() -> None:
    """What is added again is where the closed ledger says that it is."""
    recovery = Recovery()
    recovery.not_stored(VersionConflictError("changed"))
    segments = (Segment(0, ("a", "b", "c")), Segment(2, ("a", "b", "d")))
    recovery.read_brings(metadata(segments=segments), 9)
    assert recovery.only(WriteMetadata).version == 9
    recovery.stored(10)
    assert recovery.asked() == ["a", "b", "d"]
    recovery.answer("a", entry=-1, body=entry_body(4))
    recovery.answer("d", entry=-1, body=entry_body(4))
    recovery.answer("b", entry=4, body=entry_body(4, length=20))
    assert [send.bookie for send in recovery.sends() if isinstance(send.request, AddRequest)] == ["b", "d"]
    recovery.answer("d", NO_ENTRY, entry=5)
    recovery.answer("b", entry=4)
    recovery.answer("d", entry=4)
    assert recovery.only(WriteMetadata).version == 10
    stored = recovery.stored(11)
    assert (stored.last_entry, stored.segments) == (4, segments)


def test_it_does_not_close_while_a_bookie_is_being_replaced() -> None:
    """The entry has its ack quorum, and a bookie less than the metadata would say."""
    recovery = started(metadata(write=3, ack=2))
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0, length=4))
    recovery.answer("c", ResultCode.IO_ERROR, entry=0)
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    recovery.answer("b", NO_ENTRY, entry=1)
    recovery.answer("c", NO_ENTRY, entry=1)
    assert not recovery.of(WriteMetadata)
    recovery.choose("d")
    recovery.answer("d", entry=0)
    assert recovery.stored(5).segments == (Segment(0, ("a", "b", "d")),)


def test_an_empty_ledger_closes_empty() -> None:
    recovery = started()
    recovery.fence(None, None)
    recovery.answer("a", NO_ENTRY, entry=0)
    stored = recovery.stored(5)
    assert (stored.last_entry, stored.length) == (-1, 0)


def test_the_lac_is_at_least_the_last_segments_first_entry_less_one() -> None:
    segments = (Segment(0, ("a", "b", "c")), Segment(7, ("a", "b", "d")))
    recovery = started(metadata(segments=segments))
    assert recovery.asked() == ["a", "b", "d"]
    recovery.fence(None, None)
    assert recovery.send_to("b", 7)


def test_one_bookie_of_an_ack_quorum_of_one_leaves_it_uncovered() -> None:
    """E3 Wq2 Aq1 with one bookie down: it alone could have acknowledged entries."""
    recovery = started(metadata(3, 2, 1))
    recovery.fence(0, 0)
    recovery.silent("c", -1, Silence.NOT_CONNECTED)
    error = recovery.error
    assert isinstance(error, RecoveryFailedError)
    assert error.exit_code == 3
    assert "bookie c" in str(error)
    assert f"ledger {LEDGER}" in str(error)


def test_errors_do_not_cover() -> None:
    recovery = started()
    for bookie, code in (("a", ResultCode.UNKNOWN_LEDGER_STATE), ("b", ResultCode.IO_ERROR)):
        recovery.answer(bookie, code, entry=-1)
    recovery.answer("c", NO_ENTRY, entry=-1)
    assert isinstance(recovery.error, RecoveryFailedError)


def test_a_bookie_whose_entry_does_not_check_is_fenced_all_the_same() -> None:
    recovery = started()
    recovery.answer("a", entry=-1, body=b"x" * 40)
    recovery.answer("b", NO_ENTRY, entry=-1)
    assert recovery.send_to("a", 0)


def test_the_wrong_password_ends_it_at_once() -> None:
    recovery = started()
    recovery.answer("a", ResultCode.UNAUTHORIZED, entry=-1)
    assert isinstance(recovery.error, AccessDeniedError)


@pytest.mark.parametrize(("write", "ack", "needed"), [(3, 3, 1), (3, 2, 2), (3, 1, 3)])
def test_the_end_is_where_wq_less_aq_plus_one_bookies_say_so(write: int, ack: int, needed: int) -> None:
    recovery = started(metadata(3, write, ack))
    recovery.fence(None, None, None)
    for bookie in "abc"[:needed]:
        assert not recovery.of(WriteMetadata)
        recovery.answer(bookie, ResultCode.NO_LEDGER, entry=0)
    assert recovery.stored(5).last_entry == -1
    assert len(recovery.result.missing_at) == needed


@pytest.mark.parametrize("code", [ResultCode.UNKNOWN_LEDGER_STATE, ResultCode.IO_ERROR, None])
def test_a_bookie_that_does_not_know_is_not_one_without_the_entry(code: ResultCode | None) -> None:
    recovery = started(metadata(3, 3, 2))
    recovery.fence(None, None)
    recovery.answer("a", NO_ENTRY, entry=0)
    if code is None:
        recovery.silent("b", 0)
    else:
        recovery.answer("b", code, entry=0)
    recovery.answer("c", code or ResultCode.TOO_MANY_REQUESTS, entry=0)
    assert isinstance(recovery.error, RecoveryFailedError)
    assert recovery.error.entry == 0


def test_the_digest_is_checked_and_the_next_replica_read() -> None:
    recovery = started()
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(1))
    recovery.answer("b", entry=0, body=entry_body(0))
    assert [send.bookie for send in recovery.sends() if isinstance(send.request, AddRequest)] == ["a", "b"]


def test_a_slow_bookie_is_overtaken() -> None:
    recovery = started()
    recovery.fence(None, None)
    recovery.fire()
    recovery.answer("b", NO_ENTRY, entry=0)
    assert recovery.of(WriteMetadata)


def test_a_bookie_that_has_not_answered_the_fence_is_waited_for_a_moment_and_then_asked_last() -> None:
    """E3 Wq3 Aq2: b and c cover, a hangs; it leads the reads of every third entry."""
    recovery = started(metadata(3, 3, 2))
    recovery.answer("b", NO_ENTRY, entry=-1)
    recovery.answer("c", NO_ENTRY, entry=-1)
    assert recovery.readers_of(0) == ["a"]
    assert recovery.only(SetTimer).seconds == 0.05
    recovery.fire()
    recovery.answer("b", entry=0, body=entry_body(0))
    for entry, first in ((1, "b"), (2, "c"), (3, "b")):
        assert recovery.readers_of(entry) == [first]
        recovery.answer(first, entry=entry, body=entry_body(entry))


def test_a_bookie_that_has_not_answered_the_fence_is_replaced_where_an_add_needs_it() -> None:
    """E3 Wq2 Aq2: entry 1 is on b and c, and c hangs."""
    recovery = started()
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0, length=4))
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    recovery.answer("b", entry=1, body=entry_body(1, length=8))
    assert not recovery.of(ChooseBookies)
    recovery.fire()
    assert recovery.choose("d").replace == (2,)
    recovery.answer("b", entry=1)
    recovery.answer("d", entry=1)
    # It is still the one that has what is read, if anybody has it.
    assert recovery.readers_of(2) == ["c"]
    recovery.fire()
    recovery.answer("a", NO_ENTRY, entry=2)
    stored = recovery.stored(5)
    assert [segment.bookies for segment in stored.segments] == [("a", "b", "c"), ("a", "b", "d")]
    assert (stored.last_entry, stored.segments[1].first_entry) == (1, 1)


def test_a_bookie_that_has_not_answered_the_fence_stays_where_nobody_needs_it() -> None:
    for late in (False, True):
        recovery = started(metadata(3, 2 if late else 3, 2))
        recovery.fence(None, None)
        if late:
            recovery.answer("c", NO_ENTRY, entry=-1)
        recovery.answer("a", entry=0, body=entry_body(0, length=4))
        recovery.answer("b", entry=1, body=entry_body(1, length=8))
        recovery.fire()
        assert not recovery.of(ChooseBookies)


def test_a_bookie_that_answers_the_fence_late_is_as_good_as_the_others() -> None:
    recovery = started(metadata(3, 3, 2))
    recovery.answer("b", NO_ENTRY, entry=-1)
    recovery.answer("c", NO_ENTRY, entry=-1)
    recovery.answer("a", NO_ENTRY, entry=-1)
    recovery.answer("a", entry=0, body=entry_body(0))
    assert recovery.only(SetTimer).seconds == 2.0


def test_a_bookie_that_was_overtaken_is_asked_last_from_then_on() -> None:
    recovery = started(metadata(3, 3, 2))
    recovery.fence(None, None, None)
    recovery.fire()
    recovery.answer("b", entry=0, body=entry_body(0))
    for entry, first in ((1, "b"), (2, "c"), (3, "b")):
        assert recovery.readers_of(entry) == [first]
        recovery.answer(first, entry=entry, body=entry_body(entry))


def test_the_length_is_read_from_the_last_entry_when_nothing_was_recovered() -> None:
    """Java takes the length of entry 4, which is nowhere but on a; here it is entry 3's."""
    recovery = started(metadata(3, 3, 2))
    recovery.answer("a", entry=-1, body=entry_body(4, lac=3, length=1_000))
    recovery.answer("b", entry=-1, body=entry_body(3, length=40))
    # a loses it again in this test: nobody has 4.
    for bookie in ("b", "c"):
        recovery.answer(bookie, NO_ENTRY, entry=4)
    assert recovery.send_to("a", 3)
    recovery.answer("a", entry=3, body=entry_body(3, length=40))
    assert recovery.stored(5).length == 40
    assert recovery.result.length_exact


def test_a_length_that_nobody_can_tell_is_javas() -> None:
    recovery = started(metadata(3, 3, 2))
    recovery.answer("a", entry=-1, body=entry_body(4, lac=3, length=1_000))
    recovery.answer("b", NO_ENTRY, entry=-1)
    for bookie in ("b", "c"):
        recovery.answer(bookie, NO_ENTRY, entry=4)
    for bookie in ("a", "b", "c"):
        recovery.silent(bookie, 3)
    assert recovery.stored(5).length == 1_000
    assert not recovery.result.length_exact


def recovering_one_entry() -> Recovery:
    """Entry 0 was found and is being added again; 1 is not there."""
    recovery = started()
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0, length=4))
    recovery.answer("b", NO_ENTRY, entry=1)
    return recovery


def test_a_bookie_that_fails_a_re_add_is_replaced_in_memory_until_the_close() -> None:
    recovery = recovering_one_entry()
    recovery.silent("b", 0)
    assert recovery.choose("d").replace == (1,)
    assert not recovery.of(WriteMetadata)
    recovery.answer("d", entry=0)
    recovery.answer("a", entry=0)
    stored = recovery.stored(5)
    assert stored.segments == (Segment(0, ("a", "d", "c")),)
    assert (stored.last_entry, stored.length) == (0, 4)


def test_without_a_replacement_an_ack_quorum_is_enough() -> None:
    recovery = started(metadata(3, 3, 2))
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0))
    recovery.silent("c", 0)
    recovery.choose()
    recovery.answer("b", NO_ENTRY, entry=1)
    recovery.answer("c", NO_ENTRY, entry=1)
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    assert recovery.stored(5).last_entry == 0


def test_without_a_replacement_and_an_ack_quorum_it_fails() -> None:
    recovery = recovering_one_entry()
    recovery.silent("b", 0)
    recovery.choose()
    assert isinstance(recovery.error, RecoveryFailedError)
    assert "b failed" in str(recovery.error)
    assert "recover the ledger again" in str(recovery.error)


def test_what_is_added_again_carries_the_lac_that_was_found() -> None:
    """Not this recovery's own: a later one would believe it, and may know fewer of the bookies."""
    recovery = started()
    recovery.fence(None, None)
    for entry, bookies in ((0, "ab"), (1, "bc")):
        recovery.answer(bookies[0], entry=entry, body=entry_body(entry))
        adds = [s.request for s in recovery.sends() if isinstance(s.request, AddRequest)]
        assert [decode_header(add.body).lac for add in adds] == [-1, -1]
        for bookie in bookies:
            recovery.answer(bookie, entry=entry)
    assert recovery.machine.lac == 1


def test_another_recovery_that_closed_first_is_taken_over() -> None:
    recovery = recovering_one_entry()
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    recovery.not_stored(VersionConflictError("changed"))
    theirs = closed(metadata(), -1, 0)
    recovery.read_brings(theirs, 8)
    assert (recovery.result.adopted, recovery.result.metadata) == (True, theirs)
    assert recovery.result.last_entry == -1


def test_a_close_whose_answer_was_lost_is_looked_after() -> None:
    recovery = recovering_one_entry()
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    write = recovery.only(WriteMetadata)
    recovery.not_stored(ConnectionFailedError("no answer"))
    recovery.fire()
    recovery.read_brings(write.metadata, 5)
    assert not recovery.result.adopted
    assert recovery.result.last_entry == 0


def test_entries_are_read_ahead_and_what_is_behind_the_end_is_left() -> None:
    recovery = started(settings=RecoverySettings(read_batch=3))
    recovery.fence(None, None)
    assert recovery.asked()[-3:] == ["a", "b", "c"]
    # 2 is there, but 1 is missing: nothing behind it was acknowledged.
    recovery.answer("c", entry=2, body=entry_body(2))
    recovery.answer("b", NO_ENTRY, entry=1)
    recovery.answer("a", entry=0, body=entry_body(0, length=4))
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    assert recovery.stored(5).last_entry == 0


def test_reading_waits_for_the_adds() -> None:
    recovery = started(settings=RecoverySettings(pending_adds_max=1))
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0))
    assert not [
        send for send in recovery.sends() if isinstance(send.request, ReadRequest) and send.request.entry == 1
    ]
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    assert recovery.send_to("b", 1)


def test_a_dry_run_writes_and_fences_nothing() -> None:
    recovery = Recovery(settings=RecoverySettings(dry_run=True))
    for send in recovery.sends():
        assert isinstance(send.request, ReadRequest)
        assert not send.request.fence
    recovery.answer("a", entry=-1, body=entry_body(2))
    recovery.answer("b", entry=-1, body=entry_body(2))
    recovery.silent("c", -1)
    read = recovery.send_to("c", 2).request
    assert isinstance(read, ReadRequest)
    assert not read.fence
    recovery.answer("c", entry=2, body=entry_body(2, length=12))
    recovery.answer("a", NO_ENTRY, entry=3)
    recovery.choose("d")
    result = recovery.result
    assert (result.lac_found, result.last_entry, result.length, result.entries_rewritten) == (1, 2, 12, 1)
    assert [(one.bookie, one.known, one.last_entry) for one in result.replicas] == [
        ("a", True, 2),
        ("b", True, 2),
        ("c", False, -1),
    ]
    assert result.metadata.state is LedgerState.OPEN
    assert not recovery.of(WriteMetadata)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("found", [False, True])
def test_a_dry_run_asks_who_would_take_what_is_written_again(others: int, found: bool) -> None:
    """One of three tells that nothing else was acknowledged, and an entry needs all three."""
    recovery = Recovery(metadata(write=3, ack=3), RecoverySettings(dry_run=True))
    recovery.answer("a", entry=-1, body=entry_body(3))
    recovery.silent("b", -1)
    recovery.silent("c", -1)
    if not found:
        recovery.answer("a", NO_ENTRY, entry=3)
        recovery.silent("c", 2)
        recovery.answer("a", entry=2, body=entry_body(2, length=12))
        assert recovery.result.entries_rewritten == 0, "nothing has to be written"
        return
    recovery.answer("a", entry=3, body=entry_body(3, length=16))
    for bookie in "bc":
        recovery.silent(bookie, 4)
    recovery.answer("a", NO_ENTRY, entry=4)
    recovery.choose(*"de"[:others])
    if others == 2:
        assert (recovery.result.last_entry, recovery.result.entries_rewritten) == (3, 1)
        return
    assert isinstance(recovery.error, RecoveryFailedError)
    assert f"{'c' if others else 'b, c'} failed, and no other bookie" in str(recovery.error)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_plan_and_a_run_believe_no_lac_that_no_digest_covers(dry_run: bool) -> None:
    """E3 Wq3 Aq2, entries 0 to 9: one bookie names a last add confirmed of 5000 beside its newest entry."""
    stored = metadata(3, 3, 2)
    recovery = Recovery(stored, RecoverySettings(dry_run=True)) if dry_run else started(stored)
    for bookie in "bac":
        if recovery.sends(bookie):
            told = 5000 if bookie == "b" else None
            recovery.answer(bookie, entry=-1, body=entry_body(9, length=40), max_lac=told)
    recovery.answer("a", entry=9, body=entry_body(9, length=40))
    for bookie in "ab" if not dry_run else "":
        recovery.answer(bookie, entry=9)
    recovery.answer("b", NO_ENTRY, entry=10)
    recovery.answer("c", NO_ENTRY, entry=10)
    if not dry_run:
        closing = recovery.stored(5)
        assert (closing.last_entry, closing.length) == (9, 40)
    result = recovery.result
    assert (result.lac_found, result.last_entry, result.length) == (8, 9, 40)
    assert {replica.lac for replica in result.replicas} == {8}


def test_a_deleted_ledger_is_not_found() -> None:
    recovery = Recovery()
    recovery.not_stored(NotFoundError("gone"))
    assert isinstance(recovery.error, NoSuchLedgerError)
    assert recovery.error.exit_code == 6


def test_an_event_after_the_end_is_dropped() -> None:
    recovery = Recovery(closed(metadata(), 5, 50))
    recovery.machine.on_event(MetadataIs(1, metadata(), 1))
    assert recovery.result.last_entry == 5


@pytest.mark.parametrize("bad", [{"read_batch": 0}, {"pending_adds_max": 0}])
def test_settings_that_would_never_end_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        RecoverySettings(**bad)


def test_bookies_that_fail_while_others_are_chosen_are_replaced_next() -> None:
    recovery = recovering_one_entry()
    recovery.silent("b", 0)
    recovery.silent("a", 0)
    assert recovery.choose("d").replace == (1,)
    assert recovery.choose("e").replace == (0,)
    recovery.answer("d", entry=0)
    recovery.answer("e", entry=0)
    assert recovery.stored(5).segments == (Segment(0, ("e", "d", "c")),)


def test_replacements_behind_what_is_recovered_begin_a_segment() -> None:
    recovery = started()
    recovery.fence(None, None)
    recovery.answer("a", entry=0, body=entry_body(0, length=4))
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    recovery.answer("b", entry=1, body=entry_body(1, length=8))
    recovery.answer("c", NO_ENTRY, entry=2)
    recovery.silent("c", 1)
    recovery.choose("d")
    recovery.answer("b", entry=1)
    recovery.answer("d", entry=1)
    stored = recovery.stored(5)
    assert stored.segments == (Segment(0, ("a", "b", "c")), Segment(1, ("a", "b", "d")))
    assert (stored.last_entry, stored.length) == (1, 8)


def test_an_irreplaceable_bookie_is_not_chosen_for_again() -> None:
    recovery = started(metadata(3, 3, 2), RecoverySettings(read_batch=2))
    recovery.fence(None, None)
    for entry, bookie in ((0, "a"), (1, "b")):
        recovery.answer(bookie, entry=entry, body=entry_body(entry))
    recovery.silent("c", 0)
    recovery.choose()
    recovery.silent("c", 1)
    assert not recovery.of(ChooseBookies)
    recovery.silent("b", 1)
    assert recovery.choose().replace == (1,)
    assert isinstance(recovery.error, RecoveryFailedError)


def test_a_re_add_that_is_refused_ends_it() -> None:
    recovery = recovering_one_entry()
    recovery.answer("a", ResultCode.UNAUTHORIZED, entry=0)
    assert isinstance(recovery.error, AccessDeniedError)


def test_without_knowing_who_is_up_nobody_can_be_replaced() -> None:
    recovery = recovering_one_entry()
    recovery.silent("b", 0)
    choice = recovery.only(ChooseBookies)
    recovery.tell(MetadataFailed(choice.token, ConnectionFailedError("the store is gone")))
    assert isinstance(recovery.error, ConnectionFailedError)


def test_a_ledger_that_became_open_again_is_left_alone() -> None:
    recovery = recovering_one_entry()
    recovery.answer("a", entry=0)
    recovery.answer("b", entry=0)
    recovery.not_stored(VersionConflictError("changed"))
    recovery.read_brings(metadata(), 9)
    assert isinstance(recovery.error, RecoveryFailedError)


def test_the_error_is_said_once_with_its_bookie() -> None:
    recovery = started()
    recovery.fence(None, None)
    recovery.silent("a", 0)
    recovery.silent("b", 0)
    assert str(recovery.error) == (
        f"ledger {LEDGER}, entry 0, bookie a: recovery stopped: no answer (timeout): a is gone"
    )
