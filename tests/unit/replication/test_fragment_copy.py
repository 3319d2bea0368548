"""The copy of a fragment: proved sources, read back, one compare-and-set, and nothing that lowers copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from bkctl.client.distribution import Distribution
from bkctl.client.errors import (
    BookieRefusalError,
    DigestMismatchError,
    NoAnswerError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from bkctl.client.machine import (
    Answered,
    BookiesAre,
    ChooseBookies,
    MetadataFailed,
    ReadMetadata,
    Send,
    SetTimer,
    Silence,
    Unanswered,
    WriteMetadata,
)
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import closed
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import ConnectionFailedError, NotFoundError
from bkctl.metadata.api import VersionConflictError
from bkctl.protocol.messages import AddRequest, ReadRequest, Response
from bkctl.replication.errors import LockLostError, OpenFragmentError
from bkctl.replication.fragment_check import BadFragment, BadIndex, Defect
from bkctl.replication.fragment_copy import CopyFailure, CopyResult, CopySettings, FragmentCopyMachine
from bkctl.replication.fragments import fragments
from bkctl.replication.rate import ByteRate
from bkctl.types import DigestType, LedgerState, ResultCode
from tests.support.machine_rig import ACCESS, LEDGER, PASSWORD, Rig, entry_body, metadata
from tests.support.manual_clock import ManualClock

CLOSED = metadata(3, 2, 2, state=LedgerState.CLOSED, last_entry=9)
TWO = (Segment(0, ("a", "b", "c")), Segment(10, ("a", "b", "d")))

Answer = Callable[[Send], Response | None]


@dataclass
class Copy:
    """A copy over bookies that answer at once; the choice and the metadata's write wait for the test."""

    found: LedgerMetadata = CLOSED
    bad: dict[int, Defect] = field(default_factory=lambda: {2: Defect.NOT_REGISTERED})
    position: int = 0
    lac: int = -1
    settings: CopySettings | None = None
    rate: ByteRate = field(default_factory=lambda: ByteRate(None, ManualClock()))
    may_write: bool = True
    down: set[str] = field(default_factory=set)
    stored: dict[str, dict[int, bytes]] = field(default_factory=dict)
    adds: list[AddRequest] = field(default_factory=list)
    reads: list[tuple[str, int]] = field(default_factory=list)
    most_open: int = 0
    #: What is read right before the metadata are written; None: what was there at the beginning.
    now: LedgerMetadata | None = None
    looked_again: bool = False
    #: Answers of its own to some requests.
    special: Answer = field(default=lambda send: None)
    access: LedgerAccess = ACCESS

    def __post_init__(self) -> None:
        distribution = Distribution.of(self.found)
        for fragment in fragments(self.found, self.lac):
            for entry in fragment.entries:
                for index in distribution.write_set(entry):
                    self.stored.setdefault(fragment.bookies[index], {})[entry] = self.access.encode(
                        entry, entry - 1, 0, b"data"
                    )
        fragment = list(fragments(self.found, self.lac))[self.position]
        bad = [BadIndex(i, fragment.bookies[i], defect) for i, defect in sorted(self.bad.items())]
        self.down |= {one.bookie for one in bad if one.defect is Defect.NOT_REGISTERED}
        machine = FragmentCopyMachine(
            self.access,
            self.found,
            7,
            BadFragment(fragment, tuple(bad)),
            self.rate,
            self.settings,
            lambda: self.may_write,
        )
        self.rig = Rig(machine).start()

    def choose(self, *bookies: str) -> ChooseBookies:
        choice = self.rig.choose(*bookies)
        self.run()
        return choice

    def run(self) -> None:
        while self.rig.sends():
            self.most_open = max(self.most_open, len(self.rig.sends()))
            self.answer(self.rig.sends()[0])
        if not self.looked_again and self.rig.of(ReadMetadata):
            self.looked_again = True
            self.rig.read_brings(self.now or self.found, 7)

    def answer(self, send: Send) -> None:
        special = self.special(send)
        if special is not None:
            self.rig.tell(Answered(send.token, special))
        elif send.bookie in self.down:
            self.rig.tell(Unanswered(send.token, Silence.NOT_CONNECTED, f"{send.bookie} is down"))
        elif isinstance(send.request, AddRequest):
            self.adds.append(send.request)
            self.stored.setdefault(send.bookie, {})[send.request.entry] = send.request.body
            self.rig.tell(Answered(send.token, send.request.answer(ResultCode.OK)))
        else:
            assert isinstance(send.request, ReadRequest)
            assert not send.request.fence
            self.reads.append((send.bookie, send.request.entry))
            body = self.stored.get(send.bookie, {}).get(send.request.entry)
            code = ResultCode.NO_ENTRY if body is None else ResultCode.OK
            self.rig.tell(Answered(send.token, send.request.answer(code, body)))

    @property
    def result(self) -> CopyResult:
        return cast("CopyResult", self.rig.value)


