"""When bookies that are gone are taken for lost."""

from __future__ import annotations

from bkctl.replication.lost_bookies import LostBookies

A, B, C = "a:3181", "b:3181", "c:3181"
ALL = {A, B, C}


def lost(delay_s: int = 30) -> LostBookies:
    machine = LostBookies(ALL, delay_s)
    assert not machine.bookies_are(ALL, 0)
    return machine


def test_one_that_goes_is_audited_after_the_delay() -> None:
    machine = lost()
    assert not machine.bookies_are(ALL - {A}, 100)
    assert (machine.gone, machine.due_s, machine.delayed) == ({A}, 130, 1)
    assert not machine.time_is(129.9)
    assert machine.time_is(130)
    assert machine.time_is(131)  # until it is done
    machine.begin_audit()
    machine.audited()
    assert not machine.time_is(200)
    assert (machine.gone, machine.due_s) == (frozenset(), None)


def test_one_that_is_back_within_the_delay_costs_nothing() -> None:
    machine = lost()
    machine.bookies_are(ALL - {A}, 100)
    assert not machine.bookies_are(ALL, 120)
    assert (machine.gone, machine.due_s, machine.cancelled) == (frozenset(), None, 1)
    assert not machine.time_is(1000)


def test_a_rolling_restart_within_the_delay_audits_nothing() -> None:
    machine = lost()
    now_s = 0.0
    for bookie in (A, B, C, A, B, C):
        now_s += 10
        assert not machine.bookies_are(ALL - {bookie}, now_s)
        assert not machine.time_is(now_s + 20)
        now_s += 20
        assert not machine.bookies_are(ALL, now_s)
    assert (machine.delayed, machine.cancelled) == (6, 6)


def test_a_restart_whose_next_bookie_goes_as_the_last_one_comes_begins_a_new_delay() -> None:
    machine = lost()
    machine.bookies_are(ALL - {A}, 100)
    assert not machine.bookies_are(ALL - {B}, 120)
    assert (machine.gone, machine.due_s) == ({B}, 150)


def test_two_are_audited_at_once() -> None:
    machine = lost()
    assert machine.bookies_are({C}, 100)
    assert (machine.gone, machine.delayed) == ({A, B}, 0)
    machine = lost()
    assert not machine.bookies_are({B, C}, 100)
    assert machine.bookies_are({C}, 110)
    assert (machine.due_s, machine.cancelled) == (None, 1)


def test_without_a_delay_one_is_audited_at_once() -> None:
    assert lost(0).bookies_are({B, C}, 100)


def test_what_stays_away_is_audited_once_and_again_after_it_was_back() -> None:
    machine = lost(0)
    assert machine.bookies_are({B, C}, 100)
    machine.begin_audit()
    machine.audited()
    assert not machine.bookies_are({B, C}, 110)
    machine.bookies_are(ALL, 120)
    assert machine.bookies_are({B, C}, 130)


def test_an_audit_that_failed_is_still_wanted() -> None:
    machine = lost(0)
    assert machine.bookies_are({B, C}, 100)
    assert machine.begin_audit() == {A}
    assert not machine.time_is(105)
    machine.audit_failed()
    assert machine.time_is(110)


def test_one_that_goes_during_an_audit_has_a_delay_of_its_own() -> None:
    machine = lost()
    machine.bookies_are({B, C}, 100)
    assert machine.time_is(130)
    assert machine.begin_audit() == {A}
    assert not machine.bookies_are({C}, 131)
    assert machine.due_s == 161
    machine.audited()
    assert (machine.gone, machine.due_s) == ({B}, 161)


def test_one_that_goes_during_an_audit_which_fails_has_its_delay_all_the_same() -> None:
    machine = lost()
    machine.bookies_are({B, C}, 100)
    assert machine.time_is(130)
    assert machine.begin_audit() == {A}
    machine.bookies_are({C}, 131)
    machine.audit_failed()
    assert machine.time_is(132)
    assert machine.is_pending
    assert machine.begin_audit() == {A}
    machine.audited()
    assert (machine.gone, machine.due_s) == ({B}, 161)
    assert not machine.time_is(160)
    assert machine.time_is(161)
    assert machine.begin_audit() == {B}


def test_one_that_goes_during_an_audit_of_nobody_which_fails_has_its_delay() -> None:
    machine = lost()
    assert machine.begin_audit() == frozenset()
    machine.bookies_are({B, C}, 100)
    machine.audit_failed()
    assert machine.time_is(101)
    assert machine.begin_audit() == frozenset()
    assert machine.due_s == 130


def test_who_is_up_or_gone_for_a_short_time_is_spared() -> None:
    machine = lost()
    assert machine.spared == ALL
    machine.bookies_are({B, C}, 100)
    assert machine.spared == ALL
    machine.time_is(130)
    machine.begin_audit()
    assert machine.spared == {B, C}
    machine.audited()
    assert machine.spared == {B, C}
    machine.bookies_are(ALL, 140)
    assert machine.spared == ALL


def test_one_that_is_back_before_its_audit_fails_is_not_gone() -> None:
    machine = lost(0)
    machine.bookies_are({B, C}, 100)
    machine.begin_audit()
    machine.bookies_are(ALL, 101)
    machine.audit_failed()
    assert machine.gone == frozenset()


def test_an_audit_that_is_asked_for_during_another_is_made_as_well() -> None:
    machine = lost()
    assert machine.delay_written(30, 100)
    machine.begin_audit()
    machine.audited()
    assert not machine.time_is(101)
    machine.delay_written(30, 102)
    machine.begin_audit()
    assert machine.delay_written(30, 103)
    machine.audited()
    assert machine.time_is(104)


def test_writing_the_delay_anew_audits_at_once() -> None:
    machine = lost()
    assert machine.delay_written(30, 100)
    machine.begin_audit()
    machine.audited()
    assert not machine.delay_written(60, 110)
    assert machine.delay_written(0, 120)


def test_another_delay_moves_an_audit_that_waits() -> None:
    machine = lost()
    machine.bookies_are(ALL - {A}, 100)
    assert not machine.delay_written(300, 110)
    assert (machine.due_s, machine.cancelled, machine.delayed) == (410, 1, 2)
    assert machine.delay_written(300, 120)  # the same again
    assert machine.due_s is None


def test_bookies_that_were_gone_before_are_known_by_their_cookies() -> None:
    machine = LostBookies(ALL, 30)
    assert not machine.bookies_are({B, C}, 5)
    assert machine.due_s == 35
    assert LostBookies(ALL, 30).bookies_are({C}, 5)
