"""The lines below the cluster's table: totals with their past, and why the chosen bookie is held back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bkctl.admin.top.sample import BookieSample, ClusterSample
from bkctl.reporting import counted, noun_of
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.history import History
from bkctl.tui.lines import EMPTY, Line, Span, Tone, fit, wrapped
from bkctl.tui.models import health
from bkctl.tui.models.merged import known_max, known_sum
from bkctl.tui.models.sparks import spark
from bkctl.tui.thresholds import Threshold
from bkctl.tui.watch import Watch


def headline(sample: ClusterSample | None, shown: int) -> str:
    """Return how many bookies there are, are lost, read-only, and shown."""
    if sample is None:
        return "no answer yet"
    bookies = sample.bookies
    parts = [counted(len(bookies), "bookie")]
    lost = sum(bookie.error is not None for bookie in bookies)
    read_only = sum(health.mode(bookie)[0] == "RO" for bookie in bookies)
    if lost:
        parts.append(f"{lost} LOST")
    if read_only:
        parts.append(f"{read_only} read-only")
    if shown != len(bookies):
        parts.append(f"{shown} shown")
    return ", ".join(parts)


def totals(watch: Watch, width: int, glyphs: Glyphs) -> list[Line]:
    """Show adds and reads of all bookies, and the slowest add p99, each with a sparkline."""
    history = watch.history
    bookies = watch.shown.bookies if watch.shown is not None else ()
    return [
        _total(
            "adds/s",
            known_sum(b.adds_per_s for b in bookies),
            history.total("adds_per_s"),
            history,
            width,
            glyphs,
        ),
        _total(
            "reads/s",
            known_sum(b.reads_per_s for b in bookies),
            history.total("reads_per_s"),
            history,
            width,
            glyphs,
        ),
        _total(
            "p99 ms",
            known_max(b.add_p99_ms for b in bookies),
            history.highest("add_p99_ms"),
            history,
            width,
            glyphs,
            figures.milliseconds,
            thresholds.ADD_P99,
        ),
    ]


def recovery(sample: ClusterSample | None, width: int, mark: str = "~") -> Line | None:
    """Show the work of autorecovery in a line; None where there is nothing to say."""
    state = None if sample is None else sample.autorecovery
    if sample is None or state is None:
        return None
    if state.enabled and not state.ledgers and not state.workers and state.maintenance is None:
        return None
    known = None if state.more_ledgers else state.ledgers
    lack = noun_of(known, "ledger lacks", "ledgers lack")
    parts = [f"{state.ledgers:,}{'+' if state.more_ledgers else ''} {lack} replicas"]
    if state.ledgers_done_per_s:
        parts.append(f"{figures.count(state.ledgers_done_per_s)} ledgers/s")
    copied = known_sum(bookie.replicated_mb_per_s for bookie in sample.bookies)
    if copied:
        parts.append(f"{figures.megabytes(copied)} MB/s")
    if state.workers:
        parts.append("copied by " + ", ".join(f"{one.host} ({one.ledgers})" for one in state.workers))
    elif state.enabled and state.ledgers:
        parts.append("nobody copies")
    parts.append(f"auditor {state.auditor}" if state.auditor else "no auditor")
    head = Span(" recovery ", Tone.DIM)
    if not state.enabled:
        parts.insert(0, "switched OFF")
    if state.maintenance is not None:
        parts.insert(0, f"a maintenance of {state.maintenance} is on")
    is_calm = state.enabled and state.workers and state.maintenance is None
    tone = Tone.STRONG if is_calm else Tone.WARNING
    return (head, Span(fit(", ".join(parts), max(width - len(head.text) - 1, 0), mark=mark).rstrip(), tone))


def explanation(
    watch: Watch, bookie: BookieSample | None, width: int, lines: int, mark: str = "~"
) -> list[Line]:
    """Name the bottleneck and say why; in exactly ``lines`` lines."""
    if bookie is None:
        return [EMPTY] * lines
    name, why = _judged(watch, bookie)
    head = (Span(" "), Span(bookie.bookie, Tone.STRONG), Span("  "), name, Span("  "))
    return _explained(head, why, width, lines, mark)


def bottleneck_lines(watch: Watch, bookie: BookieSample, width: int, mark: str = "~") -> list[Line]:
    """Explain the bottleneck on a bookie's own screen, where its name stands above."""
    name, why = _judged(watch, bookie)
    head = (Span(" bottleneck " if bookie.error is None else " "), name, Span("  "))
    return _explained(head, why, width, 2, mark)


def _judged(watch: Watch, bookie: BookieSample) -> tuple[Span, str]:
    """Name the trouble of a bookie in a word, and say why."""
    if bookie.error is not None:
        return Span("LOST", Tone.BAD), health.lost(bookie, watch.silence_ms(bookie))
    stage, why = bookie.bottleneck.stage, bookie.bottleneck.why
    if bookie.failure is not None:
        why = f"{why}; the bookie has failed: {bookie.failure}"
    return Span(stage.value, health.stage_tone(stage)), why


def _explained(head: Line, why: str, width: int, lines: int, mark: str) -> list[Line]:
    """Lay out the head, and the text behind it and in the lines below, as far as they go."""
    indent = 1
    used = sum(len(span.text) for span in head)
    if used + 20 > width and lines > 1:
        texts = wrapped(why, width - 2 * indent, lines - 1, mark)
        block = [head, *((Span(" " * indent), Span(text)) for text in texts)]
    else:
        first, *rest = wrapped("x" * (used - indent - 1) + " " + why, width - 2 * indent, lines, mark)
        block = [(*head, Span(first[used - indent :])), *((Span(" " * indent), Span(text)) for text in rest)]
    return block + [EMPTY] * (lines - len(block))


def _total(
    name: str,
    value: float | None,
    past: Sequence[float],
    history: History,
    width: int,
    glyphs: Glyphs,
    figure: Callable[[float | None], str] = figures.count,
    threshold: Threshold | None = None,
) -> Line:
    return (
        Span(f" {name:<8}", Tone.DIM),
        Span(fit(figure(value), 7, right=True), _value_tone(value, threshold)),
        Span("  "),
        *spark(past, history, max(width - 18, 0), glyphs, figure, threshold=threshold),
    )


def _value_tone(value: float | None, threshold: Threshold | None) -> Tone:
    tone = Tone.PLAIN if threshold is None else threshold.tone(value)
    return Tone.STRONG if tone is Tone.PLAIN else tone
