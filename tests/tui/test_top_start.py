"""What the screens are started with, and what they end with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
from textual.screen import Screen

from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.tui.app import TopApp, run_top
from bkctl.tui.glyphs import ASCII, UNICODE
from tests.support.top_samples import FakeSource
from tests.support.top_screen import operating, run


class TerminalStderr:
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


Start = Callable[..., tuple[int, TopApp]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Runs ``run_top`` with an application that ends at once; gives the exit code and the application."""
    started: list[TopApp] = []
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LANG", "en_GB.UTF-8")
    monkeypatch.setattr(sys, "__stderr__", TerminalStderr())
    monkeypatch.setattr(TopApp, "run", lambda app: started.append(app))

    def run_it(**options: bool) -> tuple[int, TopApp]:
        code = run_top(FakeSource(), 1.0, **options)
        return code, started[-1]

    return run_it


def test_colours_and_unicode_where_nothing_is_said_against_them(start: Start) -> None:
    code, app = start()
    assert code == 0
    assert not app.no_color
    assert app.glyphs is UNICODE


def test_options(start: Start) -> None:
    _, app = start(no_color=True, ascii_only=True)
    assert app.no_color
    assert app.glyphs is ASCII


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", ""), ("TERM", "dumb"), ("TERM", "unknown")])
def test_the_environment_asks_for_no_colours(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    _, app = start()
    assert app.no_color
    assert app.glyphs is UNICODE
    # A terminal that is taken for a dumb one is never done with its layout.
    assert not app.console.is_dumb_terminal


def test_a_locale_without_unicode(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C")
    _, app = start()
    assert app.glyphs is ASCII


def test_stderr_that_is_no_terminal_is_wrong_usage(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    class File(TerminalStderr):
        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "__stderr__", File())
    with pytest.raises(UsageError, match="stderr, which is not a terminal"):
        start()
    monkeypatch.setattr(sys, "__stderr__", None)
    with pytest.raises(UsageError):
        start()


def test_what_the_source_raised_is_raised_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConnectionFailedError("no metadata store")
    monkeypatch.setattr(TopApp, "run", lambda app: setattr(app, "failure", error))
    with pytest.raises(ConnectionFailedError) as raised:
        start()
    assert raised.value is error


def test_a_bug_is_exit_code_7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stderr__", TerminalStderr())
    monkeypatch.setattr(TopApp, "run", lambda app: app.exit(return_code=1))
    assert run_top(FakeSource(), 1.0) == 7
    assert os.environ.get("TERM") != "dumb"


def test_without_colours_no_cell_has_one() -> None:
    def colours(screen: Screen[object]) -> set[str]:
        strips = screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
        named = [colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None]
        return {colour.name for colour in named}

    async def test() -> None:
        async with operating(FakeSource(), no_color=True) as operator:
            assert colours(operator.app.screen) <= {"default"}
            await operator.press("enter")
            assert colours(operator.app.screen) <= {"default"}
        async with operating(FakeSource()) as operator:
            assert len(colours(operator.app.screen)) > 2

    run(test)