def test_the_entries_of_the_index_are_copied_read_back_and_then_named_in_one_write() -> None:
    copy = Copy()
    choice = copy.choose("d")
    assert (choice.count, choice.ensemble, choice.replace) == (1, ("a", "b", "c"), (2,))
    assert choice.exclude >= {"a", "b", "c"}
    # Index 2 of ensemble 3 and write quorum 2 has the entries 1, 2, 4, 5, 7, 8.
    assert sorted(copy.stored["d"]) == [1, 2, 4, 5, 7, 8]
    assert all(copy.stored["d"][entry] == entry_body(entry) for entry in copy.stored["d"])
    # The fence lets them pass (BK#4163), and a read-only bookie refuses them.
    assert all(add.recovery and not add.high_priority for add in copy.adds)
    assert {entry for bookie, entry in copy.reads if bookie == "d"} == set(copy.stored["d"])
    write = copy.rig.only(WriteMetadata)
    assert write.version == 7
    assert write.metadata == replace(CLOSED, segments=(Segment(0, ("a", "b", "d")),), c_token=0)
    copy.rig.stored(8)
    result = copy.result
    assert (result.replaced, result.failed, result.superseded, result.version) == ({2: "d"}, (), False, 8)
    assert (result.counts.entries_read, result.counts.entries_written) == (6, 6)


def test_nothing_is_written_to_metadata_before_everything_was_read_back() -> None:
    copy = Copy()
    copy.rig.choose("d")
    while copy.rig.sends():
        assert not copy.rig.of(WriteMetadata)
        assert not copy.rig.of(ReadMetadata)
        copy.answer(copy.rig.sends()[0])
    copy.run()
    assert copy.rig.only(WriteMetadata)


def test_two_bad_indices_are_copied_together_and_an_entry_of_both_is_read_once() -> None:
    copy = Copy(
        metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=9),
        {0: Defect.NOT_REGISTERED, 2: Defect.MISSING},
    )
    copy.choose("d", "e")
    assert sorted(copy.stored["d"]) == sorted(copy.stored["e"]) == list(range(10))
    assert [read for read in copy.reads if read[0] not in ("d", "e")] == [("b", e) for e in range(10)]
    assert copy.rig.stored().segments == (Segment(0, ("d", "b", "e")),)
    assert copy.result.replaced == {0: "d", 2: "e"}


def test_an_index_without_entries_needs_no_copy() -> None:
    copy = Copy(metadata(3, 2, 2, state=LedgerState.CLOSED, last_entry=0))
    copy.choose("d")
    assert not copy.reads
    assert copy.rig.stored().segments == (Segment(0, ("a", "b", "d")),)


def test_only_the_one_segment_changes() -> None:
    found = metadata(segments=TWO, state=LedgerState.CLOSED, last_entry=15)
    copy = Copy(found, {0: Defect.NOT_REGISTERED})
    copy.choose("e")
    assert sorted(copy.stored["e"]) == [0, 2, 3, 5, 6, 8, 9]
    assert copy.rig.stored().segments == (Segment(0, ("e", "b", "c")), TWO[1])


def test_an_open_fragment_is_refused_without_a_copy() -> None:
    copy = Copy(metadata(segments=TWO), position=1, lac=12)
    assert isinstance(copy.rig.error, OpenFragmentError)
    assert Copy(metadata(segments=TWO), position=0, lac=12).rig.only(ChooseBookies)


# --- sources ------------------------------------------------------------------------------------------------


def test_a_source_whose_digest_does_not_check_is_none() -> None:
    copy = Copy(metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=2))
    for entry in range(3):
        copy.stored["a"][entry] = entry_body(entry)[:-1] + b"?"
    copy.choose("d")
    assert copy.stored["d"] == {entry: entry_body(entry) for entry in range(3)}


def test_an_entry_that_nobody_proves_leaves_everything_as_it_is() -> None:
    copy = Copy()
    del copy.stored["b"][4]
    copy.choose("d")
    (failed,) = copy.result.failed
    assert (failed.index, failed.bookie, failed.target) == (2, "c", "d")
    assert (failed.failure, failed.entry) == (CopyFailure.NO_SOURCE, 4)
    # The bookie that is down could still have it.
    assert isinstance(failed.error, NoAnswerError)
    assert (copy.result.replaced, copy.result.superseded) == ({}, False)
    assert copy.result.counts.entries_unreadable == 1


