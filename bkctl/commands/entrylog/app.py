"""``bkctl entrylog``: what is in entry logs."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname
from typing import Annotated, Any

import typer

from bkctl.admin.logs import file_steps
from bkctl.commands.entrylog import quarantine, salvage
from bkctl.commands.frame.entry_options import Digest, DigestOption, Payload, PayloadOption
from bkctl.commands.frame.entry_rows import ENTRY_KEYS, EntryRows
from bkctl.commands.frame.findings import (
    VERDICT_SCHEMA,
    Unopened,
    damage_row,
    exit_code_of,
    tell,
    tell_unchecked,
    write_verdicts,
)
from bkctl.commands.frame.metadata_options import LedgerMetadataOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import (
    EntryOption,
    EntryRange,
    LedgerOption,
    LogOption,
    OutputOption,
    PasswordOptions,
    PathsArgument,
    noun_app,
    parse_entry_range,
    parse_log_id,
)
from bkctl.commands.frame.output import (
    Format,
    Key,
    Schema,
    chosen_format,
    streams_lines,
    write_lines,
    write_one,
    write_rows,
)
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import no_ids, paths_or_default, split_targets
from bkctl.errors import NotFoundError, UsageError
from bkctl.reporting import counted
from bkctl.scan.checked import Wanted
from bkctl.scan.damage import Damage
from bkctl.scan.directory import LogFile
from bkctl.scan.files import entrylogs
from bkctl.scan.files.paths import entry_logs
from bkctl.vfs import PosixFileSystem

app = noun_app("What is in the entry logs of a bookie, and what can be saved of it.")


LIST_SCHEMA: Schema = (
    Key("dir", "string", "directory of the log; a log id means something only with it", wide=True),
    Key("log_id", "int", "id, decimal"),
    Key("path", "string", "the file"),
    Key("bytes", "int", "length of the file"),
    Key("version", "int or null", "format version, null when the header cannot be read"),
    Key("has_ledgers_map", "bool", "whether the log was rolled and has its map of ledgers"),
    Key("ledgers", "int or null", "ledgers in the map"),
)

SCAN_SCHEMA: Schema = (
    Key("dir", "string", "directory of the log"),
    Key("log_id", "int", "id, decimal"),
    Key("path", "string", "the file"),
    Key("offset", "int", "offset of the entry's body, as the index stores it"),
    Key("size", "int", "bytes of the body"),
    *ENTRY_KEYS,
)

SHOW_SCHEMA: Schema = (
    Key("dir", "string", "directory of the log"),
    Key("log_id", "int", "id, decimal"),
    Key("path", "string", "the file"),
    Key("bytes", "int", "length of the file"),
    Key("entries", "int or null", "entries, null when only the map was read"),
    Key("ledgers", "array", "of {ledger, bytes, entries}; bytes count the size words"),
    Key("source", "string", "map (the ledgers map) or walk (every record)"),
    Key("damage", "array", "of {offset, bytes, reason, expected, found, missing}"),
)


@app.command("list")
@takes(LIST_SCHEMA)
def list_command(paths: PathsArgument, output: OutputOption = None) -> None:
    """[offline] [reads] List entry logs: id, length, version, ledgers map.

    Examples:

      bkctl entrylog list /data/bookie/ledgers

      bkctl entrylog list /data/bookie -o csv
    """
    filesystem = PosixFileSystem()
    write_rows(entrylogs.list_logs(filesystem, entry_logs(filesystem, paths)), LIST_SCHEMA, output)


@app.command("show")
@takes(SHOW_SCHEMA)
def show_command(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="[ID] [PATH...]", help="A log id (28, 0x1c, 1c.log) and where it is."),
    ],
    log: LogOption = None,
    walk: Annotated[
        bool, typer.Option("--walk", help="Read every record, even if the log has a ledgers map.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Show which ledgers an entry log holds, and their bytes and entries.

    Examples:

      bkctl entrylog show 1c.log /data/bookie/ledgers

      bkctl entrylog show /data/bookie/ledgers/current/1c.log --walk -o json
    """
    filesystem = PosixFileSystem()
    found = _one_log(filesystem, targets, log)
    with progress("walking", found.size_bytes) as advance:
        contents = entrylogs.show_log(filesystem, found, walk=walk, advance=_absolute(advance))
    if chosen_format(output, one=True) is Format.TABLE:
        _show_table(contents)
    else:
        row = {key.key: getattr(contents, key.key) for key in SHOW_SCHEMA}
        row["damage"] = [damage_row(damage) for damage in contents.damage]
        write_one(row, SHOW_SCHEMA, output)
    for damage in contents.damage:
        tell(damage)
    if contents.damage:
        raise typer.Exit(1)


def _one_log(filesystem: PosixFileSystem, targets: list[str], log: int | None) -> LogFile:
    paths, ids = split_targets(targets, parse_log_id)
    if log is not None:
        ids.append(log)
    if len(ids) > 1:
        raise UsageError("name one log")
    logs = entry_logs(filesystem, paths_or_default(paths), ids[0] if ids else None)
    if not logs:
        raise NotFoundError(f"no entry log in {', '.join(paths)}")
    if len(logs) > 1:
        listed = ", ".join(found.path for found in logs[:5]) + (", ..." if len(logs) > 5 else "")
        raise UsageError(f"{len(logs)} logs fit, name one by its id or its path: {listed}")
    return logs[0]


