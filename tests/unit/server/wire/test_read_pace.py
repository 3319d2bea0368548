"""How many reads are joined into one run: many where entries come from memory, none on a slow disk."""

from __future__ import annotations

from bkctl.server.wire.read_pace import FIRST_STEP, FIRST_STEP_MAX, JOINED_ENTRIES_MAX, ReadPace


def paced(seconds: float, entries: int = 10) -> int:
    pace = ReadPace()
    for _ in range(50):
        pace.note(entries, seconds * entries, 100 * entries)
    return pace.joined_max


def test_reads_from_memory_are_joined_as_far_as_an_answer_goes() -> None:
    assert paced(0.000_005) == JOINED_ENTRIES_MAX
    assert paced(0.0) == JOINED_ENTRIES_MAX


def test_a_joined_run_takes_two_milliseconds_at_most() -> None:
    assert paced(0.000_2) in (9, 10)
    assert paced(0.001) in (1, 2)


def test_nothing_is_joined_on_a_disk_with_a_seek_for_each_entry() -> None:
    assert paced(0.01) == 1


def test_one_slow_run_among_many_does_not_end_it() -> None:
    pace = ReadPace()
    for _ in range(50):
        pace.note(100, 0.001, 10_000)
    before = pace.joined_max
    pace.note(100, 0.02, 10_000)
    assert before == JOINED_ENTRIES_MAX
    assert pace.joined_max > 20
    pace.note(0, 5.0, 0)
    assert pace.joined_max > 20, "a run without reads says nothing"


def test_more_entries_are_read_first_where_those_of_late_were_small() -> None:
    pace = ReadPace()
    assert pace.first_step(1 << 20) == FIRST_STEP, "nothing is known yet"
    pace.note(0, 0.0, 0)
    assert pace.first_step(1 << 20) == FIRST_STEP, "still nothing"
    pace.note(100, 0.001, 100 * 1024)
    assert pace.first_step(1 << 20) == FIRST_STEP_MAX
    assert pace.first_step(1024 * FIRST_STEP_MAX) == FIRST_STEP_MAX
    assert pace.first_step(1024 * FIRST_STEP_MAX - 1) == FIRST_STEP_MAX - 1


def test_no_more_is_read_first_than_fits_where_entries_of_late_were_large() -> None:
    pace = ReadPace()
    for _ in range(50):
        pace.note(4, 0.001, 1 << 20)
    assert pace.first_step(1 << 20) == 4
    for _ in range(50):
        pace.note(4, 0.001, 20 << 20)
    assert pace.first_step(1 << 20) == 1
    pace.note(4, 0.001, 0)
    assert pace.first_step(1 << 20) == 1
