"""``verify``: the digest of every entry, and every place of a log that cannot be read.

A place that cannot be read is a finding itself, of a log, a journal or an index: no run over one is clean.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, share_not_judged
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import number, sentence


def verify_sentence(counts: Mapping[str, int]) -> str:
    """Say how many entries fail their digest, and in how many places nothing can be read."""
    entries, bad, damages = counts["entries"], counts["bad_entries"], counts["damages"]
    unchecked = counts["unchecked"]
    parts = [
        f"{bad:,} of {entries:,} entries {'fails its' if bad == 1 else 'fail their'} digest"
        if bad
        else f"no digest of {entries:,} entries fails"
    ]
    if unchecked:
        parts.append(f"{unchecked:,} could not be checked")
    if damages:
        parts.append(f"{number(damages, 'place')} cannot be read")
    return sentence(parts)


VERIFY = Job(
    name="verify",
    summary="Check the digest of every entry in the entry logs.",
    inputs=(Input("verification", "verification", digest=True),),
    sql=sql_text("verify"),
    results=(
        ResultTable(
            "bad_entries",
            "entries whose digest fails",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("log_id", "BIGINT", "entry log"),
                Column("bad_offset", "BIGINT", "offset of the body, as the index has it"),
                Column("ledger", "BIGINT", "ledger"),
                Column("entry", "BIGINT", "entry"),
                Column("digest", "STRING", "type of the digest"),
                Column("bytes", "BIGINT", "size of the body"),
            ),
            order="ledger, entry, bookie",
            shown=True,
        ),
        ResultTable(
            "damages",
            "stretches of entry logs, journals and indexes that cannot be read",
            (
                Column("kind", "STRING", "entry_log, journal, index"),
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "directory"),
                Column("path", "STRING", "file"),
                Column("damage_offset", "BIGINT", "where it begins; null in a database"),
                Column("bytes", "BIGINT", "how long it is"),
                Column("reason", "STRING", "what is wrong"),
            ),
            order="path, damage_offset",
            shown=True,
        ),
        ResultTable(
            "log_checks",
            "entries checked, by log",
            (
                Column("bookie", "STRING", "bookie"),
                Column("dir", "STRING", "ledger directory"),
                Column("log_id", "BIGINT", "entry log"),
                Column("entries", "BIGINT", "entries in it"),
                Column("well", "BIGINT", "digest agrees"),
                Column("bad", "BIGINT", "digest fails"),
                Column("unchecked", "BIGINT", "type or password of the digest is not known"),
                Column("bytes", "BIGINT", "bytes of the bodies"),
            ),
            order="bad DESC, bookie, dir, log_id",
        ),
        ResultTable(
            "unchecked_ledgers",
            "ledgers whose digest is not known",
            (
                Column("ledger", "BIGINT", "ledger"),
                Column("entries", "BIGINT", "entries that were not checked"),
                Column("bookies", "BIGINT", "bookies that hold them"),
            ),
            order="entries DESC, ledger",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("logs", "BIGINT", "entry logs with entries"),
                Column("entries", "BIGINT", "entries read"),
                Column("bytes", "BIGINT", "bytes of their bodies"),
                Column("well", "BIGINT", "digest agrees"),
                Column("bad_entries", "BIGINT", "digest fails"),
                Column("unchecked", "BIGINT", "digest not known: neither well nor bad"),
                Column("damages", "BIGINT", "places of logs, journals and indexes that cannot be read"),
                share_not_judged("unchecked of entries"),
            ),
            order="logs",
        ),
    ),
    found=("bad_entries", "damages"),
    sentence=verify_sentence,
    unexamined=("unchecked",),
    advice="'bkctl entrylog verify DIR' says what a damage took, 'bkctl doctor DIR' what to do about it",
    needs_metadata=False,
    notes=("digest types that no metadata tell are learnt from the entries; MAC ledgers need the password",),
    plots=(
        Plot(
            "Entries by log",
            "log_checks",
            ("dir", "log_id"),
            ("well", "bad", "unchecked"),
            "bad DESC, dir, log_id",
            meanings=("good", "bad", "unknown"),
        ),
    ),
)
