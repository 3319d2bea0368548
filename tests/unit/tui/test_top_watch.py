"""What a watch remembers: the past, bounded; the last answers; where a recording stands."""

from __future__ import annotations

import math
from dataclasses import replace

from bkctl.tui.history import History, figures_of
from bkctl.tui.watch import DEPARTED_MS_MAX, Watch
from tests.support.top_samples import (
    FakeReplay,
    FakeSource,
    bookie_sample,
    cluster_sample,
    java_sample,
    lost_sample,
    three_bookies,
)

ADDS = "adds_per_s"


def test_the_past_is_bounded_in_samples_bookies_and_figures() -> None:
    history = History(samples_max=5, bookies_max=2, figures_max=3)
    for moment in range(12):
        history.add(three_bookies(moment))
    assert len(history.series("bookie-1:3181", ADDS)) == 5
    assert len(history.series("bookie-3:3181", ADDS)) == 0
    names = [name for name, _ in figures_of(bookie_sample("b"))]
    assert [len(history.series("bookie-2:3181", name)) for name in names[:4]] == [5, 5, 5, 0]


def test_the_newest_value_is_the_last() -> None:
    history = History()
    for moment in range(3):
        history.add(three_bookies(moment))
    expected = [three_bookies(moment).bookies[0].adds_per_s for moment in range(3)]
    assert [round(value) for value in history.series("bookie-1:3181", ADDS)] == [
        round(value or 0) for value in expected
    ]


def test_a_bookie_that_does_not_answer_leaves_a_gap_and_sums_go_on() -> None:
    history = History()
    first, second = bookie_sample("a", 0), bookie_sample("b", 0)
    history.add(cluster_sample(0, first, second))
    history.add(cluster_sample(1, first, lost_sample("b", 0)))
    history.add(cluster_sample(2, lost_sample("a", 1), lost_sample("b", 0)))
    assert [math.isnan(value) for value in history.series("b", ADDS)] == [False, True, True]
    adds = first.adds_per_s
    assert adds is not None
    assert [round(value) for value in history.total(ADDS)[:2]] == [round(2 * adds), round(adds)]
    assert math.isnan(history.total(ADDS)[2])
    assert math.isnan(history.highest(ADDS)[2])


def test_a_bookie_that_came_late_is_summed_up_where_it_is() -> None:
    history = History()
    history.add(cluster_sample(0, bookie_sample("a", 0)))
    history.add(cluster_sample(1, bookie_sample("a", 0), bookie_sample("b", 0)))
    before, after = history.total(ADDS)
    assert round(after) == round(2 * before)


def test_a_bookie_that_is_watched_no_more_is_forgotten() -> None:
    history = History()
    history.add(cluster_sample(0, bookie_sample("a"), bookie_sample("b")))
    history.add(cluster_sample(1, bookie_sample("a")))
    assert len(history.series("b", ADDS)) == 0
    history.clear()
    assert len(history.series("a", ADDS)) == 0


def test_a_write_cache_without_a_bound_has_no_fullness() -> None:
    assert java_sample("j").write_cache_fullness() is None
    assert bookie_sample("b").write_cache_fullness("/nowhere") is None
    assert 0 < (bookie_sample("b").write_cache_fullness() or 0) < 1


def test_the_last_answer_is_kept_while_a_bookie_is_silent() -> None:
    watch = Watch(FakeSource(), 1.0)
    answered = bookie_sample("a", 3)
    watch.take(cluster_sample(3, answered))
    silent = lost_sample("a", 3)
    watch.take(cluster_sample(8, silent))
    assert watch.last_answer(silent) == answered
    assert watch.silence_ms(silent) == 5000
    assert watch.silence_ms(lost_sample("b", None)) is None


def test_a_bookie_that_is_not_registered_any_more_has_a_row_for_ten_minutes() -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.take(cluster_sample(0, bookie_sample("a", 0), bookie_sample("b", 0)))
    for moment in (1, DEPARTED_MS_MAX // 1000):
        watch.take(cluster_sample(moment, bookie_sample("b", moment)))
        departed = watch.bookie("a")
        assert departed is not None
        assert departed.error == "not registered any more"
        assert watch.silence_ms(departed) == moment * 1000
        assert watch.shown is not None
        assert [bookie.bookie for bookie in watch.shown.bookies] == ["a", "b"]
    watch.take(cluster_sample(DEPARTED_MS_MAX // 1000 + 1, bookie_sample("b", 601)))
    assert watch.bookie("a") is None


def test_one_that_never_answered_leaves_no_row() -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.take(cluster_sample(0, lost_sample("host:8080", None), bookie_sample("b")))
    watch.take(cluster_sample(1, bookie_sample("b", 1)))
    assert watch.bookie("host:8080") is None


def test_while_it_is_paused_the_newest_sample_waits() -> None:
    watch = Watch(FakeSource(), 1.0)
    assert watch.take(three_bookies(0))
    watch.pause(True)
    assert not watch.take(three_bookies(1))
    assert watch.shown == three_bookies(0)
    assert len(watch.history.series("bookie-1:3181", ADDS)) == 2
    watch.pause(False)
    assert watch.shown == three_bookies(1)


def test_a_pause_before_the_first_sample_still_shows_it() -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.pause(True)
    assert watch.take(three_bookies(0))


def test_intervals_go_through_the_steps_from_any_value() -> None:
    watch = Watch(FakeSource(), 3.0)
    assert [watch.change_interval(1), watch.change_interval(1), watch.change_interval(-1)] == [5.0, 10.0, 5.0]
    assert [watch.change_interval(-1) for _ in range(5)] == [2.0, 1.0, 0.5, 0.5, 0.5]
    beyond = Watch(FakeSource(), 0.1)
    assert beyond.change_interval(-1) == 0.1


def test_moving_in_a_recording_has_the_past_of_the_place() -> None:
    watch = Watch(FakeReplay(500), 1.0)
    watch.seek(300)
    assert watch.shown == three_bookies(300)
    assert len(watch.history.series("bookie-1:3181", ADDS)) == 120
    watch.step(1)
    assert len(watch.history.series("bookie-1:3181", ADDS)) == 121
    watch.step(-300)
    assert watch.shown == three_bookies(1)
    assert len(watch.history.series("bookie-1:3181", ADDS)) == 2
    watch.seek(10_000)
    assert watch.shown == three_bookies(499)
    watch.seek(-1)
    assert watch.shown == three_bookies(0)


def test_live_bookies_have_no_places_to_go_to() -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.take(three_bookies(4))
    watch.step(5)
    watch.seek(0)
    assert watch.shown == three_bookies(4)


def test_notices_of_a_sample() -> None:
    watch = Watch(FakeSource(), 1.0)
    assert watch.notices() == ["waiting for the first answer"]
    watch.take(replace(three_bookies(0), discovery_error="gone", notice="the recording has ended"))
    assert watch.notices() == ["metadata store: gone", "the recording has ended"]


def test_a_bookie_that_is_down_is_silent_since_its_last_answer_though_the_source_forgot_it() -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.take(cluster_sample(0, bookie_sample("a", 0)))
    watch.take(cluster_sample(9, lost_sample("a", None, "it has a cookie, so it is down")))
    bookie = watch.bookie("a")
    assert bookie is not None
    assert watch.silence_ms(bookie) == 9_000
    assert [alarm.began_ms for alarm in watch.alarms.now()] == [bookie.answered_at_ms]
