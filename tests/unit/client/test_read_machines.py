"""Reads of entries, of the LAC, and long polls."""

from __future__ import annotations

import pytest

from bkctl.client.errors import (
    AccessDeniedError,
    BookieRefusalError,
    DigestMismatchError,
    NoAnswerError,
    NoSuchEntryError,
    TooFewAnswersError,
)
from bkctl.client.machine import SetTimer
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.client.ops.read import (
    ReadMachine,
    ReadResult,
    ReadSettings,
    Speculation,
    StickyIndex,
    read_order,
)
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine, TryReadLacMachine
from bkctl.client.ops.tail import TailMachine, TailResult
from bkctl.codec.explicit_lac import ExplicitLac, encode_explicit_lac
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import UsageError
from bkctl.protocol.messages import ReadRequest
from bkctl.types import DigestType, ResultCode
from tests.support.machine_rig import ACCESS, LEDGER, PASSWORD, Rig, entry_body, metadata


def reading(
    first: int,
    last: int,
    stored: LedgerMetadata | None = None,
    *,
    lac: int = 99,
    sticky: StickyIndex | None = None,
    settings: ReadSettings | None = None,
) -> Rig:
    machine = ReadMachine(
        ACCESS, stored or metadata(), first, last, lac=lac, sticky=sticky, settings=settings
    )
    return Rig(machine).start()


def entries(rig: Rig) -> list[int]:
    assert isinstance(rig.value, ReadResult)
    return [found.entry for found in rig.value.entries]


def test_entries_come_in_order_whatever_the_order_of_the_answers() -> None:
    rig = reading(0, 2)
    assert rig.asked() == ["a", "b", "c"]
    request = rig.sends()[0].request
    assert isinstance(request, ReadRequest)
    assert (request.fence, request.priority, request.master_key) == (False, 0, None)
    for bookie, entry in (("c", 2), ("a", 0), ("b", 1)):
        rig.answer(bookie, body=entry_body(entry, data=b"%d" % entry), max_lac=entry + 5)
    assert entries(rig) == [0, 1, 2]
    assert isinstance(rig.value, ReadResult)
    assert rig.value.max_lac == 7
    assert rig.value.entries[1] == LedgerEntry(LEDGER, 1, 0, 0, b"1", "b")


def test_a_range_over_two_segments_is_read_where_each_entry_is() -> None:
    stored = metadata(segments=(Segment(0, ("a", "b", "c")), Segment(1, ("d", "e", "f"))))
    rig = reading(0, 2, stored)
    assert rig.asked() == ["a", "e", "f"]


def test_only_so_many_entries_are_read_at_once() -> None:
    rig = reading(0, 9, settings=ReadSettings(parallel_max=2))
    assert len(rig.sends()) == 2
    rig.answer("a", body=entry_body(0))
    assert len(rig.sends()) == 2


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"short",
        entry_body(1),
        entry_body(0)[:-1] + b"X",
        LedgerAccess(LEDGER + 1, DigestType.CRC32C, PASSWORD).encode(0, -1, 4, b"data"),
        LedgerAccess(LEDGER, DigestType.CRC32, PASSWORD).encode(0, -1, 4, b"data"),
        None,
    ],
)
def test_a_copy_that_does_not_check_is_that_bookies_error(bad: bytes | None) -> None:
    rig = reading(0, 0)
    rig.answer("a", body=bad)
    rig.answer("b", body=entry_body(0))
    assert entries(rig) == [0]
    rig = reading(0, 0)
    rig.answer("a", body=bad)
    rig.answer("b", body=bad)
    assert isinstance(rig.error, DigestMismatchError)
    assert (rig.error.exit_code, rig.error.bookie, rig.error.entry) == (1, "a", 0)