def test_an_entry_that_all_replicas_miss_is_told_so() -> None:
    copy = Copy(bad={2: Defect.MISSING})
    del copy.stored["b"][4], copy.stored["c"][4]
    copy.choose("d")
    (failed,) = copy.result.failed
    assert isinstance(failed.error, NoSuchEntryError)
    assert failed.failure is CopyFailure.NO_SOURCE


def test_a_bad_bookie_that_is_up_is_read_last_and_its_good_entries_count() -> None:
    copy = Copy(bad={2: Defect.MISSING})
    del copy.stored["c"][8], copy.stored["b"][4]
    copy.choose("d")
    assert sorted(copy.stored["d"]) == [1, 2, 4, 5, 7, 8]
    assert [entry for bookie, entry in copy.reads if bookie == "c"] == [4]


@pytest.mark.parametrize("defect", [Defect.LEAVING, Defect.MISPLACED, Defect.MISSING])
def test_without_a_digest_a_replica_that_leaves_is_its_successors_source(defect: Defect) -> None:
    """Another one may be damaged, and nothing would show it; one that failed the check is read last."""
    found = replace(CLOSED, digest_type=DigestType.DUMMY)
    copy = Copy(found, bad={2: defect}, access=LedgerAccess(LEDGER, DigestType.DUMMY, PASSWORD))
    copy.choose("d")
    sources = {bookie for bookie, _ in copy.reads if bookie != "d"}
    assert sources == ({"a", "b"} if defect is Defect.MISSING else {"c"})
    with_digests = Copy(bad={2: defect})
    with_digests.choose("d")
    assert {bookie for bookie, _ in with_digests.reads if bookie != "d"} == {"a", "b"}


def test_without_a_digest_a_replica_that_leaves_is_waited_for_however_slow_it_is() -> None:
    found = replace(CLOSED, digest_type=DigestType.DUMMY)
    copy = Copy(
        found,
        bad={2: Defect.LEAVING},
        access=LedgerAccess(LEDGER, DigestType.DUMMY, PASSWORD),
        settings=CopySettings(avoid=frozenset({"c"})),
    )
    copy.rig.choose("d")
    assert (copy.rig.asked(), copy.rig.of(SetTimer)) == (["c"], [])
    # Without an answer of it the others are all that there is.
    copy.rig.silent("c")
    assert copy.rig.asked() == ["b"]
    with_digests = Copy(bad={2: Defect.LEAVING})
    with_digests.rig.choose("d")
    assert with_digests.rig.of(SetTimer)


def test_slow_bookies_are_read_last_and_chosen_last() -> None:
    settings = CopySettings(avoid=frozenset({"a", "d"}))
    copy = Copy(metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=2), settings=settings)
    assert "d" in copy.rig.only(ChooseBookies).exclude
    copy.rig.choose()
    assert "d" not in copy.rig.only(ChooseBookies).exclude
    copy.choose("d")
    assert [bookie for bookie, _ in copy.reads if bookie != "d"] == ["b", "b", "b"]


# --- targets ------------------------------------------------------------------------------------------------


def test_without_a_target_the_index_fails_and_the_others_go_on() -> None:
    bad = {0: Defect.NOT_REGISTERED, 2: Defect.NOT_REGISTERED}
    copy = Copy(metadata(3, 3, 2, state=LedgerState.CLOSED, last_entry=2), bad)
    copy.choose("d")
    assert copy.rig.stored().segments == (Segment(0, ("d", "b", "c")),)
    assert [(one.index, one.failure) for one in copy.result.failed] == [(2, CopyFailure.NO_TARGET)]


def test_a_chosen_member_of_the_ensemble_is_not_taken() -> None:
    copy = Copy()
    copy.choose("b")
    assert [one.failure for one in copy.result.failed] == [CopyFailure.NO_TARGET]


@pytest.mark.parametrize("code", [ResultCode.READ_ONLY, ResultCode.IO_ERROR, ResultCode.TOO_MANY_REQUESTS])
def test_a_target_that_refuses_one_entry_is_not_named(code: ResultCode) -> None:
    copy = Copy()
    copy.special = lambda send: (
        send.request.answer(code)
        if isinstance(send.request, AddRequest) and send.request.entry == 5
        else None
    )
    copy.choose("d")
    (failed,) = copy.result.failed
    assert (failed.failure, failed.target, failed.entry) == (CopyFailure.TARGET_FAILED, "d", 5)
    assert isinstance(failed.error, BookieRefusalError)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (None, NoSuchEntryError),
        (entry_body(5)[:-1] + b"?", DigestMismatchError),
        (entry_body(5, data=b"other"), DigestMismatchError),
    ],
)
def test_a_target_from_which_other_bytes_are_read_back_is_not_named(
    body: bytes | None, error: type[Exception]
) -> None:
    def read_back(send: Send) -> Response | None:
        request = send.request
        if send.bookie == "d" and isinstance(request, ReadRequest) and request.entry == 5:
            return request.answer(ResultCode.NO_ENTRY if body is None else ResultCode.OK, body)
        return None

    copy = Copy(special=read_back)
    copy.choose("d")
    (failed,) = copy.result.failed
    assert failed.failure is CopyFailure.TARGET_FAILED
    assert isinstance(failed.error, error)
    assert copy.result.replaced == {}


