"""``bkctl index check``: the location index against the entry logs, in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.known_cluster import KnownClusterOptions, known_cluster
from bkctl.commands.frame.metadata_options import DumpOrClusterOptions, OldDumpOption
from bkctl.commands.frame.next_steps import NEXT_KEYS, next_keys
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.config.byte_size import parse_byte_size
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.check.finding import Finding
    from bkctl.directories.index_spaces import IndexSpace

CHECK_SCHEMA: Schema = (
    Key("kind", "string", "what is wrong: dangling_location, missing_location, ..."),
    Key("severity", "string", "damage, or note for what is natural or repairs itself"),
    Key("dir", "string", "directory of the index, or of the damaged log"),
    Key("ledger", "int or null", "ledger id"),
    Key("entry", "int or null", "entry id"),
    Key("log_id", "int or null", "entry log, decimal"),
    Key("offset", "int or null", "offset of the entry's body in the log, or of the damage"),
    Key("detail", "string", "the evidence"),
    *NEXT_KEYS,
)

MEMORY_DEFAULT = "256M"
_MEMORY_MIN = 1 << 20


class CheckDigest(StrEnum):
    """Values of ``--digest``."""

    AUTO = "auto"
    OFF = "off"


def _parse_memory(text: str) -> int:
    """Parse an amount of memory, at least 1 MiB. Raises ValueError."""
    size = parse_byte_size(text)
    if size < _MEMORY_MIN:
        raise ValueError(f"{text!r} is less than 1M.")
    return size


def register(app: typer.Typer) -> None:
    """Add the command to the app of ``bkctl index``."""
    app.command("check")(check_command)


@takes(CHECK_SCHEMA)
def check_command(
    context: typer.Context,
    paths: PathsArgument,
    digest: Annotated[
        CheckDigest,
        typer.Option(
            "--digest",
            metavar="auto|off",
            help="With auto, an entry with a wrong digest does not count as a copy; off checks no digest.",
        ),
    ] = CheckDigest.AUTO,
    ledger_metadata: OldDumpOption = None,
    *,
    store: DumpOrClusterOptions,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            metavar="SIZE",
            parser=_parse_memory,
            help="Memory for rows, such as 1G, in addition to about 150 MB for the program and the database.",
        ),
    ] = MEMORY_DEFAULT,  # type: ignore[assignment]
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Check the index against the entry logs, and the logs against the index.

    Exit code 1 when there is damage, 0 when there are only notes. Entries of ledgers that the index does not
    know count as garbage of deleted ledgers, unless --metadata says that these ledgers exist. The metadata of
    another cluster are refused (exit code 4).

    An entry that the next start replays from the journal is a note. An entry that is only in a journal before
    the last mark is damage, because no start replays it and readers do not find it. The other directories of
    the bookie are found by its cookie. While the bookie runs, entries that it writes or moves at that moment
    may be reported as wrong.

    If memory is too small, sorting needs 24 bytes of temporary disk space (TMPDIR) for each entry.

    Examples:

      bkctl index check /data/bookie/ledgers

      bkctl index check /data/bookie --metadata zk.json --memory 1G -o ndjson
    """
    from bkctl.admin.index.check.check import CheckOptions, check_spaces
    from bkctl.admin.ledgers.known_ledgers import metadata_in
    from bkctl.admin.logs.digests import digest_book
    from bkctl.directories.index_spaces import index_spaces
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    spaces = index_spaces(filesystem, directories(filesystem, paths), emptied=True)
    known = KnownClusterOptions(ledger_metadata, cluster=store)
    found = _Findings(known.again(context), paths)
    with known_cluster(context, known) as cluster:
        find = (lambda ledger: metadata_in(cluster, ledger)) if cluster.is_asked else None
        book = digest_book(filesystem, mode=digest.value, find=find)
        options = CheckOptions(book, None, memory, cluster)
        with progress("checking", sum(space.bytes_total for space in spaces), streams_rows=True) as advance:
            rows = check_spaces(filesystem, spaces, options, advance)
            write_rows(
                found.watch(rows),
                CHECK_SCHEMA,
                output,
                clean=lambda: _clean(spaces, by_digest=digest is CheckDigest.AUTO),
            )
    raise typer.Exit(found.exit_code)


def _clean(spaces: Sequence[IndexSpace], *, by_digest: bool) -> str:
    """Return what was checked, for a check that found nothing."""
    indexes = counted(sum(len(space.index_dirs) for space in spaces), "index", "indexes")
    logs = counted(sum(len(space.logs) for space in spaces), "entry log")
    text = f"{indexes} against {logs}, nothing found"
    return text if by_digest else f"{text}; digests were not checked (--digest auto checks them)"


class _Findings:
    """Rows as they come, and the exit code that they make."""

    def __init__(self, metadata: tuple[str, ...], places: list[str]) -> None:
        self.exit_code = 0
        self._metadata = metadata
        self._places = places

    def watch(self, findings: Iterator[Finding]) -> Iterator[dict[str, Any]]:
        from bkctl.admin.index.check.next_steps import next_step

        for finding in findings:
            severity = finding.severity.value
            if severity == "damage":
                self.exit_code = 1
            yield {
                "kind": finding.kind.value,
                "severity": severity,
                "dir": finding.dir,
                "ledger": finding.ledger,
                "entry": finding.entry,
                "log_id": finding.log_id,
                "offset": finding.offset,
                "detail": finding.detail,
                **next_keys(next_step(finding, self._metadata, self._places)),
            }