def test_no_such_entry_needs_every_bookie_to_say_so() -> None:
    rig = reading(0, 0)
    rig.answer("a", ResultCode.NO_ENTRY)
    rig.answer("b", ResultCode.NO_LEDGER)
    assert isinstance(rig.error, NoSuchEntryError)
    assert rig.error.exit_code == 6
    for first, second in (("silent", ResultCode.NO_ENTRY), ("missing", ResultCode.UNKNOWN_LEDGER_STATE)):
        rig = reading(0, 0)
        if first == "silent":
            rig.silent("a")
        else:
            rig.answer("a", ResultCode.NO_ENTRY)
        rig.answer("b", second)
        assert isinstance(rig.error, NoAnswerError | BookieRefusalError)


def test_a_read_up_to_an_error_has_what_stands_before_it() -> None:
    machine = ReadMachine(ACCESS, metadata(1, 1, 1), 0, 5, lac=5, up_to_error=True)
    rig = Rig(machine).start()
    rig.answer("a", entry=4, body=entry_body(4))
    rig.answer("a", ResultCode.NO_ENTRY, entry=3)
    rig.answer("a", entry=0, body=entry_body(0))
    # An earlier one fails as well; what stands behind it does not matter any more.
    rig.answer("a", ResultCode.IO_ERROR, entry=2)
    assert rig.end is None, "1 may be there"
    rig.answer("a", entry=1, body=entry_body(1))
    assert entries(rig) == [0, 1]
    assert isinstance(rig.value, ReadResult)
    assert isinstance(rig.value.error, BookieRefusalError)
    assert rig.value.error.entry == 2


def test_a_read_up_to_an_error_may_have_nothing_and_has_none_where_all_is_there() -> None:
    rig = Rig(ReadMachine(ACCESS, metadata(1, 1, 1), 3, 4, lac=9, up_to_error=True)).start()
    rig.answer("a", ResultCode.NO_ENTRY, entry=3)
    assert entries(rig) == []
    rig = Rig(ReadMachine(ACCESS, metadata(1, 1, 1), 3, 4, lac=9, up_to_error=True)).start()
    for entry in (4, 3):
        rig.answer("a", entry=entry, body=entry_body(entry))
    assert isinstance(rig.value, ReadResult)
    assert (entries(rig), rig.value.error) == ([3, 4], None)


def test_a_refused_read_names_the_bookie_and_its_code() -> None:
    rig = reading(0, 0)
    rig.answer("a", ResultCode.IO_ERROR)
    rig.silent("b")
    error = rig.error
    assert isinstance(error, BookieRefusalError)
    assert (error.code, error.bookie, error.exit_code) == (ResultCode.IO_ERROR, "a", 5)
    assert "EIO" in str(error)


def test_the_next_bookie_is_asked_early_once_an_interval() -> None:
    rig = reading(0, 0, metadata(3, 3, 2))
    assert rig.asked() == ["a"]
    assert rig.only(SetTimer).seconds == 2.0
    rig.fire()
    rig.fire()
    assert rig.asked() == ["a", "b", "c"]
    assert not rig.of(SetTimer)
    rig.answer("c", body=entry_body(0))
    assert entries(rig) == [0]


def test_nobody_is_asked_early_behind_a_bookie_that_answers() -> None:
    rig = reading(0, 3)
    rig.answer("a", body=entry_body(0))
    # a has answered something, so entry 3 is still hoped for.
    rig.tell_timers()
    assert [send.bookie for send in rig.sends() if getattr(send.request, "entry", -1) == 3] == ["a"]
    assert "c" in [send.bookie for send in rig.sends() if getattr(send.request, "entry", -1) == 1]


def test_intervals_grow_up_to_their_bound() -> None:
    speculation = Speculation(1.5, 5.0, 2.0)
    assert [speculation.interval_s(turn) for turn in range(4)] == [1.5, 3.0, 5.0, 5.0]


def test_timers_end_with_the_read() -> None:
    rig = reading(0, 0)
    rig.answer("a", body=entry_body(0))
    assert not rig.of(SetTimer)