def _absolute(advance: Any) -> Any:
    """Turn positions into steps."""
    done = 0

    def at(position: int) -> None:
        nonlocal done
        advance(position - done)
        done = position

    return at


def _show_table(contents: entrylogs.EntryLogContents) -> None:
    entries = "" if contents.entries is None else f", {counted(contents.entries, 'entry', 'entries')}"
    typer.echo(
        f"{contents.path}: log {contents.log_id} (0x{contents.log_id:x}), {counted(contents.bytes, 'byte')}"
        f"{entries}, {counted(len(contents.ledgers), 'ledger')} by {contents.source}"
    )
    schema = (Key("ledger", "int", ""), Key("bytes", "int", ""), Key("entries", "int or null", ""))
    write_rows(contents.ledgers, schema, Format.TABLE)


@app.command("scan")
@takes(SCAN_SCHEMA)
def scan_command(
    paths: PathsArgument,
    log: LogOption = None,
    ledger: LedgerOption = None,
    entry: EntryOption = None,
    file_bytes: Annotated[
        EntryRange | None,
        typer.Option(
            "--bytes",
            metavar="A[-B]",
            parser=parse_entry_range,
            help="Show only entries whose records touch these bytes of the file, both ends included.",
        ),
    ] = None,
    payload: PayloadOption = Payload.NONE,
    digest: DigestOption = Digest.AUTO,
    *,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] List every entry in entry logs: its place, its header, its digest's verdict.

    An entry that no flush has written to a log yet is only in a journal: use 'bkctl journal scan'. Damage is
    reported on stderr, and the scan continues after it. The exit code is 1 when there was damage, or an entry
    whose digest does not match.

    Examples:

      bkctl entrylog scan /data/bookie/ledgers --log 1c.log

      bkctl entrylog scan /data/bookie --ledger 42 --entry 17 --payload text

      bkctl entrylog scan /data/bookie --ledger 42 --entry 0-99 --payload base64 -o ndjson

      bkctl entrylog scan /data/bookie --log 1c.log --bytes 4096-8191
    """
    filesystem = PosixFileSystem()
    no_ids(paths, "--log")
    logs = entry_logs(filesystem, paths, log)
    secret = password.read()
    found = _Findings()
    unopened = Unopened()
    with (
        metadata.book(digest, secret, [dirname(log.path) for log in logs]) as book,
        progress("scanning", sum(log.size_bytes for log in logs), streams_rows=True) as advance,
    ):
        items = found.watch(
            entrylogs.scan_logs(
                filesystem, logs, book, Wanted(ledger, entry, file_bytes), advance, unopened.add
            )
        )
        makers = _Makers(payload.value)
        if streams_lines(output):
            write_lines(makers.of(item.log).ndjson(item.entries) for item in items)
        else:
            write_rows(
                (row for item in items for row in makers.of(item.log).rows(item.entries)), SCAN_SCHEMA, output
            )
    unopened.check()
    raise typer.Exit(found.exit_code)


class _Findings:
    """Reports damage as it comes, and remembers the facts on which the exit code depends."""

    def __init__(self) -> None:
        self.exit_code = 0

    def watch(self, items: Iterator[entrylogs.LogEntries | Damage]) -> Iterator[entrylogs.LogEntries]:
        for item in items:
            if isinstance(item, Damage):
                tell(item)
                self.exit_code = 1
                continue
            if item.entries.check.suspicious:
                self.exit_code = 1
            yield item


class _Makers:
    """One row maker per log."""

    def __init__(self, payload: str) -> None:
        self._payload = payload
        self._log: LogFile | None = None
        self._maker: EntryRows | None = None

    def of(self, log: LogFile) -> EntryRows:
        if self._maker is None or log is not self._log:
            head = {"dir": log.directory, "log_id": log.log_id, "path": log.path}
            self._log, self._maker = log, EntryRows(head, offset_shift=4, payload=self._payload)
        return self._maker


@app.command("verify")
@takes(VERDICT_SCHEMA)
def verify_command(
    paths: PathsArgument,
    log: LogOption = None,
    digest: DigestOption = Digest.AUTO,
    *,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Check entry logs: framing, ledgers map, every digest. Exit code 1 on damage.

    A log without a map is normal, and so is a torn last record. Damage is shown with its byte range, with
    what was expected and found there, and with the lost entries, as far as the index, the map or the records
    around it show them.

    The digest type of a ledger comes from its metadata, or else from its entries. When the digests of some
    entries could not be checked, the verdict is 'unchecked' and the exit code is 3, even if there is also
    damage. stderr then says which option makes it possible to check them.

    Examples:

      bkctl entrylog verify /data/bookie/ledgers

      bkctl entrylog verify /data/bookie/ledgers/current/1c.log --metadata zk.json -o json
    """
    filesystem = PosixFileSystem()
    no_ids(paths, "--log")
    logs = entry_logs(filesystem, paths, log)
    secret = password.read()
    unopened = Unopened()
    with (
        metadata.book(digest, secret, [dirname(log.path) for log in logs]) as book,
        progress("verifying", sum(log.size_bytes for log in logs)) as advance,
    ):
        verdicts = list(entrylogs.verify_logs(filesystem, logs, book, advance, unopened.add))
    write_verdicts(verdicts, file_steps.of_log, output)
    tell_unchecked(verdicts, book)
    unopened.check()
    raise typer.Exit(exit_code_of(verdicts))


app.command("salvage")(salvage.salvage_command)
app.command("quarantine")(quarantine.quarantine_command)
