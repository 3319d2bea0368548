"""``journal-forensics``: records of the journals that are in no entry log, or in no index."""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, share_not_judged
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import entries, number, sentence

_RECORD = (
    Column("status", "STRING", "to_replay, lost, unindexed, deleted"),
    Column("bookie", "STRING", "bookie"),
    Column("journal_id", "BIGINT", "journal"),
    Column("path", "STRING", "its file"),
    Column("record_offset", "BIGINT", "offset of the record, as lastMark counts"),
    Column("ledger", "BIGINT", "ledger"),
    Column("entry", "BIGINT", "entry"),
    Column("after_mark", "BOOLEAN", "whether the next start replays it"),
    Column("in_logs", "BOOLEAN", "whether an entry log has the entry"),
    Column("in_index", "BOOLEAN", "whether the index has it"),
)

_UNDECIDED = "before the mark, in no log, and not every directory or no index of the bookie was given"


def forensics_sentence(counts: Mapping[str, int]) -> str:
    """Say how many acknowledged entries no index leads to."""
    lost, unindexed, undecided = (counts[name] for name in ("lost", "unindexed", "undecided"))
    records, replayed = counts["records"], counts["to_replay"]
    judged = " that was judged" if undecided else ""
    wrong = (
        f"of {entries(lost)} a journal in front of the last mark has the only copy" if lost else "",
        f"{entries(unindexed)} in a log have no location" if unindexed else "",
    )
    return sentence(
        (
            "; ".join(filter(None, wrong)) or f"none of {number(records, 'record')}{judged} is out of reach",
            f"{entries(replayed)} will be replayed by the next start" if replayed else "",
            f"{number(undecided, 'record')} could not be judged by the directories that were given"
            if undecided
            else "",
        )
    )


JOURNAL_FORENSICS = Job(
    name="journal-forensics",
    summary="Acknowledged entries that are only in a journal, or that no index leads to.",
    inputs=(
        Input(
            "journal_entries",
            "journal",
            ("bookie", "journal_id", "path", "offset", "kind", "ledger", "entry", "after_mark"),
            reduce="""
                SELECT j.bookie AS bookie, j.journal_id AS journal_id, j.path AS path, j.offset AS offset,
                       j.ledger AS ledger, j.entry AS entry, j.after_mark AS after_mark
                FROM journal j WHERE j.kind = 'entry'
            """,
        ),
        Input("runs", "runs", ("bookie", "ledger", "first", "last"), may_lack=True),
        Input("index_runs", "index_runs", ("bookie", "ledger", "first", "last"), may_lack=True),
        Input("index_ledgers", "index_ledgers", ("bookie", "ledger"), may_lack=True),
        Input("bookies", "bookies"),
    ),
    sql=sql_text("journal_forensics"),
    sentence=forensics_sentence,
    results=(
        ResultTable(
            "lost_records",
            "entries before the mark that no log has, or that no index leads to",
            _RECORD,
            order="bookie, ledger, entry, record_offset",
            shown=True,
        ),
        ResultTable(
            "unflushed_records",
            "entries after the mark that are not flushed and indexed yet; the next start replays them",
            _RECORD,
            order="bookie, ledger, entry, record_offset",
        ),
        ResultTable(
            "bookie_journals",
            "by bookie",
            (
                Column("bookie", "STRING", "bookie"),
                Column("journals", "BIGINT", "journals with entries"),
                Column("records", "BIGINT", "records of entries"),
                Column("after_mark", "BIGINT", "of these, after the mark"),
                Column("flushed", "BIGINT", "in a log and in the index"),
                Column("to_replay", "BIGINT", "after the mark and not flushed"),
                Column("deleted", "BIGINT", "not there because the bookie deleted the ledger"),
                Column("undecided", "BIGINT", _UNDECIDED),
                Column("unindexed", "BIGINT", "before the mark, in a log, not in the index"),
                Column("lost", "BIGINT", "before the mark, in no log: the journal has the only copy"),
            ),
            order="lost DESC, bookie",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("records", "BIGINT", "records of entries in journals"),
                Column("after_mark", "BIGINT", "of these, after the mark"),
                Column("flushed", "BIGINT", "in a log and in the index"),
                Column("to_replay", "BIGINT", "after the mark and not flushed"),
                Column("deleted", "BIGINT", "not there because the bookie deleted the ledger"),
                Column("undecided", "BIGINT", _UNDECIDED),
                Column("unindexed", "BIGINT", "before the mark, in a log, not in the index"),
                Column("lost", "BIGINT", "before the mark, in no log: the journal has the only copy"),
                share_not_judged("undecided of records"),
            ),
            order="records",
        ),
    ),
    found=("unindexed", "lost"),
    unexamined=("undecided",),
    advice="keep these journals; 'bkctl doctor DIR' says what else is wrong there, 'bkctl index rebuild DIR' "
    "indexes what is in a log",
    needs_metadata=False,
    trusts_absence=True,
    notes=(
        "what is after the mark and not flushed is the normal trace of a bookie that was not stopped",
        "a ledger without a ledger row counts as deleted by the bookie",
    ),
    plots=(
        Plot(
            "Records of entries",
            "bookie_journals",
            ("bookie",),
            ("flushed", "to_replay", "deleted", "undecided", "unindexed", "lost"),
            "bookie",
            meanings=("good", "warning", "amount", "unknown", "warning", "bad"),
        ),
    ),
)
