"""Alarms begin, come back, end, and are bounded; Java's quantiles have an age; the room of a terminal."""

from __future__ import annotations

from dataclasses import replace

from bkctl.admin.top.sample import AutorecoveryState, BookieSample, Bottleneck, Mode, Stage
from bkctl.tui import thresholds
from bkctl.tui.alarms import CLUSTER, AlarmLog
from bkctl.tui.glyphs import UNICODE
from bkctl.tui.history import History
from bkctl.tui.lines import Line, Tone, line_width
from bkctl.tui.models.alarm_lines import alarm_lines
from bkctl.tui.models.room import alarm_rows, room_for
from bkctl.tui.models.sparks import spark
from bkctl.tui.watch import Watch
from tests.support.top_samples import (
    START_MS,
    FakeSource,
    bookie_sample,
    cluster_sample,
    java_sample,
    lost_sample,
    three_bookies,
)


def calm(name: str, moment: int) -> BookieSample:
    return bookie_sample(name, moment, load=0.05)


def slow(name: str, moment: int) -> BookieSample:
    return replace(calm(name, moment), bottleneck=Bottleneck(stage=Stage.JOURNAL_DISK, why="fsync is slow"))


def test_an_alarm_begins_ends_and_is_the_same_again_when_it_comes_back_soon() -> None:
    log = AlarmLog()
    log.add(cluster_sample(0, calm("a", 0)))
    assert log.now() == log.over() == []
    log.add(cluster_sample(5, slow("a", 5)))
    (alarm,) = log.now()
    assert (alarm.subject, alarm.kind, alarm.text) == ("a", "journal_disk", "fsync is slow")
    assert alarm.began_ms == START_MS + 5_000
    assert not alarm.from_start
    log.add(cluster_sample(9, calm("a", 9)))
    assert log.now() == []
    assert [over.ended_ms for over in log.over()] == [START_MS + 9_000]
    log.add(cluster_sample(20, slow("a", 20)))
    assert [(again.began_ms, again.times) for again in log.now()] == [(START_MS + 5_000, 2)]
    log.add(cluster_sample(21, calm("a", 21)))
    log.add(cluster_sample(200, slow("a", 200)))
    assert [alarm.times for alarm in (*log.now(), *log.over())] == [1, 2]


def test_what_is_wrong_from_the_start_is_marked_and_a_lost_bookie_is_lost_since_its_last_answer() -> None:
    log = AlarmLog()
    by_hand = Bottleneck(stage=Stage.READ_ONLY, why="no ledger disk is full")
    read_only = replace(calm("a", 30), mode=Mode.READ_ONLY, bottleneck=by_hand)
    log.add(cluster_sample(30, read_only, lost_sample("b", 10)))
    found = {alarm.subject: alarm for alarm in log.now()}
    assert [alarm.kind for alarm in log.now() if alarm.subject == "a"] == ["read-only"]
    assert found["a"].from_start
    assert not found["b"].from_start
    assert found["b"].began_ms == START_MS + 10_000
    text = "\n".join("".join(span.text for span in line) for line in _lines(log, 40))
    assert "ALARMS  2 now, 0 over" in text
    assert " 30s now  b " in text


def test_of_a_bookie_that_is_silent_alarms_stay() -> None:
    log = AlarmLog()
    log.add(cluster_sample(0, slow("a", 0)))
    log.add(cluster_sample(1, lost_sample("a", 0)))
    assert {alarm.kind for alarm in log.now()} == {"journal_disk", "lost"}
    log.add(cluster_sample(2, calm("a", 2)))
    assert log.now() == []


def test_every_trouble_is_an_alarm() -> None:
    bookie = calm("a", 0)
    full = replace(bookie.disks[0], used_fraction=0.9)
    collector = replace(bookie.gc[0], set_aside_logs=1, held_deletions=3)
    troubled = replace(bookie, failure="fsync failed", disks=(full,), gc=(collector,), adds_refused_per_s=7.0)
    state = AutorecoveryState(enabled=False, ledgers=1, maintenance="ops@here")
    sample = replace(cluster_sample(0, troubled), autorecovery=state, discovery_error="no answer")
    log = AlarmLog()
    log.add(sample)
    assert [(alarm.subject, alarm.kind) for alarm in reversed(log.now())] == [
        (CLUSTER, "metadata store"),
        (CLUSTER, "autorecovery"),
        (CLUSTER, "maintenance"),
        (CLUSTER, "ledgers"),
        ("a", "failed"),
        ("a", "disk /data/a/ledgers"),
        ("a", "adds refused"),
        ("a", "damaged /data/a/ledgers"),
        ("a", "gc /data/a/ledgers"),
    ]


