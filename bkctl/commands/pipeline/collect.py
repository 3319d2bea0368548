"""``bkctl pipeline collect``: one pass over a bookie's files, one set in a store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.metadata_options import LedgerMetadataOptions, dump_and_store
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.commands.frame.progress import progress
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.extras import need
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.pipeline.sets.choice import SetWish

COLLECT_SCHEMA: Schema = (
    Key("bookie", "string", "the bookie, as its cookie says"),
    Key("set", "string", "directory of the set"),
    Key("verdict", "string", "clean, found (damage), unexamined (something could not be read)"),
    Key("exit_code", "int", "0, 1, 3"),
    Key("logs_read", "int", "entry logs that were read"),
    Key("logs_carried", "int", "entry logs that did not change: their rows were taken over"),
    Key("logs_gone", "int", "entry logs that went away while files were read"),
    Key("log_bytes_read", "int", "bytes of the logs that were read"),
    Key("set_bytes", "int", "bytes of the set's tables"),
    Key("rows", "object", "rows by table"),
    Key("guards", "array of strings", "what could not be read, or was not given"),
    Key("not_read", "object", "why a table lacks a part, by table"),
    Key("seconds", "number", "how long it took"),
    Key("base", "string or null", "the set from which rows were taken over"),
)

_Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH", show_default=False, help="The directories of one bookie."),
]
_To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="URL",
        show_default=False,
        help="Where sets are published: a directory, or s3://, gs://, abfs://, hdfs://, file://.",
    ),
]
_Full = Annotated[bool, typer.Option("--full", help="Read every log, including those that did not change.")]
_Resume = Annotated[bool, typer.Option("--resume", help="Continue the set of an interrupted run.")]
_Rate = Annotated[
    int,
    typer.Option(
        "--rate",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Limit of the bytes of logs that are read in a second, such as 50MiB; 0 means no limit.",
    ),
]
_Blocks = Annotated[
    str | None,
    typer.Option(
        "--blocks",
        metavar="DIR",
        help="Also collect all entries of the blocks that are named in this table of job replica-compare.",
    ),
]
_Bookie = Annotated[
    str | None,
    typer.Option("--bookie", metavar="ID", help="Id of the bookie that these directories belong to."),
]
_Digest = Annotated[
    str, typer.Option("--digest", metavar="auto|off|TYPE", help="How the digests of entries are checked.")
]
_Jobs = Annotated[int, typer.Option("--jobs", metavar="N", help="Number of processes.")]
_Memory = Annotated[
    int,
    typer.Option(
        "--memory", metavar="SIZE", parser=parse_byte_size, help="Limit of the memory that queries use."
    ),
]


@takes(COLLECT_SCHEMA)
def collect_command(
    paths: _Paths,
    to: _To,
    full: _Full = False,
    resume: _Resume = False,
    rate: _Rate = "0",  # type: ignore[assignment] # typer parses the default as well
    blocks: _Blocks = None,
    bookie: _Bookie = None,
    digest: _Digest = "auto",
    *,
    known: LedgerMetadataOptions,
    password: PasswordOptions,
    jobs: _Jobs = 1,
    memory: _Memory = "1GiB",  # type: ignore[assignment] # typer parses the default as well
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Read a bookie's files once and publish what they hold as a set of tables.

    Run this command on every bookie, by a timer, while the bookie runs: it reads with the idle priority of
    the disk. A log that did not change since the last set is not read again. 'bkctl pipeline run' takes the
    URL as PATH, and reads the newest complete set of every bookie.

    Exit code 1 when there is damage, 3 when something could not be read; in both cases the set is published
    and records it.

    Examples:

      bkctl pipeline collect /data/bookie --to s3://audits/sets --rate 100MiB

      bkctl pipeline run replication-audit s3://audits/sets --metadata cluster.json --out audit
    """
    from bkctl.pipeline.locations import located
    from bkctl.pipeline.sets.collection import CollectRequest, collect
    from bkctl.pipeline.sets.pace import idle
    from bkctl.pipeline.sets.store import SetStore
    from bkctl.pipeline.tables.options import TableOptions

    need("bkctl pipeline collect", "pyarrow", "duckdb")
    if jobs < 1:
        raise UsageError("--jobs: at least 1")
    dump, uri = dump_and_store(known.metadata, known.ledger_metadata, known.metadata_uri)
    options = TableOptions(
        damage="rows", digest=digest, metadata=dump or uri, password=password.read(), bookie=bookie
    )
    request = CollectRequest(tuple(paths), options, full, resume, rate, jobs, memory, blocks)
    with idle():
        collected = collect(PosixFileSystem(), SetStore(located(to)), request, _phase)
    row = collected.as_row()
    write_one(row, COLLECT_SCHEMA, output)
    for guard in row["guards"]:
        sys.stderr.write(f"bkctl: note: {guard}\n")
    raise typer.Exit(collected.exit_code)


def _phase(name: str, size_bytes: int) -> Any:
    return progress(name, size_bytes)


def set_wish(as_of: str | None, max_age_ms: int) -> SetWish:
    """Return what ``--as-of`` and ``--max-age`` say. Raises UsageError."""
    from bkctl.pipeline.sets.choice import SetWish, parse_time

    try:
        when = None if as_of is None else parse_time(as_of)
    except ValueError:
        raise UsageError(f"--as-of {as_of}: expected a time such as 2026-11-23T04:00:00Z") from None
    return SetWish(when, max_age_ms)
