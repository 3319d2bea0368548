"""Texts of a known width, figures in six characters, bars and sparklines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.tui import figures
from bkctl.tui.glyphs import ASCII, UNICODE, Glyphs
from bkctl.tui.lines import Line, Span, beside, fit, line_width, padded, printable, width_of, wrapped

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(TEXTS, st.integers(0, 40), st.booleans(), st.booleans(), st.sampled_from("~…"))
def test_fit_is_exactly_as_wide_as_it_is_to_be(
    text: str, width: int, right: bool, keep_end: bool, mark: str
) -> None:
    fitted = fit(text, width, right=right, keep_end=keep_end, mark=mark)
    assert width_of(fitted) == width
    assert fitted.isprintable()


@pytest.mark.parametrize(
    ("text", "width", "fitted"),
    [
        ("bookie", 8, "bookie  "),
        ("bookie", 6, "bookie"),
        ("bookie", 4, "boo~"),
        ("数据", 3, "数~"),
        ("数据", 2, "~ "),
        ("e\u0301a", 2, "e\u0301a"),
        ("a\x1b[31mb", 10, "a?[31mb   "),
    ],
)
def test_fit(text: str, width: int, fitted: str) -> None:
    assert fit(text, width) == fitted


def test_fit_keeps_the_end_of_a_path() -> None:
    assert fit("/data/bookie/ledgers", 10, keep_end=True) == "~e/ledgers"


@given(TEXTS, st.integers(1, 40), st.integers(1, 5))
def test_wrapped_lines_fit_and_are_few(text: str, width: int, lines: int) -> None:
    block = wrapped(text, width, lines)
    assert len(block) <= lines
    assert all(width_of(line) <= width for line in block)


@given(st.text("abc de", max_size=60), st.integers(8, 40))
def test_wrapped_loses_no_word_that_fits(text: str, width: int) -> None:
    if all(len(word) <= width for word in text.split()):
        assert " ".join(wrapped(text, width, 100)).split() == text.split()


def test_wrapped_says_where_it_was_cut() -> None:
    assert wrapped("one two three four", 9, 2) == ["one two", "three fo~"]


@given(st.lists(TEXTS.map(printable), max_size=6), st.integers(0, 40))
def test_padded_lines_are_exactly_as_wide(texts: list[str], width: int) -> None:
    assert line_width(padded(tuple(Span(text) for text in texts), width)) == width


def test_blocks_beside_each_other_of_unequal_length() -> None:
    left: list[Line] = [(Span("a"),), (Span("b"),)]
    right: list[Line] = [(Span("1"),), (Span("2"),), (Span("3"),)]
    texts = ["".join(span.text for span in line) for line in beside(left, right, 3, 2)]
    assert texts == ["a    1", "b    2", "     3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.25, "0.2"),
        (7, "7"),
        (999, "999"),
        (999.6, "1k"),
        (12_345, "12.3k"),
        (1_000_000, "1M"),
        (4_560_000, "4.56M"),
    ],
)
def test_counts(value: float | None, text: str) -> None:
    assert figures.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0B"), (1023, "1023B"), (1024, "1K"), (64 << 20, "64M"), (3 << 39, "1.5T")],
)
def test_sizes(value: int | None, text: str) -> None:
    assert figures.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.42, "0.42"),
        (12.34, "12.3"),
        (456.7, "457"),
        (999.7, "1.0s"),
        (59_949, "59.9s"),
        (90_000, "1.5m"),
    ],
)
def test_milliseconds(value: float | None, text: str) -> None:
    assert figures.milliseconds(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.999, "99%"), (1.0, "100%")],
)
def test_only_a_whole_is_a_hundred_percent_and_only_nothing_is_none(share: float | None, text: str) -> None:
    assert figures.percent(share) == text


@pytest.mark.parametrize(
    ("ago_ms", "text"),
    [(-5, "0s"), (999, "0s"), (61_000, "61s"), (125_000, "2m"), (3_700_000, "1h"), (200_000_000, "2d")],
)
def test_ages(ago_ms: int, text: str) -> None:
    assert figures.age(ago_ms) == text


@given(st.floats(0, 9e14))
def test_figures_are_short(value: float) -> None:
    for figure in (figures.count, figures.size):
        assert len(figure(value)) <= 6
    assert len(figures.milliseconds(min(value, 5e6))) <= 6


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("share", [None, 0.0, 0.001, 0.5, 0.999, 1.0, 7.0])
@pytest.mark.parametrize("width", [0, 1, 10])
def test_bars_show_a_little_and_a_lack_of_little(glyphs: Glyphs, share: float | None, width: int) -> None:
    bar = glyphs.bar(share, width)
    assert len(bar) == width
    if share is not None and width > 1:
        assert (glyphs.bar_full in bar) == (share > 0)
        assert (glyphs.bar_empty in bar) == (share < 1)


def test_sparklines_rise_from_zero_and_leave_gaps() -> None:
    assert ASCII.sparkline([0.0, 1.0, 4.0, 8.0], 6) == "  _.=@"
    assert UNICODE.sparkline([math.nan, 0.0, 1.0], 3) == "·▁█"
    assert ASCII.sparkline([1.0] * 10, 4) == "@@@@"
    assert ASCII.sparkline([0.0, 0.0], 2) == "__"
    assert ASCII.sparkline([0.5], 1, top=1.0) == "="
    assert ASCII.sparkline([1.0], 0) == ""


def test_every_glyph_is_one_cell() -> None:
    for glyphs in (UNICODE, ASCII):
        drawn = [glyphs.bar_full, glyphs.bar_empty, *glyphs.levels, glyphs.gap, glyphs.cut, glyphs.cursor]
        assert all(width_of(glyph) == 1 for glyph in [*drawn, glyphs.descending, glyphs.ascending])
    assert all(getattr(ASCII, name).isascii() for name in ASCII.__slots__)
