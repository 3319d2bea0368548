"""``index-audit``: the location index of every directory against its entry logs.

A first pass compares counts and a hash of (entry, location) per directory, ledger and log, from run-length
tables; only ledgers in which they differ are then read entry by entry. The hash counts modulo 2^44
(``bkctl.pipeline.tables.run_lengths``), and is summed up in two halves of 22 bits: a ledger may have
millions of stretches in a log.

The bookie may be at work. Of the ledgers that differ, locations are read before entries, so that the record
that a location leads to is there. A record behind the end that its log had in the beginning may have been
flushed after the locations were read, and is not missing in them.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, Snapshot, share_not_judged
from bkctl.pipeline.jobs.held_entries import UNFLUSHED
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import entries, number, sentence


def index_sentence(counts: Mapping[str, int]) -> str:
    """Say how many locations are wrong, and how many entries have none."""
    dangling, mismatched, missing = (counts[name] for name in ("dangling", "mismatched", "missing"))
    lost = counts["lost_ledgers"]
    rows, replayed, left = counts["locations"], counts["to_replay"], counts["dirs_without_index"]
    wrong = (
        f"{number(dangling, 'location')} without a record of the entry" if dangling else "",
        f"{number(mismatched, 'location')} with another record" if mismatched else "",
        f"{entries(missing)} without a location" if missing else "",
        f"the index has lost {number(lost, 'ledger')} of the metadata" if lost else "",
    )
    return sentence(
        (
            ", ".join(filter(None, wrong)) or f"no entry lacks its location, and all of {rows:,} are right",
            f"{entries(replayed)} will be indexed by the next start" if replayed else "",
            f"{number(left, 'directory', 'directories')} had no index to look at" if left else "",
        )
    )


INDEX_AUDIT = Job(
    name="index-audit",
    summary="The location index of every directory against what its entry logs hold.",
    inputs=(
        Input("logs", "logs", ("bookie", "dir", "log_id", "bytes", "damaged")),
        Input(
            "runs",
            "runs",
            ("bookie", "dir", "log_id", "ledger", "entries", "ids_hash"),
        ),
        Input("index_runs", "index_runs", may_lack=True),
        Input("index_ledgers", "index_ledgers", ("bookie", "dir", "ledger"), may_lack=True),
        UNFLUSHED,
        Input("bookies", "bookies"),
        Input("suspect_locations", "index_locations", may_lack=True, expands="suspects"),
        Input(
            "suspect_entries",
            "entries",
            ("bookie", "dir", "log_id", "offset", "ledger", "entry"),
            expands="suspects",
        ),
        Input("fragments_after", "fragments", ("ledger", "bookie"), snapshot=Snapshot.AFTER),
    ),
    sql=sql_text("index_audit"),
    sentence=index_sentence,
    results=(
        ResultTable(
            "index_findings",
            "locations that lead nowhere or elsewhere, and records that no location leads to",
            (
                Column("kind", "STRING", "dangling, missing, mismatch"),
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("ledger", "BIGINT", "ledger"),
                Column("entry", "BIGINT", "entry"),
                Column("index_log_id", "BIGINT", "entry log in the index; null when it has no row"),
                Column("index_offset", "BIGINT", "offset in the index"),
                Column("log_id", "BIGINT", "entry log with the newest record; null when there is none"),
                Column("log_offset", "BIGINT", "offset of its body"),
            ),
            order="kind, ledger, entry, dir",
            shown=True,
        ),
        ResultTable(
            "ledger_findings",
            "the same by ledger, lost ledgers, and what is no finding (stale, to_replay, garbage)",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("ledger", "BIGINT", "ledger"),
                Column("kind", "STRING", "dangling, missing, mismatch, lost, stale, to_replay, garbage"),
                Column("entries", "BIGINT", "entries"),
                Column("first_entry", "BIGINT", "the lowest; null for a lost ledger"),
                Column("last_entry", "BIGINT", "the highest"),
            ),
            order="kind, entries DESC, ledger, dir",
        ),
        ResultTable(
            "stale_locations",
            "locations of an older record of the same entry; it serves as well",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("ledger", "BIGINT", "ledger"),
                Column("entry", "BIGINT", "entry"),
                Column("index_log_id", "BIGINT", "entry log in the index"),
                Column("index_offset", "BIGINT", "offset in the index"),
                Column("log_id", "BIGINT", "entry log with the newest record"),
                Column("log_offset", "BIGINT", "offset of its body"),
            ),
            order="ledger, entry, dir",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("records", "BIGINT", "records in the logs"),
                Column("locations", "BIGINT", "rows of the indexes"),
                Column("ledgers_expanded", "BIGINT", "ledgers of a directory read entry by entry"),
                Column("dangling", "BIGINT", "locations without any record of the entry"),
                Column("missing", "BIGINT", "entries of known ledgers without a location"),
                Column("mismatched", "BIGINT", "locations that are not one of the entry's records"),
                Column("lost_ledgers", "BIGINT", "ledgers of the metadata that the index does not know"),
                Column("stale", "BIGINT", "locations of an older record"),
                Column("to_replay", "BIGINT", "entries that the next start indexes, from the journal"),
                Column("garbage", "BIGINT", "entries of ledgers that the bookie deleted"),
                Column("older_copies", "BIGINT", "further records of the same entries"),
                Column(
                    "dirs_without_index",
                    "BIGINT",
                    "directories whose index was not given, or not as a whole; left out",
                ),
                share_not_judged("dirs_without_index of all directories"),
            ),
            order="records",
        ),
    ),
    found=("dangling", "missing", "mismatched", "lost_ledgers"),
    unexamined=("dirs_without_index",),
    advice="'bkctl index check DIR' shows them one by one; 'bkctl index rebuild DIR' rebuilds an index, "
    "job index-rebuild many",
    needs_metadata=False,
    trusts_absence=True,
    notes=(
        "a record of a ledger without a ledger row is garbage: the bookie deleted it; unless metadata "
        "that was read twice (a URI, two dumps) place it on the bookie: its index is lost then",
        "of several records of an entry the one with the largest location counts",
        "a record counts as it stands, whatever its digest says; 'verify' checks digests",
    ),
    plots=(
        Plot(
            "Entries by kind",
            "ledger_findings",
            ("bookie", "ledger", "kind"),
            ("entries",),
            "entries DESC, ledger, kind, bookie",
            meanings=("bad",),
        ),
    ),
)
