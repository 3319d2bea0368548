"""``bkctl pipeline run``: a job over the directories of bookies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.confirmation import DryRunOption, YesOption
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.progress import progress
from bkctl.commands.pipeline.options import (
    Chosen,
    EngineName,
    ReportOptions,
    SetOptions,
    SparkOptions,
    open_engine,
    surveyed_here,
)
from bkctl.commands.pipeline.outcome_output import RUN_SCHEMA, show
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.extras import need
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.pipeline.job import Job
    from bkctl.pipeline.results import Outcome

_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        show_default=False,
        help="Name of a job; 'bkctl pipeline list' shows them.",
        autocompletion=value_completion.jobs,
    ),
]
_Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        show_default=False,
        help="Directories of bookies, folders that hold several, the URL of sets that 'collect' publishes, "
        "or the --out of an earlier run.",
    ),
]
_Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="DIR|URL", show_default=False, help="Where tables and summary.json are written."
    ),
]
_Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="FILE|URI",
        help="Metadata of ledgers: a dump ('bkctl metadata dump'); or a metadata URI, which is read before "
        "the files and again after them; or the --out of a run that kept all columns of tables ledgers and "
        "fragments. Default: BKCTL_METADATA_URI, for a job that needs metadata.",
    ),
]
_MetadataAfter = Annotated[
    str | None,
    typer.Option(
        "--metadata-after",
        metavar="FILE|URI",
        help="A second dump, which was made after the files were copied.",
    ),
]
_Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        metavar="auto|local|spark",
        help="Where the job runs. auto means local up to 50 GB of logs, otherwise Spark.",
    ),
]
_Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="URL of Spark's master: local[4], spark://..., yarn, sc://host:port."
    ),
]
_Complete = Annotated[
    bool,
    typer.Option(
        "--complete",
        help="replication-audit: all directories are given; other bookies hold nothing.",
    ),
]
_BookiesGone = Annotated[
    list[str] | None,
    typer.Option(
        "--bookies-gone", metavar="ID[,ID]", help="replication-audit: these bookies count as holding nothing."
    ),
]
_Threshold = Annotated[
    str,
    typer.Option(
        "--threshold",
        metavar="SHARE",
        help="garbage: compact logs with a smaller share of live bytes than this, 0 to 1.",
    ),
]
_Budget = Annotated[
    int,
    typer.Option(
        "--budget",
        metavar="SIZE",
        parser=parse_byte_size,
        help="garbage: bytes that may be copied in a directory, such as 100GiB; 0 means no limit.",
    ),
]
_Top = Annotated[
    int, typer.Option("--top", metavar="N", help="stats: number of rows in the list of the largest ledgers.")
]
_Entries = Annotated[
    bool, typer.Option("--entries", help="inventory: also write a row for every entry (about 15 bytes each).")
]
_Bookie = Annotated[
    str | None,
    typer.Option(
        "--bookie",
        metavar="ID",
        help="Id of the bookie that these directories belong to, instead of what their cookies say.",
    ),
]
_Digest = Annotated[
    str,
    typer.Option(
        "--digest",
        metavar="auto|off|TYPE",
        help="How the digests of entries are checked, in jobs that check them.",
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", help="Number of processes and threads. Default: one for each processor."
    ),
]
_Memory = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Limit of the memory that is used, such as 512M or 4GiB.",
    ),
]
_AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="index-rebuild: continue over damaged logs, and mark ledgers that may lack entries.",
    ),
]


@takes(RUN_SCHEMA, one=True)
def run_command(
    name: _Name,
    paths: _Paths,
    out: _Out,
    metadata: _Metadata = None,
    metadata_after: _MetadataAfter = None,
    engine: _Engine = EngineName.AUTO,
    master: _Master = None,
    complete: _Complete = False,
    bookies_gone: _BookiesGone = None,
    threshold: _Threshold = "0.8",
    budget: _Budget = "0",  # type: ignore[assignment] # typer parses the default as well
    top: _Top = 20,
    entries: _Entries = False,
    bookie: _Bookie = None,
    digest: _Digest = "auto",
    *,
    reports: ReportOptions,
    spark: SparkOptions,
    sets: SetOptions,
    password: PasswordOptions,
    jobs: _Jobs = None,
    memory: _Memory = "2GiB",  # type: ignore[assignment] # typer parses the default as well
    accept_loss: _AcceptLoss = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] [writes] Run a job over bookies' directories; only index-rebuild writes to them.

    Tables are written to DIR/<table>/*.parquet, both those that were read and the results; DIR/summary.json
    has the counts. For a fleet, run 'collect' on every bookie and give its URL as PATH. Each job then reads
    the newest complete set of each bookie, with --metadata taken before the sets and --metadata-after taken
    after them. replication-audit, garbage, orphans and stats also take the --out of an 'inventory' as PATH.

    An entry is never reported as missing while its state is not known. This concerns entries after the last
    add confirmed of an open ledger, entries of which the metadata changed between two readings, and entries
    of a bookie whose directories were not given.

    Exit code 1 when something was found, 3 when a part could not be judged; 'found' names what it is.

    Examples:

      bkctl pipeline run replication-audit /backup/bookie* --metadata cluster.json --out audit

      bkctl pipeline run garbage /data/* --metadata cluster.json --out g --threshold 0.5 -o json
    """
    from bkctl.pipeline.job import REBUILD_NAME

    need("bkctl pipeline run", "pyarrow", "duckdb")
    secret = password.read()
    where = (tuple(paths), out, metadata, metadata_after, engine, master)
    chosen = Chosen(*where, digest, secret, bookie, jobs, memory, spark.settings(), sets)
    parameters = _parameters(complete, bookies_gone, threshold, budget, top, entries)
    if name == REBUILD_NAME:
        from bkctl.commands.pipeline.index_rebuild import run_rebuild
        from bkctl.pipeline.jobs.index_rebuild import REBUILD

        job = REBUILD
        _refuse(name, _given(parameters) + reports.given())
        outcome = run_rebuild(chosen, accept_loss=accept_loss, dry_run=dry_run, yes=yes)
    else:
        from bkctl.pipeline.jobs.catalogue import job_named

        job = job_named(name)
        _refuse(name, _switched_on(dry_run=dry_run, accept_loss=accept_loss))
        outcome = _run(job, chosen, parameters, reports)
    reports.write_textfile(outcome)
    show(job, outcome, output)
    raise typer.Exit(outcome.exit_code)


