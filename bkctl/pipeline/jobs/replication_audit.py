"""``replication-audit``: every fragment of every ledger against what each bookie really holds.

The entries that a slot of an ensemble should hold are counted in closed form, those that it holds from
stretches of entries; gaps are looked for only where the two differ. How many copies are left of an entry is
then a matter of the pieces between gaps' ends and of the entry's remainder modulo the ensemble size, so that
losing a whole bookie costs as many rows as it had fragments, not entries.

The last fragment of an open ledger is judged up to the last add confirmed that the entry logs show (in the
entries' headers; never beyond the last entry that any bookie holds). A bookie lacks an entry of it for sure
only when it holds a later one, because it is sent the entries in their order; what is lacking behind the last
entry that it holds may be on its way, or may have been flushed after its files were read, and is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, Snapshot, share_not_judged
from bkctl.pipeline.jobs.held_entries import RUNS, UNFLUSHED
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import number, sentence

_FRAGMENT = (
    Column("ledger", "BIGINT", "ledger"),
    Column("state", "STRING", "its state"),
    Column("first_entry", "BIGINT", "first entry of the fragment"),
    Column("last_entry", "BIGINT", "last entry of the fragment; null for the open tail"),
)
_OWNER = (
    Column("application", "STRING", "application that the ledger's custom metadata name"),
    Column("topic", "STRING", "topic of Apache Pulsar's that it belongs to"),
)


def audit_sentence(counts: Mapping[str, int]) -> str:
    """Say how many entries lack copies, and whether one is lost."""
    short, below, lost = (counts[f"entries_{name}"] for name in ("short", "below_ack_quorum", "lost"))
    judged = " that was judged" if counts["slots_not_judged"] else ""
    if not counts["slots_missing"]:
        return f"Every entry{judged} has all its copies."
    lacking = "entry lacks" if short == 1 else "entries lack"
    parts = [f"{short:,} {lacking} copies, in {number(counts['ledgers_short'], 'ledger')}"]
    if below:
        which = "all of them" if below == short > 1 else f"{below:,} of them"
        parts.append(f"{which} below the ack quorum")
    parts.append(f"{lost:,} lost" if lost else f"none{judged} is lost")
    return sentence(parts)


REPLICATION_AUDIT = Job(
    name="replication-audit",
    summary="Every fragment of every ledger against what each bookie really holds.",
    inputs=(
        RUNS,
        UNFLUSHED,
        Input("bookies", "bookies"),
        Input("ledgers", "ledgers", ("ledger", "application", "topic"), snapshot=Snapshot.BEFORE),
        Input("ledgers_after", "ledgers", ("ledger",), snapshot=Snapshot.AFTER),
        Input("fragments", "fragments", snapshot=Snapshot.BEFORE),
        Input("fragments_after", "fragments", snapshot=Snapshot.AFTER),
    ),
    sql=sql_text("replication_audit"),
    results=(
        ResultTable(
            "missing",
            "entries that a bookie should hold and does not",
            (
                *_FRAGMENT,
                Column("slot", "BIGINT", "place in the ensemble"),
                Column("bookie", "STRING", "bookie that should hold them"),
                Column("first_missing", "BIGINT", "first of these entries"),
                Column("last_missing", "BIGINT", "last; with striping not all between are meant"),
                Column("missing", "BIGINT", "how many"),
                Column("why", "STRING", "whether the bookie is gone, has none or lacks a part"),
                *_OWNER,
            ),
            order="ledger, first_missing, slot",
            shown=True,
        ),
        ResultTable(
            "short_entries",
            "how many copies are left of what misses some",
            (
                Column("ledger", "BIGINT", "ledger"),
                Column("state", "STRING", "its state"),
                Column("first_entry", "BIGINT", "first entry of the stretch"),
                Column("last_entry", "BIGINT", "last; with striping not all between are meant"),
                Column("entries", "BIGINT", "how many"),
                Column("copies", "BIGINT", "copies that were found"),
                Column("missing", "BIGINT", "copies that are missing"),
                Column("unknown_copies", "BIGINT", "copies on bookies that were not examined"),
                Column("write_quorum", "BIGINT", "copies that there should be"),
                Column("ack_quorum", "BIGINT", "copies that an acknowledged entry had"),
                *_OWNER,
            ),
            order="copies, ledger, first_entry",
        ),
        ResultTable(
            "owners_short",
            "by application and topic, what misses copies",
            (
                *_OWNER,
                Column("ledgers", "BIGINT", "ledgers with a missing copy"),
                Column("entries", "BIGINT", "entries with a missing copy"),
                Column("entries_lost", "BIGINT", "entries without any copy"),
                Column("fewest_copies", "BIGINT", "copies of the entries that have the fewest"),
            ),
            order="fewest_copies, entries DESC, application, topic",
        ),
        ResultTable(
            "bookie_audit",
            "by bookie",
            (
                Column("bookie", "STRING", "bookie"),
                Column(
                    "role",
                    "STRING",
                    "examined, partly_examined (directories are lacking), not_examined, gone",
                ),
                Column("slots", "BIGINT", "places in fragments' ensembles"),
                Column("expected", "BIGINT", "entries that it should hold; of open tails those judged"),
                Column("held", "BIGINT", "of these, entries that it holds"),
                Column("missing", "BIGINT", "entries that it lacks"),
                Column("slots_ok", "BIGINT", "places where it holds all it should"),
                Column("slots_missing", "BIGINT", "places where it lacks some"),
                Column("slots_not_examined", "BIGINT", "places not judged, its directories were not given"),
                Column("slots_unknown", "BIGINT", "places not judged, open tails and changes meanwhile"),
                Column("not_judged", "BIGINT", "confirmed entries of open tails that may be on their way"),
            ),
            order="missing DESC, bookie",
            shown=True,
        ),
        ResultTable(
            "audit",
            "every place of every fragment",
            (
                *_FRAGMENT,
                Column("slot", "BIGINT", "place in the ensemble"),
                Column("bookie", "STRING", "bookie"),
                Column("ensemble_size", "BIGINT", "ensemble size"),
                Column("write_quorum", "BIGINT", "write quorum"),
                Column("ack_quorum", "BIGINT", "ack quorum"),
                Column("expected", "BIGINT", "entries that it should hold; of an open tail those judged"),
                Column("held", "BIGINT", "entries of these that it holds"),
                Column("status", "STRING", "ok, missing, not_examined, unknown"),
                Column("why", "STRING", "why it is not ok"),
                Column("judged_to", "BIGINT", "last entry up to which it was judged"),
                Column(
                    "not_judged", "BIGINT", "confirmed entries behind that, which may be on their way to it"
                ),
            ),
            order="status, ledger, first_entry, slot",
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("ledgers", "BIGINT", "ledgers with a fragment"),
                Column("slots", "BIGINT", "places of all fragments"),
                Column("slots_ok", "BIGINT", "that hold all they should"),
                Column("slots_missing", "BIGINT", "that lack entries"),
                Column(
                    "slots_not_examined",
                    "BIGINT",
                    "of bookies whose directories, or some of them, were not given",
                ),
                Column("slots_unknown", "BIGINT", "open tails, and what changed meanwhile"),
                Column(
                    "slots_not_judged",
                    "BIGINT",
                    "places that could not be judged, or not up to the last add confirmed: bookies that were "
                    "not given, replicas that moved, open tails; without ledgers that were deleted meanwhile",
                ),
                share_not_judged("slots_not_judged of slots"),
                Column("copies_missing", "BIGINT", "copies of entries that are missing"),
                Column("ledgers_short", "BIGINT", "ledgers with a missing copy"),
                Column("entries_short", "BIGINT", "entries with a missing copy"),
                Column("entries_below_ack_quorum", "BIGINT", "entries with fewer copies than ack quorum"),
                Column("entries_lost", "BIGINT", "entries without any copy"),
                Column("bookies_examined", "BIGINT", "bookies whose directories were read"),
                Column("bookies_gone", "BIGINT", "bookies that count as holding nothing"),
                Column(
                    "bookies_not_examined",
                    "BIGINT",
                    "bookies that could not be judged for want of directories",
                ),
                Column(
                    "dirs_without_cookie", "BIGINT", "directories that belong to no known bookie; left out"
                ),
            ),
            order="ledgers",
        ),
    ),
    found=("slots_missing",),
    sentence=audit_sentence,
    unexamined=("bookies_not_examined", "dirs_without_cookie", "slots_not_judged"),
    trusts_absence=True,
    advice="'bkctl ledger doctor ID' says of a ledger whether it can be read and what to run; job "
    "journal-forensics whether a journal still has what is missing",
    parameters=("complete", "bookies_gone"),
    one_snapshot_notes=(
        "metadata was read once: where the ensemble of an open ledger changed afterwards, entries count as "
        "missing that belong to a later fragment",
    ),
    notes=(
        "entries that are only in a journal after the mark count as held: the next start flushes them",
        "a ledger deleted and a replica moved between the snapshots are unknown",
        "an open ledger is judged up to the last add confirmed that the entry logs show; confirmed entries "
        "behind the last one that a bookie holds may be on their way to it and are unknown",
        "an entry counts as held when its record is in a log; 'verify' and 'index-audit' ask for more",
    ),
    plots=(
        Plot("Entries missing", "bookie_audit", ("bookie",), ("missing",), "bookie", meanings=("bad",)),
        Plot(
            "Places by bookie",
            "bookie_audit",
            ("bookie",),
            ("slots_ok", "slots_missing", "slots_not_examined", "slots_unknown"),
            "bookie",
            meanings=("good", "bad", "unknown", "unknown"),
        ),
    ),
)
