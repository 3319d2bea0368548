"""The lines about one directory: caches, journal, flushes, collection, disk."""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.admin.top.sample import (
    BookieSample,
    Disk,
    GcState,
    JournalState,
    LedgerDirState,
    ReadCacheState,
    WriteCacheHalf,
)
from bkctl.tui import figures, thresholds
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit


def cache_lines(bookie: BookieSample, width: int, glyphs: Glyphs, only: str | None = None) -> list[Line]:
    """Return the lines of the write caches and the read cache of each directory, or of ``only`` one."""
    lines: list[Line] = []
    names = _directories(bookie.write_cache, bookie.read_cache)
    for name in names:
        if only is not None and name != only:
            continue
        halves = [half for half in bookie.write_cache if half.dir == name]
        caches = [cache for cache in bookie.read_cache if cache.dir == name]
        if halves:
            lines.append(_write_cache(name, halves, width, glyphs))
        lines += [_read_cache(cache, width, glyphs) for cache in caches]
    return lines


def _write_cache(name: str, halves: list[WriteCacheHalf], width: int, glyphs: Glyphs) -> Line:
    label = 14
    each = (width - label - 2) // 2
    spans: list[Span] = [Span(" WRITE CACHE", Tone.HEADING), Span("  ")]
    for number, half in enumerate(halves[:2]):
        share = half.fullness
        words = half_role(half, first=number == 0)
        bar = max(each - 16, 4)
        tone = thresholds.CACHE.tone(share)
        spans += [
            Span(glyphs.bar(share, bar), tone),
            Span(" "),
            Span(fit(figures.percent(share), 4, right=True), tone),
            Span(" "),
            Span(fit(words, 11 if half.flushing is None else 8), tone if half.flushing else Tone.PLAIN),
            Span("  "),
        ]
    return tuple(spans)


def half_role(half: WriteCacheHalf, *, first: bool) -> str:
    """Name the present use of a half of the write cache; the first one takes what is added."""
    if half.flushing is None:
        return "both halves"
    return "flushing" if half.flushing else "filling" if first else "idle"