def test_a_bookie_that_is_up_is_filled_again_when_nobody_can_take_its_place() -> None:
    """BK#3905: the ensemble is all the bookies that there are."""
    copy = Copy(bad={2: Defect.MISSING}, settings=CopySettings(refillable=frozenset("c")))
    copy.stored["c"] = {1: entry_body(1), 2: entry_body(2)[:-1] + b"?"}
    copy.choose()
    assert sorted(copy.stored["c"]) == [1, 2, 4, 5, 7, 8]
    # What was good there is not written again; the metadata stay.
    assert sorted(add.entry for add in copy.adds) == [2, 4, 5, 7, 8]
    assert (copy.result.refilled, copy.result.replaced, copy.result.version) == ((2,), {}, 7)


def test_a_bookie_that_is_not_registered_or_read_only_is_not_filled() -> None:
    for defect, refillable in ((Defect.NOT_REGISTERED, "c"), (Defect.MISSING, "")):
        copy = Copy(bad={2: defect}, settings=CopySettings(refillable=frozenset(refillable)))
        copy.choose()
        assert [one.failure for one in copy.result.failed] == [CopyFailure.NO_TARGET]


# --- metadata -----------------------------------------------------------------------------------------------


def changed_meanwhile(found: LedgerMetadata) -> Copy:
    copy = Copy()
    copy.choose("d")
    copy.rig.not_stored(VersionConflictError("changed"))
    copy.rig.read_brings(found, 11)
    return copy


def test_a_conflict_reads_again_and_keeps_what_others_wrote() -> None:
    copy = changed_meanwhile(replace(CLOSED, segments=(Segment(0, ("x", "b", "c")),)))
    write = copy.rig.only(WriteMetadata)
    assert (write.version, write.metadata.segments) == (11, (Segment(0, ("x", "b", "d")),))
    copy.rig.stored(12)
    assert copy.result.replaced == {2: "d"}


@pytest.mark.parametrize(
    "found",
    [
        replace(CLOSED, segments=(Segment(0, ("a", "b", "x")),)),
        # It must not stand there twice.
        replace(CLOSED, segments=(Segment(0, ("d", "b", "c")),)),
        replace(CLOSED, segments=(Segment(1, ("a", "b", "c")),)),
        replace(CLOSED, segments=(Segment(0, ("a", "b", "c")), Segment(5, ("a", "b", "c")))),
        replace(CLOSED, last_entry=8),
        replace(CLOSED, state=LedgerState.IN_RECOVERY, last_entry=-1),
    ],
)
def test_nothing_is_written_once_the_segment_is_another(found: LedgerMetadata) -> None:
    copy = changed_meanwhile(found)
    assert (copy.result.replaced, copy.result.superseded) == ({}, True)
    assert (copy.result.metadata, copy.result.version) == (found, 11)


def test_nothing_is_written_once_the_segment_is_gone() -> None:
    copy = Copy(
        replace(CLOSED, segments=(*CLOSED.segments, Segment(5, ("a", "b", "c")))), position=1, now=CLOSED
    )
    copy.choose("d")
    assert copy.rig.of(WriteMetadata) == []
    assert (copy.result.replaced, copy.result.superseded) == ({}, True)


@pytest.mark.parametrize(
    "again",
    [
        replace(CLOSED, length=CLOSED.length + 1),
        replace(CLOSED, last_entry=8),
        replace(CLOSED, password=b"another"),
        replace(CLOSED, ctime_ms=1_700_000_000_000),
        replace(CLOSED, write_quorum=3, ack_quorum=2),
        replace(CLOSED, state=LedgerState.OPEN, last_entry=-1, length=0),
    ],
)
def test_a_ledger_that_was_made_again_under_its_id_keeps_its_metadata(again: LedgerMetadata) -> None:
    """It was closed, too, so that the version is that of the ledger whose entries were copied."""
    copy = Copy(now=again)
    copy.choose("d")
    assert copy.rig.of(WriteMetadata) == []
    assert (copy.result.replaced, copy.result.superseded) == ({}, True)
    assert copy.result.metadata == again


