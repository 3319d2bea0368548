"""The check of fragments: what a bookie does not prove is not present."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from bkctl.client.distribution import Distribution
from bkctl.client.machine import Silence
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import UsageError
from bkctl.protocol.messages import ReadRequest
from bkctl.replication.fragment_check import (
    BadFragment,
    BadIndex,
    CheckSettings,
    Defect,
    FragmentCheckMachine,
    chosen_entries,
)
from bkctl.replication.fragments import StoredEntries, fragments
from bkctl.types import LedgerState, ResultCode
from tests.support.machine_rig import ACCESS, Rig, entry_body, metadata

CLOSED = metadata(state=LedgerState.CLOSED, last_entry=9)


def check(
    settings: CheckSettings | None = None, *, registered: str = "abc", found: LedgerMetadata = CLOSED
) -> Rig:
    parts = list(fragments(found, -1))
    return Rig(FragmentCheckMachine(ACCESS, found, parts, set(registered), Random(1), settings)).start()


def bad_fragments(rig: Rig) -> tuple[BadFragment, ...]:
    return cast("tuple[BadFragment, ...]", rig.value)


def asked(rig: Rig) -> list[tuple[str, int]]:
    found = []
    for send in rig.sends():
        assert isinstance(send.request, ReadRequest)
        assert not send.request.fence
        found.append((send.bookie, send.request.entry))
    return sorted(found)


def answer_all(rig: Rig) -> None:
    while rig.sends():
        request = rig.sends()[0].request
        assert isinstance(request, ReadRequest)
        rig.answer(rig.sends()[0].bookie, entry=request.entry, body=entry_body(request.entry))


def test_the_first_and_the_last_entry_of_each_index_are_read_and_a_good_ledger_has_nothing_bad() -> None:
    rig = check()
    # Ensemble 3, write quorum 2: entry e is on the indices e and e + 1.
    assert asked(rig) == [("a", 0), ("a", 9), ("b", 0), ("b", 9), ("c", 1), ("c", 8)]
    answer_all(rig)
    assert rig.value == ()


@pytest.mark.parametrize(
    ("code", "body", "defect"),
    [
        (ResultCode.NO_ENTRY, None, Defect.MISSING),
        (ResultCode.NO_LEDGER, None, Defect.MISSING),
        (ResultCode.UNKNOWN_LEDGER_STATE, None, Defect.UNKNOWN),
        (ResultCode.IO_ERROR, None, Defect.UNKNOWN),
        (ResultCode.OK, entry_body(8)[:-1] + b"?", Defect.CORRUPT),
        (ResultCode.OK, entry_body(7), Defect.CORRUPT),
        (ResultCode.OK, None, Defect.CORRUPT),
    ],
)
def test_what_is_no_proof_makes_an_index_bad(code: ResultCode, body: bytes | None, defect: Defect) -> None:
    rig = check()
    rig.answer("c", code, entry=8, body=body)
    answer_all(rig)
    (found,) = bad_fragments(rig)
    assert [(bad.index, bad.bookie, bad.defect, bad.entry) for bad in found.bad] == [(2, "c", defect, 8)]


def unanswered(rig: Rig) -> None:
    rig.silent("b", 0, Silence.TIMEOUT)


def overloaded(rig: Rig) -> None:
    rig.answer("b", ResultCode.TOO_MANY_REQUESTS, entry=0)


@pytest.mark.parametrize("fail", [unanswered, overloaded])
def test_a_bookie_that_does_not_answer_is_asked_once_more(fail: Callable[[Rig], None]) -> None:
    for good in (True, False):
        rig = check(CheckSettings(ask_again_ms=500))
        fail(rig)
        answer_all(rig)
        rig.fire()
        assert asked(rig) == [("b", 0)]
        if good:
            answer_all(rig)
            assert rig.value == ()
        else:
            fail(rig)
            (found,) = bad_fragments(rig)
            assert [(bad.index, bad.defect) for bad in found.bad] == [(1, Defect.UNKNOWN)]


def test_without_a_pause_nobody_is_asked_again() -> None:
    rig = check()
    unanswered(rig)
    answer_all(rig)
    assert len(bad_fragments(rig)) == 1


def test_a_bookie_that_is_known_to_be_bad_is_not_asked_again() -> None:
    rig = check(CheckSettings(ask_again_ms=500))
    rig.answer("b", ResultCode.NO_ENTRY, entry=0)
    rig.silent("b", 9)
    answer_all(rig)
    (found,) = bad_fragments(rig)
    assert [(bad.index, bad.defect) for bad in found.bad] == [(1, Defect.MISSING)]


def test_a_bookie_that_is_not_registered_is_bad_and_not_asked_though_it_holds_nothing() -> None:
    empty = metadata(
        state=LedgerState.CLOSED,
        last_entry=9,
        segments=(Segment(0, ("a", "b", "c")), Segment(10, ("a", "b", "d"))),
    )
    rig = check(registered="ab", found=empty)
    assert asked(rig) == [("a", 0), ("a", 9), ("b", 0), ("b", 9)]
    answer_all(rig)
    assert [(one.fragment.position, one.bad) for one in bad_fragments(rig)] == [
        (0, (BadIndex(2, "c", Defect.NOT_REGISTERED),)),
        (1, (BadIndex(2, "d", Defect.NOT_REGISTERED),)),
    ]


def test_reads_are_bounded_and_an_index_that_is_bad_is_read_no_further() -> None:
    rig = check(CheckSettings(percentage=100, reads_max=2))
    read: list[tuple[str, int]] = []
    while rig.sends():
        assert len(rig.sends()) <= 2
        send = rig.sends()[0]
        assert isinstance(send.request, ReadRequest)
        read.append((send.bookie, send.request.entry))
        body = None if send.bookie == "a" else entry_body(send.request.entry)
        code = ResultCode.NO_ENTRY if body is None else ResultCode.OK
        rig.answer(send.bookie, code, entry=send.request.entry, body=body)
    assert [entry for bookie, entry in read if bookie == "a"] == [0, 2]
    assert [entry for bookie, entry in read if bookie == "b"] == [0, 1, 3, 4, 6, 7, 9]
    assert [entry for bookie, entry in read if bookie == "c"] == [1, 2, 4, 5, 7, 8]


@pytest.mark.parametrize(("percentage", "wanted"), [(0, 2), (10, 11), (50, 51), (100, 100)])
def test_a_percentage_of_the_entries_is_chosen_one_of_each_part(percentage: int, wanted: int) -> None:
    (part,) = fragments(metadata(1, 1, 1, state=LedgerState.CLOSED, last_entry=99), -1)
    stored = StoredEntries(Distribution(1, 1, 1), part, 0)
    chosen = list(chosen_entries(stored, percentage, Random(3)))
    assert len(chosen) == len(set(chosen)) == wanted
    assert {0, 99} <= set(chosen) <= set(range(100))


def test_a_ledger_without_entries_needs_no_read() -> None:
    rig = check(found=metadata(state=LedgerState.CLOSED))
    assert rig.value == ()


def test_settings_without_meaning_are_refused() -> None:
    for wrong in ({"percentage": 101}, {"percentage": -1}, {"reads_max": 0}):
        with pytest.raises(UsageError):
            CheckSettings(**wrong)
