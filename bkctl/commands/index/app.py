"""``bkctl index``: where entries are, and what a bookie knows of its ledgers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import EntryOption, LedgerOption, OutputOption, PathsArgument, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import paths_or_default, split_targets
from bkctl.commands.index import check, compact, limbo, rebuild, repair, statistics
from bkctl.commands.index.databases import index_dirs
from bkctl.errors import UsageError
from bkctl.scan.files.indexes import get_index_entry, list_index_ledgers, scan_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem

app = noun_app(
    "The index of a bookie, RocksDB or .idx files: where each entry is, and which ledgers there are."
)

LOCATION_SCHEMA: Schema = (
    Key("dir", "string", "directory of the index; a log id means something only with it"),
    Key("ledger", "int", "ledger id"),
    Key("entry", "int", "entry id"),
    Key("log_id", "int", "entry log, decimal"),
    Key("offset", "int", "offset of the entry's body in the log"),
)

LEDGERS_SCHEMA: Schema = (
    Key("dir", "string", "directory of the index"),
    Key("ledger", "int", "ledger id"),
    Key("fenced", "bool", "whether writers are shut out"),
    Key("master_key", "string or null", "hexadecimal, with --show-secrets"),
    Key("explicit_lac", "int or null", "explicit last add confirmed"),
    Key("limbo", "bool", "whether a missing entry means that it is unknown"),
    Key("key_bytes", "int", "16 for a row that Java's index rebuild wrote, 8 otherwise"),
)


class _Findings:
    """Reports damaged rows on stderr and remembers the exit code."""

    def __init__(self) -> None:
        self.exit_code = 0

    def watch(self, rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            if not isinstance(row, IndexDamage):
                yield row
                continue
            self.exit_code = 1
            where = f" row {row.key_hex}" if row.key_hex else ""
            at = f" at {row.offset}" if row.offset is not None else ""
            sys.stderr.write(f"bkctl: {row.path}: damage{where}{at}: {row.reason}\n")


@app.command("scan")
@takes(LOCATION_SCHEMA)
def scan_command(
    paths: PathsArgument,
    ledger: LedgerOption = None,
    entry: EntryOption = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] List every location in the index, in order of ledger and entry.

    The command takes no lock and leaves no file behind, so it can also read the databases of a running
    bookie. A row that cannot be decoded is reported on stderr, and the exit code is then 1.

    Examples:

      bkctl index scan /data/bookie/ledgers --ledger 42

      bkctl index scan /data/bookie -o csv
    """
    if entry is not None and ledger is None:
        raise UsageError("--entry needs --ledger")
    findings = _Findings()
    rows = scan_index(PosixFileSystem(), index_dirs(paths), ledger=ledger, entries=entry)
    with progress("reading the index", streams_rows=True):
        write_rows(findings.watch(rows), LOCATION_SCHEMA, output)
    raise typer.Exit(findings.exit_code)


@app.command("ledgers")
@takes(LEDGERS_SCHEMA)
def ledgers_command(
    paths: PathsArgument,
    every_row: Annotated[
        bool, typer.Option("--every-row", help="Also show the second, 16-byte row of a ledger.")
    ] = False,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Show the master keys of ledgers; they are secret.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] List every ledger in the index: fenced, explicit LAC, limbo.

    The command takes no lock, so it can also read the index of a running bookie. A row that cannot be decoded
    is reported on stderr, and the exit code is then 1.

    Examples:

      bkctl index ledgers /data/bookie/ledgers

      bkctl index ledgers /data/bookie --show-secrets -o json
    """
    findings = _Findings()
    found = list_index_ledgers(PosixFileSystem(), index_dirs(paths), every_row=every_row)
    rows = (
        {
            "dir": row.dir,
            "ledger": row.ledger,
            "fenced": row.fenced,
            "master_key": row.master_key.hex() if show_secrets else None,
            "explicit_lac": row.explicit_lac,
            "limbo": row.limbo,
            "key_bytes": row.key_bytes,
        }
        for row in findings.watch(found)
    )
    write_rows(rows, LEDGERS_SCHEMA, output)
    raise typer.Exit(findings.exit_code)


@app.command("get")
@takes(LOCATION_SCHEMA)
def get_command(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="LEDGER ENTRY [PATH...]",
            help="Id of the ledger, id of the entry, and paths as in other verbs.",
        ),
    ],
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Say where one entry is. Exit code 6 when the index has no such entry.

    An index that cannot be read is an error (exit code 7); it never counts as "no such entry". 'bkctl
    entrylog scan' shows the record at this place. An entry that was not flushed to an entry log yet is shown
    by 'bkctl journal scan'.

    Examples:

      bkctl index get 42 17 /data/bookie/ledgers

      bkctl entrylog scan /data/bookie --ledger 42 --entry 17 --payload text
    """
    paths, ids = split_targets(targets, int)
    if len(ids) != 2:
        raise UsageError("name the ledger and the entry: bkctl index get LEDGER ENTRY [PATH...]")
    rows = get_index_entry(PosixFileSystem(), index_dirs(paths_or_default(paths)), *ids)
    if len(rows) == 1:
        write_one(rows[0], LOCATION_SCHEMA, output)
    else:
        write_rows(rows, LOCATION_SCHEMA, output)


check.register(app)
rebuild.register(app)
app.command("repair")(repair.repair_command)
app.command("limbo")(limbo.limbo_command)
app.command("stats")(statistics.stats_command)
app.command("compact")(compact.compact_command)