@pytest.mark.parametrize(("first", "last", "lac"), [(-1, 0, 5), (3, 2, 5), (0, 6, 5)])
def test_ranges_without_a_meaning_and_unconfirmed_entries_are_refused(
    first: int, last: int, lac: int
) -> None:
    with pytest.raises(UsageError):
        reading(first, last, lac=lac)


def test_unconfirmed_entries_are_read_when_asked_for() -> None:
    machine = ReadMachine(ACCESS, metadata(), 6, 6, lac=5, unconfirmed=True)
    assert Rig(machine).start().asked() == ["a"]


def test_sticky_reads_stay_with_one_bookie_until_it_fails() -> None:
    sticky = StickyIndex()
    rig = reading(0, 2, metadata(3, 3, 2), sticky=sticky)
    assert rig.asked() == ["a", "a", "a"]
    rig.silent("a", 0)
    assert sticky.index == 1
    assert reading(5, 5, metadata(3, 3, 2), sticky=sticky).asked() == ["b"]
    # Where not everybody has everything, there is nothing to stick to.
    assert reading(2, 2, metadata(3, 2, 2), sticky=sticky).asked() == ["c"]


def test_bookies_to_avoid_come_last() -> None:
    assert read_order(metadata(4, 3, 2), 1, avoid=frozenset("bc")) == ["d", "b", "c"]


def test_a_bookie_that_was_overtaken_is_asked_last_until_it_answers() -> None:
    rig = reading(0, 9, metadata(3, 3, 2), settings=ReadSettings(parallel_max=1))
    assert rig.asked() == ["a"]
    rig.fire()
    rig.answer("b", body=entry_body(0))
    rig.answer("b", body=entry_body(1))
    rig.answer("c", body=entry_body(2))
    # a would lead 3.
    assert rig.send_to("b", 3)
    rig.silent("b", 3)
    rig.silent("c", 3)
    rig.answer("a", entry=3, body=entry_body(3))
    # The others are slow now, and it is not.
    assert rig.send_to("a", 4)


def test_metadata_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="ensemble has 3"):
        reading(0, 0, metadata(segments=(Segment(0, ("a", "b")),)))


# --- LAC ----------------------------------------------------------------------------------------------------


def lac_body(lac: int) -> bytes:
    header = encode_explicit_lac(ExplicitLac(LEDGER, lac))
    return header + ACCESS.digester.compute(header, b"")


def test_the_lac_is_the_highest_of_explicit_and_headers() -> None:
    rig = Rig(ReadLacMachine(ACCESS, metadata(3, 3, 1))).start()
    rig.answer("a", body=entry_body(4), lac_body=lac_body(2))
    rig.answer("b", ResultCode.NO_ENTRY)
    rig.answer("c", ResultCode.OK, body=entry_body(1), lac_body=lac_body(9))
    assert isinstance(rig.value, LacResult)
    assert (rig.value.lac, rig.value.last_entry) == (9, 4)


def test_an_explicit_lac_without_an_entry_comes_with_an_error_and_counts() -> None:
    rig = Rig(ReadLacMachine(ACCESS, metadata(3, 2, 2))).start()
    rig.answer("a", ResultCode.IO_ERROR, lac_body=lac_body(5))
    rig.answer("b", ResultCode.NO_ENTRY)
    # a has told its LAC and not whether it has entries: with c it could be an ack quorum.
    rig.answer("c", ResultCode.NO_ENTRY)
    assert isinstance(rig.value, LacResult)
    assert rig.value.lac == 5


def test_an_explicit_lac_that_does_not_check_is_none() -> None:
    assert ACCESS.explicit_lac(lac_body(5)[:-1] + b"x") is None
    assert ACCESS.explicit_lac(b"") is None


