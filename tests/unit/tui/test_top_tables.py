"""The cluster's table, directories merged into one, places in a recording, pieces that are drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bkctl.admin.top.sample import Disk, GcState, ReadCacheState, Stage, WriteCacheHalf
from bkctl.commands.top.keys import SAMPLE_SCHEMA
from bkctl.tui import thresholds
from bkctl.tui.app import says_utf8
from bkctl.tui.glyphs import ASCII, UNICODE
from bkctl.tui.help_screen import STAGES
from bkctl.tui.lines import Span, Tone, line_width
from bkctl.tui.models import cluster_rows, detail_lines, health
from bkctl.tui.models.cluster_rows import View
from bkctl.tui.models.merged import merged
from bkctl.tui.seek_text import position_of
from bkctl.tui.watch import Watch
from bkctl.tui.widgets.line_view import changed_cells, joined
from tests.support.top_samples import (
    FakeReplay,
    FakeSource,
    bookie_sample,
    cluster_sample,
    java_sample,
    lost_sample,
)

NAMES = ["a:1", "b:1", "c:1"]


def ordered(*rates: float | None, descending: bool = False) -> list[str]:
    bookies = [replace(bookie_sample(name), adds_per_s=rate) for name, rate in zip(NAMES, rates, strict=True)]
    view = View(sort="adds_per_s", descending=descending)
    return [bookie.bookie for bookie in cluster_rows.visible(bookies, view)]


def test_rows_without_a_value_come_last_either_way_round() -> None:
    assert ordered(3.0, None, 1.0) == ["c:1", "a:1", "b:1"]
    assert ordered(3.0, None, 1.0, descending=True) == ["a:1", "c:1", "b:1"]
    assert ordered(2.0, 2.0, 2.0, descending=True) == NAMES


@pytest.mark.parametrize("column", cluster_rows.COLUMNS, ids=lambda column: column.key)
def test_every_column_sorts_bookies_of_every_kind(column: cluster_rows.Column) -> None:
    bookies = [bookie_sample("b"), java_sample("j"), lost_sample("l", 1), lost_sample("m", None)]
    for descending in (False, True):
        found = cluster_rows.visible(bookies, View(sort=column.key, descending=descending))
        assert sorted(bookie.bookie for bookie in found) == ["b", "j", "l", "m"]


@pytest.mark.parametrize("width", range(72, 220, 7))
def test_rows_and_titles_are_as_wide_as_the_terminal_at_most(width: int) -> None:
    watch = Watch(FakeSource(), 1.0)
    watch.take(
        cluster_sample(9, bookie_sample("x" * 99, 9, load=90_000.0), java_sample("j"), lost_sample("l", 1))
    )
    columns = cluster_rows.columns_for(width)
    assert columns[0].key == "bookie"
    heading = cluster_rows.heading(columns, View(), ASCII)
    lines = [line for _, line in cluster_rows.rows(watch, View(), columns, width, ASCII)]
    assert len(lines) == 3
    assert all(line_width(line) <= max(width, 80) for line in [heading, *lines])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("", ["b", "j", "l"]), ("LOST", ["l"]), ("rw", ["b", "j"]), ("none", ["j"]), ("zzz", [])],
)
def test_filter_looks_at_names_modes_and_bottlenecks(wanted: str, found: list[str]) -> None:
    bookies = [bookie_sample("b", load=2.0), java_sample("j"), lost_sample("l", 1)]
    assert [bookie.bookie for bookie in cluster_rows.visible(bookies, View(filter=wanted))] == found


def test_names_that_are_too_long_lose_what_they_have_in_common() -> None:
    long = [f"bookie-{number}.storage.example:3181" for number in (1, 2, 10)]
    assert list(cluster_rows.short_names(long, 15, "~").values()) == ["bookie-1", "bookie-2", "bookie-10"]
    assert (
        cluster_rows.short_names(["10.0.0.1:3181", "10.0.0.2:3182"], 15, "~")["10.0.0.1:3181"]
        == "10.0.0.1:3181"
    )
    assert (
        cluster_rows.short_names(["one.storage.example:3181"], 10, "~")["one.storage.example:3181"]
        == "one.stora~"
    )
    different = ["alpha.one.example:3181", "beta.two.sample:3182"]
    assert cluster_rows.short_names(different, 10, "~")[different[0]] == "alpha.one~"


def test_modes_and_shares_are_words_not_colours_alone() -> None:
    assert health.mode(bookie_sample("b"))[0] == "rw"
    assert health.mode(lost_sample("b", 1)) == ("LOST", Tone.BAD)
    assert health.mode(replace(bookie_sample("b"), failure="fsync failed")) == ("FAIL", Tone.BAD)
    assert [thresholds.QUEUE.tone(share) for share in (None, 0.1, 0.8, 0.99)] == [
        Tone.PLAIN,
        Tone.PLAIN,
        Tone.WARNING,
        Tone.BAD,
    ]


def test_directories_as_one_are_sums_and_the_worst() -> None:
    bookie = bookie_sample("b")
    assert merged(bookie) == bookie
    halves = tuple(
        WriteCacheHalf(dir=name, bytes=bytes_, bound=100, flushing=flushing)
        for name, bytes_, flushing in (("x", 10, False), ("x", 20, True), ("y", 30, False), ("y", 0, False))
    )
    caches = (ReadCacheState(dir="x", bytes=5, bound=10), ReadCacheState(dir="y", bytes=None, bound=None))
    slow = replace(bookie.journals[0], dir="slow", sync_p99_ms=99.0, mb_per_s=None, sync_busy=0.1)
    one = merged(
        replace(
            bookie,
            write_cache=halves,
            read_cache=caches,
            journals=(bookie.journals[0], slow),
            ledger_dirs=(bookie.ledger_dirs[0], replace(bookie.ledger_dirs[0], dir="y", flush_busy=0.9)),
            gc=(replace(bookie.gc[0], phase="idle"), replace(bookie.gc[0], dir="y", deleted_ledgers=2)),
            disks=(Disk(dir="x", used_fraction=0.2), Disk(dir="y", used_fraction=0.8)),
        )
    )
    assert [(half.bytes, half.bound, half.flushing) for half in one.write_cache] == [
        (40, 200, False),
        (20, 200, True),
    ]
    assert [(cache.bytes, cache.bound, cache.hit_rate) for cache in one.read_cache] == [
        (5, None, bookie.read_cache_hit_rate)
    ]
    (journal,) = one.journals
    assert (journal.sync_p99_ms, journal.mb_per_s) == (99.0, bookie.journals[0].mb_per_s)
    assert journal.sync_busy == bookie.journals[0].sync_busy
    assert [state.flush_busy for state in one.ledger_dirs] == [0.9]
    assert [(state.phase, state.deleted_ledgers) for state in one.gc] == [("compact", 2050)]
    assert [disk.dir for disk in one.disks] == ["y"]


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1", 0),
        (" 120 ", 119),
        ("+30", 80),
        ("-30", 20),
        ("0%", 0),
        ("50%", 100),
        ("100%", 199),
        ("12:00", 0),
        ("12:01:05", 65),
        ("12:03:00", 180),
        ("23:59:59", 199),
        ("00:00", 0),
        ("24:00", None),
        ("12:60", None),
        ("later", None),
        ("", None),
        ("1e3", None),
    ],
)
def test_places_in_a_recording(text: str, position: int | None) -> None:
    replay = FakeReplay(200)
    replay.seek(50)
    assert position_of(text, replay) == position


def test_only_what_differs_is_drawn_again() -> None:
    before = (Span("name "), Span("  12"), Span("%"), Span(" end"))
    assert changed_cells(before, before) == (0, 0)
    assert changed_cells(before, (before[0], Span("  13"), *before[2:])) == (5, 4)
    assert changed_cells(before, (before[0], Span("  12", Tone.BAD), *before[2:])) == (5, 4)
    assert changed_cells(before, (before[0], Span("  13"), before[2], Span(" END"))) == (5, 9)
    assert changed_cells(before, before[:2]) == (0, 14)
    assert changed_cells(before, (before[0], Span(" 12345"), *before[2:])) == (0, 16)


def test_a_line_is_drawn_with_few_pieces() -> None:
    line = (
        Span("a"),
        Span("b"),
        Span("C", Tone.BAD),
        Span("  "),
        Span("d"),
        Span("E", Tone.ACTIVE),
        Span(" "),
    )
    assert joined(line) == [
        Span("ab"),
        Span("C  ", Tone.BAD),
        Span("d"),
        Span("E", Tone.ACTIVE),
        Span(" "),
    ]
    assert joined((Span("E", Tone.ACTIVE), Span("F", Tone.ACTIVE))) == [
        Span("E", Tone.ACTIVE),
        Span("F", Tone.ACTIVE),
    ]
    assert joined(()) == []


@pytest.mark.parametrize(
    ("environ", "utf8"),
    [
        ({"LANG": "en_GB.UTF-8"}, True),
        ({"LANG": "de_DE.utf8@euro"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, False),
        ({"LANG": "en_GB.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "ja_JP.UTF-8"}, True),
        ({"LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "C.UTF-8", "LC_CTYPE": "C.UTF-8"}, True),
        # What Python itself makes of the C locale.
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_the_locale_says_whether_there_is_unicode(environ: dict[str, str], utf8: bool) -> None:
    assert says_utf8(environ) is utf8


def test_what_waits_for_a_word_names_the_command() -> None:
    lines = detail_lines.collection(GcState(dir="d", held_deletions=7), 100, UNICODE)
    texts = ["".join(span.text for span in line) for line in lines]
    assert any(f"7 deletions ({detail_lines.CONFIRM_COMMAND})" in text for text in texts)


@pytest.mark.parametrize("command", [detail_lines.CONFIRM_COMMAND, *detail_lines.LOG_COMMANDS])
def test_a_command_that_is_named_is_there(run_cli: Callable[..., Any], command: str) -> None:
    program, *words = command.format(log_id=1).split()
    options = [word for word in words if word.startswith("--")]
    shown = run_cli(*(word for word in words if word not in options), "--help")
    assert (program, shown.exit_code) == ("bkctl", 0)
    assert all(option in shown.stdout for option in options)


def test_every_bottleneck_is_explained() -> None:
    assert sorted(stage.value for stage, _ in STAGES) == sorted(stage.value for stage in Stage)
    (key,) = (key for key in SAMPLE_SCHEMA if key.key == "bookies[].bottleneck.stage")
    assert set(key.meaning.split(", ")) == {stage.value for stage in Stage}
