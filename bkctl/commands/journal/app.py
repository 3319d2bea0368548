"""``bkctl journal``: what is in journals."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname
from typing import Annotated, Any

import typer

from bkctl.admin.logs import file_steps
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.commands.frame.entry_options import Digest, DigestOption, Payload, PayloadOption
from bkctl.commands.frame.entry_rows import ENTRY_KEYS, EntryRows
from bkctl.commands.frame.findings import (
    VERDICT_SCHEMA,
    Unopened,
    exit_code_of,
    tell,
    tell_unchecked,
    write_verdicts,
)
from bkctl.commands.frame.metadata_options import LedgerMetadataOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import (
    EntryOption,
    JournalOption,
    LedgerOption,
    OutputOption,
    PasswordOptions,
    PathsArgument,
    noun_app,
    parse_journal_id,
)
from bkctl.commands.frame.output import Key, Schema, row_line, streams_lines, write_lines, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import no_ids
from bkctl.commands.journal import salvage
from bkctl.errors import CorruptionError
from bkctl.scan.checked import Wanted
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import JournalFile
from bkctl.scan.files import journals
from bkctl.scan.files.paths import journals as find_journals
from bkctl.vfs import PosixFileSystem

app = noun_app("What is in the journals of a bookie, and what can be saved of it.")

LIST_SCHEMA: Schema = (
    Key("dir", "string", "directory of the journal", wide=True),
    Key("journal_id", "int", "id, decimal"),
    Key("path", "string", "the file"),
    Key("bytes", "int", "length of the file, preallocated space included"),
    Key("version", "int or null", "format version, null when the header cannot be read"),
)

SCAN_SCHEMA: Schema = (
    Key("journal_id", "int", "id, decimal"),
    Key("path", "string", "the file"),
    Key("offset", "int", "offset of the length word, as lastMark counts"),
    Key("size", "int", "bytes behind the length word"),
    Key("kind", "string", "entry, master_key, fence, explicit_lac, padding (with --padding)"),
    *ENTRY_KEYS,
    Key("master_key", "string", "of a master_key record, hexadecimal, with --show-secrets"),
)


def _parse_mark(text: str) -> LastMark:
    journal, _, offset = text.partition(":")
    return LastMark(parse_journal_id(journal), int(offset))


MarkOption = Annotated[
    LastMark | None,
    typer.Option(
        "--mark",
        metavar="ID:OFFSET",
        parser=_parse_mark,
        help="Judge the tail by this last mark, not by the one next to the journal.",
    ),
]


@app.command("list")
@takes(LIST_SCHEMA)
def list_command(paths: PathsArgument, output: OutputOption = None) -> None:
    """[offline] [reads] List journals: id, length, version.

    Examples:

      bkctl journal list /data/bookie/journal
    """
    filesystem = PosixFileSystem()
    write_rows(journals.list_journals(filesystem, find_journals(filesystem, paths)), LIST_SCHEMA, output)


@app.command("scan")
@takes(SCAN_SCHEMA)
def scan_command(
    paths: PathsArgument,
    journal: JournalOption = None,
    ledger: LedgerOption = None,
    entry: EntryOption = None,
    payload: PayloadOption = Payload.NONE,
    digest: DigestOption = Digest.AUTO,
    padding: Annotated[bool, typer.Option("--padding", help="Also list padding records.")] = False,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Show the master keys of ledgers; they are secret.")
    ] = False,
    mark: MarkOption = None,
    *,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] List every record in journals: entries, master keys, fences, explicit LACs.

    Damage is reported on stderr, and the scan continues after it. The exit code is 1 when there was damage,
    or an entry whose digest does not match. A sector of zeros in the newest journal after the last mark is
    the trace of a power cut, and does not count as damage.

    Examples:

      bkctl journal scan /data/bookie --ledger 42

      bkctl journal scan /data/bookie/journal/current/1a1fe14808f.txn -o ndjson
    """
    filesystem = PosixFileSystem()
    no_ids(paths, "--journal")
    files = find_journals(filesystem, paths, journal)
    secret = password.read()
    work = _Scan(payload.value, padding, show_secrets)
    unopened = Unopened()
    with (
        metadata.book(digest, secret, [dirname(file.path) for file in files]) as book,
        progress("scanning", sum(file.size_bytes for file in files), streams_rows=True) as advance,
    ):
        items = journals.scan_journals(
            filesystem,
            files,
            book,
            Wanted(ledger, entry),
            mark=mark,
            advance=advance,
            failed=unopened.add,
        )
        if streams_lines(output):
            write_lines(work.lines(items))
        else:
            write_rows(work.rows(items), SCAN_SCHEMA, output)
    unopened.check()
    raise typer.Exit(work.exit_code)