def _read_cache(cache: ReadCacheState, width: int, glyphs: Glyphs) -> Line:
    bar = max((width - 16) // 2 - 15, 4)
    words = f" {_of(cache.bytes, cache.bound)}"
    wasted = f"  read ahead in vain {figures.percent(cache.wasted_rate)}"
    return (
        Span(" READ CACHE", Tone.HEADING),
        Span("   "),
        Span(glyphs.bar(cache.fullness, bar)),
        Span(fit(words, 16)),
        Span("hits "),
        Span(fit(figures.percent(cache.hit_rate), 4), Tone.STRONG),
        Span(wasted, thresholds.WASTED.tone(cache.wasted_rate)),
    )


def journal_lines(bookie: BookieSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return each journal's fsync time, how busy its disk is, and the size of its groups."""
    return [_journal(journal, width, glyphs) for journal in bookie.journals]


def _journal(journal: JournalState, width: int, glyphs: Glyphs) -> Line:
    entries = figures.counted(journal.group_entries, "entry", "entries")
    group = f"{entries} {figures.size(journal.group_bytes)}"
    busy = thresholds.BUSY.tone(journal.sync_busy)
    bar = max((width - 70) // 2, 4)
    return (
        Span(" JOURNAL", Tone.HEADING),
        Span("      sync "),
        Span(
            fit(
                f"p50 {figures.milliseconds(journal.sync_p50_ms)}"
                f" p99 {figures.milliseconds(journal.sync_p99_ms)} ms",
                20,
            ),
            Tone.STRONG,
        ),
        Span(" busy "),
        Span(glyphs.bar(journal.sync_busy, bar), busy),
        Span(f" {figures.percent(journal.sync_busy):>4}", busy),
        Span(fit(f"  group {group}", 27)),
        Span(fit(f"{figures.megabytes(journal.mb_per_s)} MB/s", 9, right=True) if width >= 86 else ""),
    )


def flush_lines(
    bookie: BookieSample, width: int, glyphs: Glyphs, only: str | None = None, *, steps: bool = True
) -> list[Line]:
    """Show the entry log and index work of ledger directories: flushes and how long their ``steps`` take."""
    lines: list[Line] = []
    for state in bookie.ledger_dirs:
        if only is None or state.dir == only:
            lines += _flush(state, width, glyphs)[: 2 if steps else 1]
    return lines


def _flush(state: LedgerDirState, width: int, glyphs: Glyphs) -> list[Line]:
    busy = thresholds.BUSY.tone(state.flush_busy)
    bar = max((width - 66) // 2, 4)
    first: Line = (
        Span(" FLUSH", Tone.HEADING),
        Span("        "),
        Span(fit(f"{figures.megabytes(state.flushed_mb_per_s)} MB/s", 11), Tone.STRONG),
        Span("busy "),
        Span(glyphs.bar(state.flush_busy, bar), busy),
        Span(f" {figures.percent(state.flush_busy):>4}", busy),
        Span(
            f"  {figures.count(state.entries_flushed_per_s)} entries/s, {figures.count(state.flushes_per_s)}"
            f" flushes/s"
        ),
    )
    steps = (
        ("log", state.log_write_p99_ms),
        ("force", state.force_p99_ms),
        ("locations", state.locations_p99_ms),
        ("ledgers", state.ledger_rows_p99_ms),
    )
    second: Line = (
        Span(" ENTRY LOG", Tone.HEADING),
        Span("    "),
        Span(
            fit(
                f"p99 ms {'  '.join(f'{name} {figures.milliseconds(ms)}' for name, ms in steps)}",
                width - 14,
            )
        ),
    )
    return [first, second]


def gc_lines(bookie: BookieSample, width: int, glyphs: Glyphs, only: str | None = None) -> list[Line]:
    """Describe the work of collection and compaction, per ledger directory."""
    return [_gc(state, width, glyphs) for state in bookie.gc if only is None or state.dir == only]


def _gc(state: GcState, width: int, glyphs: Glyphs) -> Line:
    phase = state.phase or figures.UNKNOWN
    forced = "!" if state.in_force else ""
    doing: tuple[Span, ...] = (
        Span(fit(f"{phase}{forced}", 11), Tone.WARNING if state.at_work else Tone.PLAIN),
        Span(glyphs.bar(state.progress if state.at_work else 0.0, 6)),
        Span(f" {figures.percent(state.progress) if state.at_work else '':>4} "),
    )
    done = (
        f" {figures.counted(state.deleted_ledgers, 'ledger')}, {figures.size(state.reclaimed_bytes)} freed,"
        f" {figures.megabytes(state.compacted_mb_per_s)} MB/s now"
    )
    return (Span(" GC", Tone.HEADING), Span("           "), *doing, Span(fit(done, max(width - 36, 0))))


def disk_lines(bookie: BookieSample, width: int, glyphs: Glyphs, only: str | None = None) -> list[Line]:
    """Return how full the disks are."""
    return [_disk(disk, width, glyphs) for disk in bookie.disks if only is None or disk.dir == only]


def _disk(disk: Disk, width: int, glyphs: Glyphs) -> Line:
    tone = Tone.BAD if disk.full else thresholds.DISK.tone(disk.used_fraction)
    words = "FULL" if disk.full else ""
    used = (
        ""
        if disk.used_bytes is None
        else f"{figures.size(disk.used_bytes)} of {figures.size(disk.total_bytes)}"
    )
    bar = max((width - 16) // 2 - 15, 4)
    name = max(width - bar - 41, 10)
    return (
        Span(" DISK", Tone.HEADING),
        Span("         "),
        Span(glyphs.bar(disk.used_fraction, bar), tone),
        Span(f" {figures.percent(disk.used_fraction):>4} ", tone),
        Span(fit(words, 5), Tone.BAD),
        Span(fit(used, 15)),
        Span(fit(disk.dir, name, keep_end=True, mark=glyphs.cut), Tone.DIM),
    )


def _of(used: int | None, bound: int | None) -> str:
    return figures.size(used) if bound is None else f"{figures.size(used)} of {figures.size(bound)}"


def _directories(*states: Iterable[WriteCacheHalf | ReadCacheState]) -> list[str]:
    """Return every directory once, in the order they come in."""
    return list(dict.fromkeys(state.dir for group in states for state in group))
