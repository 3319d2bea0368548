"""A directory or a journal with everything that is known of it: labelled lines, figures and their past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bkctl.admin.top.sample import (
    BookieSample,
    EntryLogState,
    GcState,
    JournalState,
    LedgerDirState,
)
from bkctl.codec.entrylog import log_name
from bkctl.codec.journal import journal_name
from bkctl.reporting import counted
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.history import History
from bkctl.tui.lines import EMPTY, Line, Span, Tone, fit
from bkctl.tui.models import directory_lines
from bkctl.tui.models.sparks import spark
from bkctl.tui.thresholds import Threshold

#: Commands to be run on the bookie's machine, or with its --url.
CONFIRM_COMMAND = "bkctl bookie gc --confirm-deletions"
LOG_COMMANDS = ("bkctl entrylog show {log_id}", "bkctl gc explain")

_LABEL_CELLS = 14


def journals_tab(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all journals."""
    if not bookie.journals:
        return [_nothing("This bookie tells nothing of its journals.")]
    return _joined(journal(bookie, state, history, width, glyphs) for state in bookie.journals)


def caches_tab(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Write cache and read cache of every ledger directory."""
    names = dict.fromkeys(half.dir for half in bookie.write_cache)
    names |= dict.fromkeys(cache.dir for cache in bookie.read_cache)
    if not names:
        return [_nothing("This bookie tells nothing of its caches.")]
    return _joined(caches(bookie, name, history, width, glyphs) for name in names)


def entry_logs_tab(bookie: BookieSample, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Show the entry log and index work of every ledger directory."""
    if not bookie.ledger_dirs:
        return [_nothing("This bookie tells nothing of its flushes.")]
    return _joined(flushes(bookie, state, history, width, glyphs) for state in bookie.ledger_dirs)


def gc_tab(bookie: BookieSample, _history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Show collection and compaction of every ledger directory."""
    if not bookie.gc:
        return [_nothing("This bookie tells nothing of its collections.")]
    return _joined(collection(state, width, glyphs) for state in bookie.gc)


def journal(
    bookie: BookieSample, state: JournalState, history: History, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return one journal."""
    mark = figures.UNKNOWN
    if state.mark_journal_id is not None:
        file = journal_name(state.mark_journal_id)
        mark = f"journal {state.mark_journal_id} ({file}), offset {state.mark_offset}"
    ms = figures.milliseconds
    return [
        _title("JOURNAL", state.dir, width, glyphs),
        _labelled(
            "fsync",
            f"p50 {ms(state.sync_p50_ms)} ms  p99 {ms(state.sync_p99_ms)} ms"
            f"  {figures.count(state.syncs_per_s)}/s",
            width,
        ),
        _barred(
            "disk busy", state.sync_busy, "of the time an fsync is under way", width, glyphs, thresholds.BUSY
        ),
        _labelled(
            "group",
            f"{figures.counted(state.group_entries, 'entry', 'entries')},"
            f" {figures.size(state.group_bytes)} an fsync"
            f"  {figures.megabytes(state.mb_per_s)} MB/s",
            width,
        ),
        _labelled("last mark", mark, width),
        _past(
            "sync p99",
            history.series(bookie.bookie, f"sync_p99_ms:{state.dir}"),
            history,
            width,
            glyphs,
            figures.milliseconds,
            threshold=thresholds.SYNC_P99,
        ),
        _past("MB/s", history.series(bookie.bookie, f"journal_mb_per_s:{state.dir}"), history, width, glyphs),
    ]


def caches(bookie: BookieSample, name: str, history: History, width: int, glyphs: Glyphs) -> list[Line]:
    """Write cache and read cache of one ledger directory."""
    lines = [_title("CACHES", name, width, glyphs)]
    halves = [half for half in bookie.write_cache if half.dir == name]
    for number, half in enumerate(halves):
        words = directory_lines.half_role(half, first=number == 0)
        of = f"{figures.size(half.bytes)} of {figures.size(half.bound)}"
        lines.append(_barred(words, half.fullness, of, width, glyphs, thresholds.CACHE))
    if bookie.write_cache_fullness(name) is not None:
        past = history.series(bookie.bookie, f"write_cache:{name}")
        lines.append(
            _past(
                "write cache",
                past,
                history,
                width,
                glyphs,
                figures.percent,
                top=1.0,
                threshold=thresholds.CACHE,
            )
        )
    for cache in (cache for cache in bookie.read_cache if cache.dir == name):
        of = f"{figures.size(cache.bytes)} of {figures.size(cache.bound)}"
        lines += [
            _barred("read cache", cache.fullness, of, width, glyphs),
            _labelled(
                "hits",
                f"{figures.percent(cache.hit_rate)} of {figures.count(cache.hits_per_s)} hits/s and"
                f" {figures.count(cache.misses_per_s)} misses/s",
                width,
            ),
            _labelled(
                "read ahead",
                f"{figures.count(cache.read_ahead_per_s)} entries/s,"
                f" {figures.percent(cache.wasted_rate)} in vain",
                width,
            ),
            _past(
                "hit rate",
                history.series(bookie.bookie, f"hit_rate:{name}"),
                history,
                width,
                glyphs,
                figures.percent,
                top=1.0,
            ),
        ]
    return lines


def flushes(
    bookie: BookieSample, state: LedgerDirState, history: History, width: int, glyphs: Glyphs
) -> list[Line]:
    """Show the entry log and index work of one ledger directory."""
    ms = figures.milliseconds
    return [
        _title("ENTRY LOGS AND INDEX", state.dir, width, glyphs),
        _labelled(
            "flushes",
            f"{figures.count(state.flushes_per_s)}/s  p99 {ms(state.flush_p99_ms)} ms"
            f"  {figures.megabytes(state.flushed_mb_per_s)} MB/s"
            f"  {figures.count(state.entries_flushed_per_s)} entries/s",
            width,
        ),
        _barred(
            "disk busy", state.flush_busy, "of the time a flush is under way", width, glyphs, thresholds.BUSY
        ),
        _labelled(
            "steps p99 ms",
            f"log write {ms(state.log_write_p99_ms)}  force {ms(state.force_p99_ms)}"
            f"  locations {ms(state.locations_p99_ms)}  ledger rows {ms(state.ledger_rows_p99_ms)}",
            width,
        ),
        _labelled(
            "disk reads",
            f"{figures.count(state.disk_reads_per_s)}/s  p99 {ms(state.disk_read_p99_ms)} ms",
            width,
        ),
        _labelled(
            "logs",
            f"{figures.count(state.active_logs)} rolled {figures.size(state.active_log_bytes)},"
            f"{_written_to(state)} {figures.counted(state.ledgers, 'ledger')}",
            width,
        ),
        _past(
            "flushed MB/s",
            history.series(bookie.bookie, f"flushed_mb_per_s:{state.dir}"),
            history,
            width,
            glyphs,
        ),
    ]


def _written_to(state: LedgerDirState) -> str:
    """Name the logs that are being written; Java's bookies do not say."""
    if state.current_logs is None:
        return ""
    return f" {figures.count(state.current_logs)} open {figures.size(state.current_log_bytes)},"


def collection(state: GcState, width: int, glyphs: Glyphs) -> list[Line]:
    """Show collection and compaction of one ledger directory."""
    phase = state.phase or figures.UNKNOWN
    log = "" if state.log_id is None else f", log {state.log_id}"
    forced = ", was asked for" if state.in_force else ""
    held = figures.counted(state.held_deletions, "deletion")
    return [
        _title("GARBAGE COLLECTION", state.dir, width, glyphs),
        _labelled("phase", f"{phase}{log}{forced}", width, Tone.WARNING if state.at_work else Tone.PLAIN),
        _barred("progress", state.progress if state.at_work else None, "of this pass's logs", width, glyphs),
        _labelled(
            "passes", f"{figures.count(state.passes)}, {figures.count(state.failed_passes)} failed", width
        ),
        _labelled(
            "compactions",
            f"{figures.count(state.minor_compactions)} minor, {figures.count(state.major_compactions)} major,"
            f" {figures.size(state.compacted_bytes)} freed,"
            f" {figures.megabytes(state.compacted_mb_per_s)} MB/s now",
            width,
        ),
        _labelled(
            "deleted",
            f"{figures.counted(state.deleted_ledgers, 'ledger')},"
            f" {figures.counted(state.deleted_logs, 'log')},"
            f" {figures.size(state.reclaimed_bytes)} reclaimed",
            width,
        ),
        _labelled(
            "held back",
            f"{held} ({CONFIRM_COMMAND})" if state.held_deletions else held,
            width,
            Tone.WARNING if state.held_deletions else Tone.PLAIN,
        ),
        _labelled(
            "set aside",
            figures.counted(state.set_aside_logs, "damaged log"),
            width,
            Tone.BAD if state.set_aside_logs else Tone.PLAIN,
        ),
    ]


def ledger_directory(
    bookie: BookieSample, name: str, history: History, width: int, glyphs: Glyphs
) -> list[Line]:
    """Show a ledger directory in few lines, to stand above the table of its logs."""
    lines = [
        *directory_lines.disk_lines(bookie, width, glyphs, name),
        *directory_lines.cache_lines(bookie, width, glyphs, name),
        *directory_lines.flush_lines(bookie, width, glyphs, name),
        *directory_lines.gc_lines(bookie, width, glyphs, name),
        _past(
            "flushed MB/s", history.series(bookie.bookie, f"flushed_mb_per_s:{name}"), history, width, glyphs
        ),
    ]
    return lines


def log(state: EntryLogState, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one entry log."""
    dead = None if state.live_bytes is None else max(state.bytes - state.live_bytes, 0)
    role = "is being written" if state.active else "complete"
    return [
        _title("ENTRY LOG", f"{state.log_id} ({log_name(state.log_id)})", width, glyphs),
        EMPTY,
        _labelled("state", role, width),
        _labelled("size", f"{figures.size(state.bytes)} ({counted(state.bytes, 'byte')})", width),
        _labelled("ledgers", figures.count(state.ledgers), width),
        _barred(
            "live",
            state.live_ratio,
            f"{figures.size(state.live_bytes)} live, {figures.size(dead)} garbage",
            width,
            glyphs,
        ),
        EMPTY,
        *(
            (Span("  "), Span(fit(text, width - 2), Tone.DIM))
            for text in (
                "A collection removes a log without live bytes; compaction copies what is live",
                "out of logs below minorCompactionThreshold or majorCompactionThreshold.",
                "More is said, on the bookie's machine, by:",
            )
        ),
        *(
            (Span("    "), Span(fit(command.format(log_id=state.log_id), width - 4), Tone.STRONG))
            for command in LOG_COMMANDS
        ),
    ]


def _joined(blocks: Iterable[list[Line]]) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        if lines:
            lines.append(EMPTY)
        lines += block
    return lines


def _title(kind: str, name: str, width: int, glyphs: Glyphs) -> Line:
    room = max(width - len(kind) - 3, 0)
    return (
        Span(f" {kind}", Tone.HEADING),
        Span("  "),
        Span(fit(name, room, keep_end=True, mark=glyphs.cut), Tone.STRONG),
    )


def _labelled(label: str, text: str, width: int, tone: Tone = Tone.PLAIN) -> Line:
    return (
        Span(f"  {label:<{_LABEL_CELLS}}", Tone.DIM),
        Span(fit(text, max(width - _LABEL_CELLS - 2, 0)), tone),
    )


def _barred(
    label: str, share: float | None, text: str, width: int, glyphs: Glyphs, threshold: Threshold | None = None
) -> Line:
    bar = min(max(width - _LABEL_CELLS - 45, 8), 60)
    tone = Tone.PLAIN if threshold is None else threshold.tone(share)
    return (
        Span(f"  {label:<{_LABEL_CELLS}}", Tone.DIM),
        Span(glyphs.bar(share, bar), tone),
        Span(f" {figures.percent(share):>4}", tone),
        Span(fit(f"  {text}", max(width - bar - _LABEL_CELLS - 7, 0))),
    )


def _past(
    label: str,
    values: Sequence[float],
    history: History,
    width: int,
    glyphs: Glyphs,
    figure: Callable[[float], str] = figures.megabytes,
    *,
    top: float | None = None,
    threshold: Threshold | None = None,
) -> Line:
    cells = max(width - _LABEL_CELLS - 4, 0)
    return (
        Span(f"  {label:<{_LABEL_CELLS}}", Tone.DIM),
        *spark(values, history, cells, glyphs, figure, top=top, threshold=threshold),
    )


def _nothing(text: str) -> Line:
    return (Span(f"  {text}", Tone.DIM),)
