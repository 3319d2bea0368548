"""``bookie_journal_*`` of one journal."""

from __future__ import annotations

from bkctl.engine.journal.group_commit import FlushReason
from bkctl.engine.journal.journal import Journal
from bkctl.metrics.scrape import Scrape

_PREFIX = "bookie_journal_JOURNAL_"
_MS = 1000

#: Why a group was written, by Java's counter: the adaptive policy writes when nothing keeps it from it.
_FLUSHES = {
    "NUM_FLUSH_MAX_WAIT": (FlushReason.WAITED,),
    "NUM_FLUSH_MAX_OUTSTANDING_BYTES": (FlushReason.BYTES, FlushReason.ENTRIES),
    "NUM_FLUSH_EMPTY_QUEUE": (FlushReason.QUEUE_EMPTY, FlushReason.IDLE, FlushReason.STOP),
}


def journal_metrics(scrape: Scrape, index: str, journal: Journal) -> None:
    """Everything of the journal with this ``journalIndex``."""
    meters = journal.meters
    times = {
        "ADD_ENTRY": meters.added,
        "FORCE_LEDGER": meters.forced,
        "QUEUE_LATENCY": meters.journal.waited,
        "PROCESS_TIME_LATENCY": meters.processed,
        "FLUSH_LATENCY": meters.journal.worked,
        "FORCE_WRITE_ENQUEUE": meters.force_write.waited,
        "SYNC": meters.force_write.worked,
        "CREATION_LATENCY": meters.created,
    }
    for name, histogram in times.items():
        failed = meters.journal.failed if name == "ADD_ENTRY" else 0
        scrape.times(_PREFIX + name, histogram, failed, journalIndex=index)
    sizes = {
        "FORCE_WRITE_BATCH_ENTRIES": meters.group_entries,
        "FORCE_WRITE_BATCH_BYTES": meters.group_bytes,
        "FORCE_WRITE_GROUPING_TOTAL": meters.sync_entries,
    }
    for name, counts in sizes.items():
        scrape.sizes(_PREFIX + name, counts, journalIndex=index)
    # Java types these two as counters, although they go up and down.
    scrape.counter(_PREFIX + "QUEUE_SIZE", meters.journal.length, journalIndex=index)
    scrape.counter(_PREFIX + "FORCE_WRITE_QUEUE_SIZE", meters.force_write.length, journalIndex=index)
    scrape.counter(_PREFIX + "WRITE_BYTES", meters.record_bytes, journalIndex=index)
    for name, reasons in _FLUSHES.items():
        count = sum(meters.flushes[reason] for reason in reasons)
        scrape.counter(_PREFIX + name, count, journalIndex=index)
    scrape.gauge(_PREFIX + "MEMORY_USED", journal.queued_bytes, journalIndex=index)
    scrape.gauge(_PREFIX + "MEMORY_MAX", journal.settings.queue_bytes_max, journalIndex=index)
    callback_ms = int(meters.callback.worked.total_s * _MS)
    labels = {"journalIndex": index, "threadPool": "ForceWriteThread", "thread": "0"}
    scrape.counter("bookie_journal_callback_time", callback_ms, **labels)
    scrape.counter("bkctl_journal_written_bytes_total", meters.bytes_written, journalIndex=index)
    scrape.counter("bkctl_journal_padding_bytes_total", meters.padding_bytes, journalIndex=index)
    scrape.counter("bkctl_journal_files_total", meters.rolls, journalIndex=index)