def test_a_writer_that_goes_on_or_a_recovery_that_closes_does_not_stop_the_copy_of_an_earlier_segment() -> (
    None
):
    found = metadata(segments=TWO)
    copy = Copy(found, lac=12)
    copy.choose("e")
    copy.rig.not_stored(VersionConflictError("changed"))
    later = closed(replace(found, segments=(*TWO, Segment(14, ("a", "f", "d")))), 20, 99)
    copy.rig.read_brings(later, 9)
    assert copy.rig.stored(10).segments == (Segment(0, ("a", "b", "e")), *later.segments[1:])
    assert copy.result.replaced == {2: "e"}


def test_a_lost_answer_is_cleared_up_by_a_read() -> None:
    copy = Copy()
    copy.choose("d")
    copy.rig.not_stored(ConnectionFailedError("no answer"))
    copy.rig.fire()
    copy.rig.read_brings(replace(CLOSED, segments=(Segment(0, ("a", "b", "d")),), c_token=0), 8)
    assert (copy.result.replaced, copy.result.superseded) == ({2: "d"}, False)


def test_without_the_lock_nothing_is_written() -> None:
    copy = Copy()
    copy.may_write = False
    copy.choose("d")
    assert isinstance(copy.rig.error, LockLostError)
    assert not copy.rig.of(WriteMetadata)


def test_a_lock_that_is_lost_before_the_second_write_stops_it() -> None:
    copy = Copy()
    copy.choose("d")
    copy.rig.not_stored(VersionConflictError("changed"))
    copy.may_write = False
    copy.rig.read_brings(CLOSED, 8)
    assert isinstance(copy.rig.error, LockLostError)


def test_a_ledger_that_is_deleted_meanwhile_is_told_so() -> None:
    copy = Copy()
    copy.choose("d")
    copy.rig.not_stored(NotFoundError("gone"))
    assert isinstance(copy.rig.error, NoSuchLedgerError)
    assert copy.rig.error.ledger == LEDGER  # type: ignore[attr-defined]


def test_a_choice_that_fails_ends_the_copy() -> None:
    copy = Copy()
    choice = copy.rig.only(ChooseBookies)
    copy.rig.tell(MetadataFailed(choice.token, ConnectionFailedError("away")))
    assert isinstance(copy.rig.error, ConnectionFailedError)


# --- bounds -------------------------------------------------------------------------------------------------


def test_the_window_grows_with_what_is_done_up_to_its_bound() -> None:
    copy = Copy(
        metadata(2, 2, 2, state=LedgerState.CLOSED, last_entry=99),
        {1: Defect.NOT_REGISTERED},
        settings=CopySettings(entries_max=5),
    )
    copy.rig.tell(BookiesAre(copy.rig.only(ChooseBookies).token, ("d",)))
    assert len(copy.rig.sends()) == 1
    copy.run()
    assert copy.most_open == 5
    assert sorted(copy.stored["d"]) == list(range(100))


def test_bytes_under_way_are_bounded() -> None:
    settings = CopySettings(entries_max=50, bytes_max=10_000)
    copy = Copy(
        metadata(2, 2, 2, state=LedgerState.CLOSED, last_entry=99),
        {1: Defect.NOT_REGISTERED},
        settings=settings,
    )
    copy.stored["a"] = {entry: entry_body(entry, data=bytes(2_000)) for entry in range(100)}
    copy.choose("d")
    assert copy.most_open == 4
    assert sorted(copy.stored["d"]) == list(range(100))


def test_the_rate_spreads_the_adds() -> None:
    clock = ManualClock()
    size = len(entry_body(0))
    copy = Copy(rate=ByteRate(size, clock), settings=CopySettings(entries_max=1))
    copy.choose("d")
    waited = 0.0
    while copy.rig.of(SetTimer):
        timer = copy.rig.of(SetTimer)[0]
        clock.advance(timer.seconds)
        waited += timer.seconds
        copy.rig.fire()
        copy.run()
    # Six entries at one a second; what the pause before was worth is in front.
    assert waited == pytest.approx(4.9)
    assert copy.rig.only(WriteMetadata)


def test_a_rate_keeps_no_credit_for_a_long_pause() -> None:
    clock = ManualClock()
    rate = ByteRate(1000, clock)
    clock.advance(3600)
    assert rate.reserve(1000) == 0.0
    assert rate.reserve(1000) == pytest.approx(0.9)
    assert ByteRate(None, clock).reserve(1 << 40) == 0.0
