"""``garbage``: how much of each entry log is alive, and in which order to reclaim the rest.

Of a log with a ledgers map only the map counts, and journals not at all: what cannot be read of its records,
or of a journal, changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, share_not_judged
from bkctl.pipeline.jobs.ledger_fate import FATE_NOTE, LEDGER_FATE_INPUTS
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import number, sentence, size


def garbage_sentence(counts: Mapping[str, int]) -> str:
    """Say how many bytes are of deleted ledgers, and how they come back."""
    dead, unknown, damaged = counts["dead_bytes"], counts["unknown_bytes"], counts["damaged_logs"]
    where = f"{size(counts['bytes'])} in {number(counts['logs'], 'entry log')}"
    removed, compacted = counts["removable_bytes"], counts["compactable_bytes"]
    return sentence(
        (
            f"{size(dead)} of {where} are of deleted ledgers" if dead else f"nothing of {where} is garbage",
            f"{size(removed)} go with logs that have no live ledger" if removed else "",
            f"compaction gives back {size(compacted)}" if compacted else "",
            f"whether {size(unknown)} are live is not known" if unknown else "",
            f"{number(damaged, 'log')} cannot be read to the end" if damaged else "",
        )
    )


GARBAGE = Job(
    name="garbage",
    summary="Share of live bytes of every entry log, and a plan of what to reclaim first.",
    inputs=(Input("logs", "logs"), Input("log_ledgers", "log_ledgers"), *LEDGER_FATE_INPUTS),
    sql=sql_text("garbage"),
    sentence=garbage_sentence,
    results=(
        ResultTable(
            "log_garbage",
            "what is alive in each log",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("log_id", "BIGINT", "entry log"),
                Column("path", "STRING", "its file"),
                Column("bytes", "BIGINT", "size of the file"),
                Column("ledgers", "BIGINT", "ledgers with entries in it"),
                Column("live_ledgers", "BIGINT", "of these, those that metadata has"),
                Column("live_bytes", "BIGINT", "bytes of their entries"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open; kept"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("live_ratio", "DOUBLE", "share of live and unknown bytes"),
                Column("action", "STRING", "remove, compact, keep, set_aside"),
                Column("why", "STRING", "why"),
            ),
            order="dead_bytes DESC, bookie, dir, log_id",
        ),
        ResultTable(
            "compaction_plan",
            "what to reclaim, in this order, by directory",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("step", "BIGINT", "place in the order of its directory"),
                Column("action", "STRING", "remove or compact"),
                Column("log_id", "BIGINT", "entry log"),
                Column("path", "STRING", "its file"),
                Column("bytes", "BIGINT", "size of the file"),
                Column("live_ratio", "DOUBLE", "share of live and unknown bytes"),
                Column("copied_bytes", "BIGINT", "what has to be copied"),
                Column("freed_bytes", "BIGINT", "what it gives back, the copy taken off"),
                Column("copied_so_far", "BIGINT", "copied up to here"),
                Column("within_budget", "BOOLEAN", "whether that is within --budget"),
            ),
            order="bookie, dir, step",
            shown=True,
        ),
        ResultTable(
            "bookie_garbage",
            "what is alive, by directory",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("logs", "BIGINT", "entry logs"),
                Column("bytes", "BIGINT", "bytes of these"),
                Column("live_bytes", "BIGINT", "bytes of live ledgers"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("removable_bytes", "BIGINT", "logs without a live ledger"),
                Column("compactable_bytes", "BIGINT", "what compaction gives back"),
            ),
            order="bookie, dir",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("logs", "BIGINT", "entry logs"),
                Column("bytes", "BIGINT", "bytes of these"),
                Column("live_bytes", "BIGINT", "bytes of live ledgers"),
                Column("unknown_bytes", "BIGINT", "bytes of ledgers that metadata leaves open"),
                Column("dead_bytes", "BIGINT", "bytes of ledgers that are gone"),
                Column("removable_bytes", "BIGINT", "logs without a live ledger"),
                Column("compactable_bytes", "BIGINT", "what compaction gives back"),
                Column("damaged_logs", "BIGINT", "logs that cannot be read to their end"),
                share_not_judged("unknown_bytes of bytes"),
            ),
            order="logs",
        ),
    ),
    found=("damaged_logs",),
    advice="'bkctl entrylog verify DIR' says what is wrong with a damaged log",
    parameters=("threshold", "budget_bytes"),
    notes=(
        "bytes are those of the ledgers maps: copies that replays and compactions leave behind count as live",
    ),
    one_snapshot_notes=(FATE_NOTE,),
    plots=(
        Plot(
            "Bytes by directory",
            "bookie_garbage",
            ("dir",),
            ("live_bytes", "unknown_bytes", "dead_bytes"),
            "bookie, dir",
            bytes_axis=True,
            meanings=("good", "unknown", "warning"),
        ),
    ),
)
