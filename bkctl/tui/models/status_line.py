"""The first line of every screen: what is watched, whether it lives, stands still or is a recording."""

from __future__ import annotations

from bkctl.tui import figures
from bkctl.tui.lines import Line, Span, Tone, fit, line_width
from bkctl.tui.watch import Watch


def status_line(watch: Watch, where: str, width: int, *, note: str = "", mark: str = "~") -> Line:
    """Return the line at the top of a screen.

    ``where`` is the way down to this screen; ``note`` what else it has to say, cut where room is short.
    """
    left: list[Span] = [Span(" "), Span("bkctl top", Tone.HEADING), Span("  ")]
    right = (Span(_pace(watch), _pace_tone(watch)), Span("  "), Span(_time(watch)), Span(" "))
    room = width - line_width(tuple(left)) - line_width(right) - 1
    text = f"{where}  {note}" if note else where
    left.append(Span(fit(text, max(room, 0), mark=mark), Tone.STRONG))
    return (*left, Span(" "), *right)


def _pace(watch: Watch) -> str:
    if watch.replay is not None:
        state = "PAUSED" if watch.paused else "at end" if watch.replay.at_end else "playing"
        return f"replay {watch.replay.position + 1}/{watch.replay.count} {state}"
    if watch.paused:
        return "PAUSED"
    return f"every {figures.interval(watch.interval_s)}"


def _pace_tone(watch: Watch) -> Tone:
    return Tone.WARNING if watch.paused else Tone.PLAIN


def _time(watch: Watch) -> str:
    if watch.shown is None:
        return "--:--:--"
    if watch.replay is not None:
        return figures.date_and_time(watch.shown.taken_at_ms)
    return figures.time_of_day(watch.shown.taken_at_ms)
