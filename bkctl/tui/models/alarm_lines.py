"""Alarms as lines: those that are on, then those that are over."""

from __future__ import annotations

from bkctl.tui import figures
from bkctl.tui.alarms import Alarm, AlarmLog
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit

_SUBJECT_CELLS = 22


def alarm_lines(
    log: AlarmLog, now_ms: int | None, width: int, rows: int | None, glyphs: Glyphs
) -> list[Line]:
    """Return a heading and a line for each alarm; at most ``rows`` lines, the last says how many more."""
    now, over = log.now(), log.over()
    counts = f"{len(now)} now, {len(over)} over"
    if log.left_out:
        counts += f", {log.left_out} more not remembered"
    lines: list[Line] = [
        (Span(" ALARMS", Tone.HEADING), Span(f"  {counts}", Tone.STRONG)),
    ]
    if now_ms is None or not (now or over):
        return [*lines, (Span("  None since the first sample.", Tone.DIM),)]
    lines.append((Span(fit(_columns("SINCE", "FOR", "", "BOOKIE", "ALARM"), width), Tone.HEADING),))
    lines += [_line(alarm, now_ms, width, glyphs) for alarm in (*now, *over)]
    if rows is not None and len(lines) > rows:
        hidden = len(lines) - rows + 1
        lines = [*lines[: rows - 1], (Span(f"  {hidden} more (a: all of them)", Tone.DIM),)]
    return lines


def _line(alarm: Alarm, now_ms: int, width: int, glyphs: Glyphs) -> Line:
    is_on = alarm.ended_ms is None
    end_ms = now_ms if alarm.ended_ms is None else alarm.ended_ms
    before = "<" if alarm.from_start else ""
    since = f"{before}{figures.time_of_day(alarm.began_ms)}"
    head = _columns(since, figures.age(end_ms - alarm.began_ms), "now" if is_on else "over", "", "")
    subject = fit(alarm.subject, _SUBJECT_CELLS, mark=glyphs.cut)
    times = f" ({alarm.times} times)" if alarm.times > 1 else ""
    text = f"{alarm.kind}{times}: {alarm.text}"
    used = len(head) + _SUBJECT_CELLS + 2
    tone = alarm.tone if is_on else Tone.DIM
    return (
        Span(head, tone),
        Span(subject, Tone.STRONG if is_on else Tone.DIM),
        Span("  "),
        Span(
            fit(text, max(width - used - 1, 0), mark=glyphs.cut).rstrip(), alarm.tone if is_on else Tone.DIM
        ),
    )


def _columns(since: str, length: str, state: str, subject: str, text: str) -> str:
    head = f" {since:>9} {length:>4} {state:<4} "
    return f"{head}{subject:<{_SUBJECT_CELLS}}  {text}" if subject else head
