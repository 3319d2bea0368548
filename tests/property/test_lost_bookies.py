"""Random comings and goings: when the auditor looks, and that it overlooks nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkctl.replication.lost_bookies import LostBookies

BOOKIES = ("a", "b", "c", "d")
DELAY_S = 10

#: A bookie that comes or goes, or seconds that pass.
STEPS = st.lists(st.one_of(st.sampled_from(BOOKIES), st.integers(1, 12)), max_size=60)


@given(STEPS)
def test_an_audit_has_a_reason_and_nobody_who_stays_away_is_overlooked(steps: list[str | int]) -> None:
    machine = LostBookies(BOOKIES, DELAY_S)
    up = set(BOOKIES)
    gone_since: dict[str, int] = {}
    unaudited: set[str] = set()
    now_s = 0

    def audit_if(wanted: bool) -> None:
        if not wanted:
            return
        waited = max((now_s - gone_since[bookie] for bookie in unaudited), default=DELAY_S)
        assert len(unaudited) > 1 or waited >= DELAY_S
        assert machine.begin_audit() <= unaudited
        machine.audited()
        unaudited.clear()

    assert not machine.bookies_are(up, now_s)
    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                now_s += 1
                audit_if(machine.time_is(now_s))
                late = {bookie for bookie in unaudited if now_s - gone_since[bookie] > DELAY_S}
                assert not late
            continue
        if step in up:
            up.remove(step)
            gone_since[step] = now_s
            unaudited.add(step)
        else:
            up.add(step)
            unaudited.discard(step)
        audit_if(machine.bookies_are(up, now_s))
        assert machine.gone == unaudited
    assert machine.delayed >= machine.cancelled


@given(st.lists(st.tuples(st.sampled_from(BOOKIES), st.integers(0, DELAY_S - 1)), max_size=40))
def test_restarts_one_after_the_other_within_the_delay_are_never_audited(
    restarts: list[tuple[str, int]],
) -> None:
    machine = LostBookies(BOOKIES, DELAY_S)
    now_s = 0
    for bookie, away_s in restarts:
        assert not machine.bookies_are(set(BOOKIES) - {bookie}, now_s)
        now_s += away_s
        assert not machine.time_is(now_s)
        assert not machine.bookies_are(BOOKIES, now_s)
        now_s += 1
        assert not machine.time_is(now_s)
    assert machine.delayed == machine.cancelled == len(restarts)
