"""The colours of the screen: the terminal's own, those of a theme, and what shows without any."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rich.style import Style

from bkctl.errors import UsageError
from bkctl.tui.app import TopApp
from bkctl.tui.glyphs import UNICODE
from bkctl.tui.themes import TERMINAL, library_theme, theme_after, theme_names
from bkctl.tui.watch import Watch
from tests.support.top_samples import FakeSource
from tests.support.top_screen import Operator, operating, run


def style_of(operator: Operator, word: str) -> Style:
    """The style of the first piece on the screen that has this word."""
    strips = operator.app.screen._compositor.render_strips()
    found = next(segment.style for strip in strips for segment in strip if word in segment.text)
    assert found is not None
    return found


def colours(operator: Operator) -> list[tuple[str, str]]:
    """Colour and background of a heading, of a mode and of a full disk."""
    styles = [style_of(operator, word) for word in ("READ/S", "RO", "96%!")]
    return [(style.color.name, style.bgcolor.name) for style in styles if style.color and style.bgcolor]


def test_without_a_theme_the_colours_are_the_terminals_own() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            cyan, yellow, red = 6, 3, 1
            wanted = [(f"color({number})", "default") for number in (cyan, yellow, red)]
            assert colours(operator) == wanted

    run(test)


def test_a_key_goes_through_the_themes_and_says_how_to_keep_one() -> None:
    async def test() -> None:
        async with operating(FakeSource(), size=(100, 30)) as operator:
            seen = [colours(operator)]
            for name in theme_names()[1:4]:
                await operator.press("t")
                assert f"theme {name}: --theme {name}, or BKCTL_TOP_THEME, keeps it" in operator.text
                seen.append(colours(operator))
            for one, other in pairwise(seen):
                assert all(before != after for before, after in zip(one, other, strict=True))
            assert all(len(set(each)) == 3 for each in seen)

    run(test)


def test_the_screen_starts_with_the_theme_that_is_asked_for() -> None:
    assert TopApp(Watch(FakeSource(), 1.0), UNICODE, theme="nord").theme == "nord"
    assert TopApp(Watch(FakeSource(), 1.0), UNICODE).theme_name == TERMINAL


def test_a_theme_that_there_is_not_names_the_one_that_may_be_meant() -> None:
    with pytest.raises(UsageError, match=r"no theme 'drakula'; did you mean dracula\?"):
        library_theme("drakula")
    with pytest.raises(UsageError, match="there are: terminal, "):
        library_theme("0")
    assert theme_after(theme_names()[-1]) == TERMINAL


@pytest.mark.parametrize("no_color", [False, True])
def test_the_row_of_the_cursor_and_the_active_tab_stand_out(no_color: bool) -> None:
    async def test() -> None:
        async with operating(FakeSource(), no_color=no_color) as operator:
            await operator.press("down")
            assert style_of(operator, "bookie-2:3181").reverse
            assert not style_of(operator, "bookie-1:3181").reverse
            await operator.press("enter", "2")
            assert style_of(operator, "[2 Queues]").reverse
            assert not style_of(operator, "1 Overview").reverse

    run(test)


def test_without_colours_a_theme_has_none_either() -> None:
    async def test() -> None:
        async with operating(FakeSource(), no_color=True, theme="nord") as operator:
            strips = operator.app.screen._compositor.render_strips()
            styles = [piece.style for strip in strips for piece in strip if piece.style is not None]
            used = {colour.name for style in styles for colour in (style.color, style.bgcolor) if colour}
            assert used <= {"default"}

    run(test)