def _parameters(
    complete: bool, gone: list[str] | None, threshold: str, budget: int, top: int, entries: bool
) -> dict[str, Any]:
    """Return the options of jobs, for ``Parameters``. Raises UsageError."""
    try:
        share = float(threshold)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--threshold {threshold}: is not a number above 0 and at most 1")
    if top < 1:
        raise UsageError(f"--top {top}: at least 1")
    names = [name for text in gone or () for name in text.split(",") if name]
    return {
        "complete": complete,
        "bookies_gone": tuple(names),
        "threshold": share,
        "budget_bytes": budget,
        "top": top,
        "entries": entries,
    }


def _run(job: Job, chosen: Chosen, parameters: dict[str, Any], reports: ReportOptions) -> Outcome:
    from bkctl.clock import SystemClock
    from bkctl.pipeline.job import Parameters
    from bkctl.pipeline.run import run_job
    from bkctl.pipeline.run_request import Request
    from bkctl.pipeline.tables.options import TableOptions

    _refuse(job.name, [option for option in _given(parameters) if option not in job.parameters])
    reports.check()
    request = Request(
        job,
        chosen.paths,
        chosen.out,
        chosen.metadata or (os.environ.get("BKCTL_METADATA_URI") if job.needs_metadata else None),
        chosen.metadata_after,
        Parameters(**parameters, now_ms=SystemClock().time_ms()),
        TableOptions(damage="rows", digest=chosen.digest, password=chosen.password, bookie=chosen.bookie),
        chosen.sets.wish(),
    )
    filesystem = PosixFileSystem()
    surveyed = surveyed_here(filesystem, chosen)
    with open_engine(chosen, surveyed) as engine:
        outcome = run_job(filesystem, engine, request, surveyed, _phase, _queries)
    if reports.report is not None:
        from bkctl.pipeline.report import write_report

        write_report(outcome, job, reports.report)
    return outcome


def _refuse(name: str, unheeded: list[str]) -> None:
    """Raise UsageError when options were given that a job does not heed."""
    from bkctl.pipeline.job import option_of

    if unheeded:
        raise UsageError(f"{name} does not heed --{option_of(unheeded[0]).replace('_', '-')}")


def _given(parameters: dict[str, Any]) -> list[str]:
    """Return the names of the options that are not as they are by themselves."""
    from bkctl.pipeline.job import Parameters

    standard = Parameters()
    return [name for name, value in parameters.items() if value != getattr(standard, name)]


def _switched_on(**options: bool) -> list[str]:
    return [name for name, on in options.items() if on]


def _phase(name: str, size_bytes: int) -> Any:
    return progress(name, size_bytes or None)


def _queries(name: str, count: int) -> Any:
    return progress(name, count, counts="queries")
