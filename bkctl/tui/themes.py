"""The themes of the screen: the terminal's own sixteen colours, and those that the library brings."""

from __future__ import annotations

import difflib

from textual.theme import BUILTIN_THEMES

from bkctl.errors import UsageError

#: The name of the terminal's own colours on its own background.
TERMINAL = "terminal"
#: The library's name of it.
_TERMINAL_THEME = "ansi-dark"


def theme_names() -> tuple[str, ...]:
    """Return the names of all themes, the terminal's first."""
    return (TERMINAL, *sorted(name for name, theme in BUILTIN_THEMES.items() if not theme.ansi))


def library_theme(name: str) -> str:
    """Return the library's name of a theme. Raises UsageError, with the name that may be meant."""
    names = theme_names()
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
        raise UsageError(f"no theme {name!r}; {meant}")
    return _TERMINAL_THEME if name == TERMINAL else name


def theme_after(name: str) -> str:
    """Return the theme that follows; the first one follows the last."""
    names = theme_names()
    return names[(names.index(name) + 1) % len(names)]