def test_a_plain_read_does_not_count_what_does_not_check() -> None:
    rig = Rig(ReadLacMachine(ACCESS, metadata(2, 2, 1), explicit=False)).start()
    rig.answer("a", body=b"y" * 50)
    rig.answer("b", body=entry_body(3))
    assert isinstance(rig.error, TooFewAnswersError)
    assert "bookie a" in str(rig.error)


def test_fencing_by_itself_waits_for_all_and_tells_who_is_fenced() -> None:
    rig = Rig(ReadLacMachine(ACCESS, metadata(), fence=True, wait_all=True)).start()
    rig.answer("a", body=entry_body(7))
    rig.answer("b", ResultCode.UNAUTHORIZED)
    rig.silent("c")
    assert isinstance(rig.value, LacResult)
    assert [(one.bookie, one.known) for one in rig.value.replicas] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert isinstance(rig.value.replicas[1].error, AccessDeniedError)
    assert (rig.value.lac, rig.value.last_entry) == (6, 7)


def test_the_first_new_lac_is_enough_for_a_try() -> None:
    rig = Rig(TryReadLacMachine(ACCESS, metadata(), 3)).start()
    rig.answer("c", body=entry_body(4))
    rig.answer("b", body=entry_body(6))
    assert rig.value == 5


def test_a_try_fails_only_without_any_valid_answer() -> None:
    rig = Rig(TryReadLacMachine(ACCESS, metadata(), 3)).start()
    rig.silent("a")
    rig.answer("b", ResultCode.NO_LEDGER)
    rig.silent("c")
    assert rig.value == 3
    rig = Rig(TryReadLacMachine(ACCESS, metadata(), 3)).start()
    for bookie in "abc":
        rig.silent(bookie)
    assert isinstance(rig.error, NoAnswerError)


# --- long polls ---------------------------------------------------------------------------------------------


def tailing(entry: int = 5, lac: int = 4) -> Rig:
    return Rig(TailMachine(ACCESS, metadata(), entry, lac=lac, timeout_ms=1000)).start()


def test_a_poll_brings_the_entry() -> None:
    rig = tailing()
    request = rig.sends()[0].request
    assert isinstance(request, ReadRequest)
    assert (request.entry, request.previous_lac, request.piggyback, request.timeout_ms) == (-1, 4, True, 1000)
    assert rig.asked() == ["c"]
    rig.answer("c", body=entry_body(5), max_lac=6, of_entry=5)
    assert isinstance(rig.value, TailResult)
    assert rig.value.entry is not None
    assert (rig.value.entry.entry, rig.value.lac) == (5, 6)


def test_a_poll_asks_slow_bookies_last() -> None:
    machine = TailMachine(ACCESS, metadata(), 5, lac=4, timeout_ms=1000, avoid={"c"})
    # c would be the first to have 5.
    assert Rig(machine).start().asked() == ["a"]


def test_a_poll_ends_with_a_lac_that_has_reached_the_entry() -> None:
    rig = tailing()
    rig.answer("c", max_lac=5)
    assert rig.value == TailResult(5)


def test_a_poll_ends_after_e_less_aq_plus_one_empty_answers() -> None:
    rig = tailing()
    rig.answer("c", max_lac=4)
    assert rig.asked() == ["a"]
    rig.answer("a", ResultCode.NO_LEDGER)
    assert rig.value == TailResult(4)


def test_a_poll_of_bookies_that_fail_fails() -> None:
    rig = tailing()
    rig.silent("c")
    rig.answer("a", body=b"z" * 60)
    rig.answer("b", ResultCode.IO_ERROR)
    assert isinstance(rig.error, NoAnswerError)


def test_a_poll_asks_the_next_one_early() -> None:
    rig = tailing()
    assert rig.only(SetTimer).seconds == 1.5
    rig.fire()
    assert rig.asked() == ["c", "a"]


def test_there_is_no_waiting_for_a_confirmed_entry() -> None:
    with pytest.raises(UsageError):
        tailing(entry=4, lac=4)