ScanItem = journals.JournalEntries | journals.JournalMarked | Damage


class _Scan:
    """Turns the items of a scan into rows, reports damage, and remembers the exit code."""

    def __init__(self, payload: str, padding: bool, show_secrets: bool) -> None:
        self.exit_code = 0
        self._payload = payload
        self._padding = padding
        self._show_secrets = show_secrets
        self._journal: JournalFile | None = None
        self._maker: EntryRows | None = None

    def lines(self, items: Iterator[ScanItem]) -> Iterator[str]:
        for item in self._watched(items):
            if isinstance(item, journals.JournalEntries):
                yield self._maker_of(item.journal).ndjson(item.entries)
            else:
                yield row_line(self._marked(item))

    def rows(self, items: Iterator[ScanItem]) -> Iterator[dict[str, Any]]:
        for item in self._watched(items):
            if isinstance(item, journals.JournalEntries):
                yield from self._maker_of(item.journal).rows(item.entries)
            else:
                yield self._marked(item)

    def _watched(
        self, items: Iterator[ScanItem]
    ) -> Iterator[journals.JournalEntries | journals.JournalMarked]:
        for item in items:
            if isinstance(item, Damage):
                tell(item)
                if not item.unsynced:
                    self.exit_code = 1
            elif isinstance(item, journals.JournalEntries):
                if item.entries.check.suspicious:
                    self.exit_code = 1
                yield item
            elif self._padding or item.record.kind is not RecordKind.PADDING:
                yield item

    def _maker_of(self, journal: JournalFile) -> EntryRows:
        if self._maker is None or journal is not self._journal:
            head = {"journal_id": journal.journal_id, "path": journal.path}
            self._journal = journal
            self._maker = EntryRows(head, kind=RecordKind.ENTRY.value, payload=self._payload)
        return self._maker

    def _marked(self, item: journals.JournalMarked) -> dict[str, Any]:
        record = item.record
        kind = record.kind or RecordKind.UNKNOWN
        padding = kind is RecordKind.PADDING
        row: dict[str, Any] = {
            "journal_id": item.journal.journal_id,
            "path": item.journal.path,
            "offset": record.offset,
            "size": len(record.body),
            "kind": kind.value,
            "ledger": None if padding else record.ledger,
            "entry": None if padding else record.entry,
            "lac": _lac(record) if kind is RecordKind.EXPLICIT_LAC else None,
            "ledger_length": None,
            "payload_bytes": None,
            "digest": None,
            "digest_ok": None,
        }
        if self._payload != Payload.NONE:
            row["payload"] = None
        if kind is RecordKind.MASTER_KEY and self._show_secrets:
            row["master_key"] = record.blob.hex()
        return row


def _lac(record: MarkedRecord) -> int | None:
    try:
        return decode_explicit_lac(record.blob).lac
    except CorruptionError:
        return None


@app.command("verify")
@takes(VERDICT_SCHEMA)
def verify_command(
    paths: PathsArgument,
    journal: JournalOption = None,
    digest: DigestOption = Digest.AUTO,
    mark: MarkOption = None,
    *,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Check journals: framing, every digest, what lies behind the first zeros.

    Exit code 1 on damage. A torn last record is normal. A sector of zeros in the newest journal after the
    last mark (an unsynced tail) is normal, too, because a power cut can leave it; a wrong byte there is
    damage. The last mark is read from the ledger directories beside the journal and from those that its
    cookie names.

    When the digests of some entries could not be checked, the verdict is 'unchecked' and the exit code is 3,
    even if there is also damage. stderr then says which option makes it possible to check them.

    Examples:

      bkctl journal verify /data/bookie

      bkctl journal verify saved/1a1fe14808f.txn --mark 1a1fe14808f.txn:4608 -o json
    """
    filesystem = PosixFileSystem()
    no_ids(paths, "--journal")
    files = find_journals(filesystem, paths, journal)
    secret = password.read()
    unopened = Unopened()
    with (
        metadata.book(digest, secret, [dirname(file.path) for file in files]) as book,
        progress("verifying", sum(file.size_bytes for file in files)) as advance,
    ):
        verdicts = list(
            journals.verify_journals(filesystem, files, book, mark=mark, advance=advance, failed=unopened.add)
        )
    write_verdicts(verdicts, file_steps.of_journal, output)
    tell_unchecked(verdicts, book)
    unopened.check()
    raise typer.Exit(exit_code_of(verdicts))


app.command("salvage")(salvage.salvage_command)
