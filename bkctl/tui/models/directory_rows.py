"""A bookie's directories and a directory's logs as tables."""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.admin.top.sample import BookieSample, EntryLogState
from bkctl.codec.entrylog import log_name
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit

JOURNAL = "journal"
LEDGERS = "ledgers"

_NAME_CELLS_MIN = 16


def directory_key(kind: str, name: str) -> str:
    """Return the key by which a row is known: the kind and the directory."""
    return f"{kind}:{name}"


def directory_of(key: str) -> tuple[str, str]:
    """Return the kind and the directory of a row."""
    kind, _, name = key.partition(":")
    return kind, name


def directory_heading(width: int) -> Line:
    """Return the titles over :func:`directory_rows`."""
    name = max(width - 57, _NAME_CELLS_MIN)
    text = (
        f" {'KIND':<8} {fit('DIRECTORY', name)} {'MB/S':>6} {'P99 ms':>7} {'BUSY':>5} {'DISK':>5} COLLECTION"
    )
    return (Span(fit(text, width), Tone.HEADING),)


def directory_rows(bookie: BookieSample, width: int, glyphs: Glyphs) -> list[tuple[str, Line]]:
    """Return the journals first, then ledger directories."""
    rows = [
        (
            directory_key(JOURNAL, journal.dir),
            _directory(
                JOURNAL,
                journal.dir,
                (journal.mb_per_s, journal.sync_p99_ms, journal.sync_busy),
                None,
                "",
                width,
                glyphs,
            ),
        )
        for journal in bookie.journals
    ]
    disks = {disk.dir: disk for disk in bookie.disks}
    collections = {state.dir: state for state in bookie.gc}
    states = {state.dir: state for state in bookie.ledger_dirs}
    for name in dict.fromkeys([*states, *disks]):
        state, disk, collection = states.get(name), disks.get(name), collections.get(name)
        done = (
            (None, None, None)
            if state is None
            else (
                state.flushed_mb_per_s,
                state.flush_p99_ms,
                state.flush_busy,
            )
        )
        phase = "" if collection is None else collection.phase or ""
        used = None if disk is None else disk.used_fraction
        rows.append(
            (directory_key(LEDGERS, name), _directory(LEDGERS, name, done, used, phase, width, glyphs))
        )
    return rows


def _directory(
    kind: str,
    name: str,
    done: tuple[float | None, float | None, float | None],
    used: float | None,
    phase: str,
    width: int,
    glyphs: Glyphs,
) -> Line:
    rate, p99_ms, busy = done
    cells = max(width - 57, _NAME_CELLS_MIN)
    return (
        Span(" "),
        Span(f"{kind:<8} "),
        Span(fit(name, cells, keep_end=True, mark=glyphs.cut), Tone.STRONG),
        Span(" "),
        Span(fit(figures.megabytes(rate), 6, right=True)),
        Span(" "),
        Span(fit(figures.milliseconds(p99_ms), 7, right=True)),
        Span(" "),
        Span(fit(figures.percent(busy), 5, right=True), thresholds.BUSY.tone(busy)),
        Span(" "),
        Span(fit(figures.percent(used), 5, right=True), thresholds.DISK.tone(used)),
        Span(" "),
        Span(fit(phase, 20)),
    )


def log_heading(width: int) -> Line:
    """Return the titles over :func:`log_rows`."""
    text = f" {'LOG':>10} {'FILE':<12} {'SIZE':>7} {'LIVE':>7} {'LEDGERS':>8}  LIVE SHARE"
    return (Span(fit(text, width), Tone.HEADING),)


def log_rows(logs: Sequence[EntryLogState], width: int, glyphs: Glyphs) -> list[tuple[str, Line]]:
    """Return a row for each log, the newest first."""
    bar = min(max(width - 67, 6), 60)
    return [
        (
            str(log.log_id),
            (
                Span(" "),
                Span(f"{log.log_id:>10} "),
                Span(fit(log_name(log.log_id), 12), Tone.STRONG),
                Span(" "),
                Span(fit(figures.size(log.bytes), 7, right=True)),
                Span(" "),
                Span(fit(figures.size(log.live_bytes), 7, right=True)),
                Span(" "),
                Span(fit(figures.count(log.ledgers), 8, right=True)),
                Span("  "),
                Span(glyphs.bar(log.live_ratio, bar)),
                Span(f" {figures.percent(log.live_ratio):>4}"),
                Span("  active" if log.active else "        ", Tone.GOOD),
            ),
        )
        for log in sorted(logs, key=lambda log: log.log_id, reverse=True)
    ]
