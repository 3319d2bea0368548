"""``replica-compare``: whether the replicas of every entry are the same bytes.

It reads entry logs alone: what cannot be read of a journal changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkctl.pipeline.job import Column, Input, Job, Plot, ResultTable, share_not_judged
from bkctl.pipeline.jobs.sql_files import sql_text
from bkctl.pipeline.sentences import entries, number, sentence

#: Columns of ``entries`` that the job reads; a set has the same ones in its table ``replicas``.
REPLICA_COLUMNS = (
    "bookie",
    "dir",
    "log_id",
    "offset",
    "ledger",
    "entry",
    "lac",
    "ledger_length",
    "payload_bytes",
    "payload_crc",
    "digest_ok",
)

_REPLICA = (
    Column("kind", "STRING", "payload or header"),
    Column("ledger", "BIGINT", "ledger"),
    Column("entry", "BIGINT", "entry"),
    Column("bookie", "STRING", "bookie of this replica"),
    Column("dir", "STRING", "its ledger directory"),
    Column("log_id", "BIGINT", "its entry log"),
    Column("log_offset", "BIGINT", "offset of the body"),
    Column("payload_bytes", "BIGINT", "length of the payload"),
    Column("payload_crc", "BIGINT", "CRC-32C of the payload"),
    Column("lac", "BIGINT", "last add confirmed in the header"),
    Column("ledger_length", "BIGINT", "running length in the header"),
    Column("digest_ok", "BOOLEAN", "whether this replica's digest agrees; null when not known"),
)


def comparison_sentence(counts: Mapping[str, int]) -> str:
    """Say how many entries are not the same on all bookies."""
    compared, blocks, undecided = (
        counts[name] for name in ("entries_compared", "blocks", "blocks_undecided")
    )
    differing, headers, unknown = (
        counts[name] for name in ("payload_differs", "header_differs", "uncompared")
    )
    if differing:
        said = f"{differing:,} of {entries(compared)} with several copies differ"
        said += f", in {number(counts['ledgers_divergent'], 'ledger')}"
    elif compared:
        said = f"all copies of {entries(compared)} have the same payload"
    else:
        said = "no payload differs" if blocks else "no entry is on more than one of these bookies"
    return sentence(
        (
            said,
            f"{entries(headers)} differ in the header alone" if headers else "",
            f"{undecided:,} of {number(blocks, 'block')} need a look at each entry" if undecided else "",
            f"the digest of {number(unknown, 'record')} is not known" if unknown else "",
        )
    )


REPLICA_COMPARE = Job(
    name="replica-compare",
    summary="Whether the replicas of every entry are the same bytes.",
    inputs=(
        Input(
            "replicas",
            "entries",
            REPLICA_COLUMNS,
            digest=True,
        ),
        Input("blocks", "blocks", published_only=True),
        Input("expanded_blocks", "expanded_blocks", published_only=True),
    ),
    sql=sql_text("replica_compare"),
    sentence=comparison_sentence,
    results=(
        ResultTable(
            "divergent",
            "replicas with different payloads",
            _REPLICA,
            order="ledger, entry, bookie",
            shown=True,
        ),
        ResultTable(
            "header_differences",
            "replicas with the same payload under different headers",
            _REPLICA,
            order="ledger, entry, bookie",
        ),
        ResultTable(
            "ledger_divergence",
            "by ledger",
            (
                Column("ledger", "BIGINT", "ledger"),
                Column("payload_differs", "BIGINT", "entries whose payloads differ"),
                Column("header_differs", "BIGINT", "entries of which only headers differ"),
                Column("first_entry", "BIGINT", "the lowest of these"),
                Column("last_entry", "BIGINT", "the highest"),
            ),
            order="payload_differs DESC, header_differs DESC, ledger",
        ),
        ResultTable(
            "blocks_to_compare",
            "blocks of entries in sets whose digests do not decide; for 'collect --blocks'",
            (
                Column("bookie", "STRING", "bookie that holds entries of it"),
                Column("ledger", "BIGINT", "ledger"),
                Column("block", "BIGINT", "block"),
                Column("first_entry", "BIGINT", "first entry of the block"),
                Column("last_entry", "BIGINT", "last entry of the block"),
            ),
            order="ledger, block, bookie",
            shown=True,
        ),
        ResultTable(
            "summary",
            "counts",
            (
                Column("records", "BIGINT", "records read"),
                Column("entries", "BIGINT", "entries among them"),
                Column("entries_compared", "BIGINT", "entries on more than one bookie"),
                Column("payload_differs", "BIGINT", "entries whose payloads differ"),
                Column("header_differs", "BIGINT", "entries of which only headers differ"),
                Column("ledgers_divergent", "BIGINT", "ledgers with different payloads"),
                Column(
                    "uncompared", "BIGINT", "records whose digest type is not known, so nor is their payload"
                ),
                Column("blocks", "BIGINT", "blocks of entries in sets"),
                Column("blocks_undecided", "BIGINT", "of these, those to be compared entry by entry"),
                share_not_judged("blocks_undecided of blocks, without sets uncompared of records"),
            ),
            order="records",
        ),
    ),
    found=("payload_differs",),
    unexamined=("blocks_undecided",),
    advice="job verify says which of the replicas fail their digest; 'bkctl ledger doctor ID' what a reader "
    "of the ledger gets",
    needs_metadata=False,
    trusts_absence=True,
    notes=(
        "of several records of an entry on a bookie the one with the largest location counts",
        "sets are compared by digests of blocks; where these do not decide, 'collect --blocks' on the "
        "bookies that table blocks_to_compare names, and another run, compare entries",
        "headers carry the last add confirmed of their writing, which a recovery may change: no finding",
    ),
    plots=(
        Plot(
            "Entries that differ",
            "ledger_divergence",
            ("ledger",),
            ("payload_differs", "header_differs"),
            "payload_differs DESC, header_differs DESC, ledger",
            meanings=("bad", "warning"),
        ),
    ),
)