def test_alarms_are_bounded_and_those_that_are_over_go_first() -> None:
    log = AlarmLog(alarms_max=3)
    log.add(cluster_sample(0, *(calm(name, 0) for name in "abcde")))
    log.add(cluster_sample(1, slow("a", 1)))
    log.add(cluster_sample(2, calm("a", 2)))
    log.add(cluster_sample(3, *(slow(name, 3) for name in "bcde")))
    assert [alarm.subject for alarm in log.now()] == ["d", "c", "b"]
    assert log.over() == []
    assert log.left_out == 1
    assert "1 more not remembered" in "".join(span.text for span in _lines(log, 4)[0])


def _lines(log: AlarmLog, moment: int) -> list[Line]:
    return alarm_lines(log, START_MS + moment * 1000, 80, None, UNICODE)


def test_alarm_lines_fit_and_say_how_many_more_there_are() -> None:
    log = AlarmLog()
    log.add(cluster_sample(0, *(slow(f"bookie-{n:03}.a.very.long.name:3181", 0) for n in range(9))))
    lines = alarm_lines(log, START_MS, 80, 5, UNICODE)
    assert len(lines) == 5
    assert all(line_width(line) <= 80 for line in lines)
    assert "7 more" in lines[-1][0].text


def test_the_age_of_javas_quantiles_is_the_time_since_they_changed() -> None:
    watch = Watch(FakeSource(), 1.0)
    for moment, p99_ms in ((0, 2.0), (10, 2.0), (20, 3.0), (25, 3.0)):
        java = replace(java_sample("j", moment), add_p99_ms=p99_ms)
        watch.take(cluster_sample(moment, java, bookie_sample("ours", moment)))
        ages = {bookie.bookie: watch.quantiles_age_ms(bookie) for bookie in watch.shown.bookies}  # type: ignore[union-attr]
        assert ages == {"j": {0: 0, 10: 10_000, 20: 0, 25: 5_000}[moment], "ours": None}


def test_a_sparkline_names_the_window_and_the_greatest_value_that_are_drawn() -> None:
    history = History()
    for moment in range(100):
        history.add(three_bookies(moment))
    values = [900.0] * 60 + [5.0] * 39 + [10.0]
    spans = spark(values, history, 55, UNICODE)
    assert sum(len(span.text) for span in spans) == 55
    assert spans[-1].text.strip() == "39s max 10"
    assert spark(values, history, 55, UNICODE, top=1000.0)[-1].text.strip() == "39s of 1k"
    toned = spark([1.0, 150.0, 2000.0, 1.0], history, 4, UNICODE, threshold=thresholds.ADD_P99)
    assert [(len(span.text), span.tone) for span in toned] == [
        (1, Tone.GOOD),
        (1, Tone.WARNING),
        (1, Tone.BAD),
        (1, Tone.GOOD),
    ]


def test_thresholds_say_their_unit_and_take_the_limit_itself_as_beyond() -> None:
    for limit in thresholds.TABLE:
        assert limit.tone(None) is limit.tone(limit.warning * 0.99) is Tone.PLAIN
        assert limit.tone(limit.warning) is Tone.WARNING
        assert limit.tone(limit.bad) is Tone.BAD
    assert thresholds.SYNC_P99.limits() == "50 ms, 500 ms"
    assert thresholds.DISK.limits() == "85%, 95%"


def test_the_room_of_a_terminal() -> None:
    assert (room_for(80, 24).detail_cells, room_for(160, 50).detail_cells) == (0, 160)
    wide = room_for(200, 24)
    assert wide.beside
    assert wide.list_cells + 1 + wide.detail_cells == 200
    assert alarm_rows(rows_free=5, bookies=4, alarms=9) == 0
    assert alarm_rows(rows_free=20, bookies=8, alarms=9) == 9
    assert alarm_rows(rows_free=30, bookies=1000, alarms=50) == 10
