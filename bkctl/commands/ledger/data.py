"""``bkctl ledger create | write | read | tail``: ledgers and their entries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bkctl.commands.frame.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    open_client,
    open_cluster,
)
from bkctl.commands.frame.entry_options import Payload
from bkctl.commands.frame.ledger_options import LedgerArgument, NewDigest, custom_pairs, parse_ledger_id
from bkctl.commands.frame.ledger_rows import LEDGER_KEYS, ledger_row
from bkctl.commands.frame.options import (
    EntryOption,
    OutputOption,
    PasswordFileOption,
    PasswordHexOption,
    PasswordOption,
    file_content,
    read_password,
    schema_option,
)
from bkctl.commands.frame.output import Format, Key, Schema, row_line, write_lines, write_one, write_rows
from bkctl.commands.frame.progress import Advance, progress
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import BkctlError, NotFoundError, StorageError, UsageError

if TYPE_CHECKING:
    from io import BufferedIOBase

    from bkctl.client.driver import BookieChoice
    from bkctl.client.ops.ledger_access import LedgerEntry
    from bkctl.client.sync import BookKeeperSync, LedgerReader, LedgerWriter
    from bkctl.metadata.api import MetadataStore

WRITE_SCHEMA: Schema = (
    Key("ledger", "int", "id of the new ledger"),
    Key("state", "string", "CLOSED"),
    Key("last_entry", "int", "last entry, -1 when nothing was written"),
    Key("length", "int", "payload bytes"),
    Key("entries", "int", "entries that were written and acknowledged"),
)

READ_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("entry", "int", "entry id"),
    Key("lac", "int", "last add confirmed in the entry's header"),
    Key("ledger_length", "int", "payload bytes of the ledger up to this entry, from its header"),
    Key("payload_bytes", "int", "length of the payload"),
    Key("payload", "string", "the payload in base64, or in the form asked for with --payload"),
)

EnsembleOption = Annotated[
    int, typer.Option("--ensemble", "-e", metavar="N", help="Bookies that hold the ledger.")
]
WriteQuorumOption = Annotated[
    int | None,
    typer.Option("--write-quorum", "-w", metavar="N", help="Bookies that hold an entry. Default: 2."),
]
AckQuorumOption = Annotated[
    int | None,
    typer.Option("--ack-quorum", "-a", metavar="N", help="Acknowledgements of an entry. Default: as -w."),
]
DigestOption = Annotated[NewDigest, typer.Option("--digest", help="How entries are protected.")]
NewCustomOption = Annotated[
    list[str] | None,
    typer.Option("--custom", metavar="NAME=VALUE", help="Custom metadata of the ledger; may be repeated."),
]
NewIdOption = Annotated[
    int | None,
    typer.Option("--ledger", metavar="ID", parser=parse_ledger_id, help="Id to use. Default: a new one."),
]
RacksOption = Annotated[
    str | None,
    typer.Option(
        "--racks", metavar="FILE", help="Spread over racks: lines of a bookie and its location (/dc1/rack7)."
    ),
]
RackScriptOption = Annotated[
    str | None,
    typer.Option(
        "--rack-script", metavar="FILE", help="The same by a topology script, called with bookies' hosts."
    ),
]
PayloadFormOption = Annotated[Payload, typer.Option("--payload", help="Form of the payload.")]

#: Most bytes of lines that are sent together.
_READ_BYTES = 64 << 10


def register(app: typer.Typer) -> None:
    """Add the commands to the app of ``bkctl ledger``."""
    app.command("create")(create_command)
    app.command("write")(write_command)
    app.command("read")(read_command)
    app.command("tail")(tail_command)


def create_command(
    ensemble: EnsembleOption = 3,
    write_quorum: WriteQuorumOption = None,
    ack_quorum: AckQuorumOption = None,
    digest: DigestOption = NewDigest.CRC32C,
    custom: NewCustomOption = None,
    ledger: NewIdOption = None,
    racks: RacksOption = None,
    rack_script: RackScriptOption = None,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(LEDGER_KEYS)] = False,
) -> None:
    """[online] [writes] Make a ledger: choose its bookies and store its metadata. It stays open and empty.

    Only the process that makes a ledger can write to it, so this one is closed by 'bkctl ledger recover'.

    Examples:

      bkctl ledger create --ensemble 3 --write-quorum 2 --ack-quorum 2

      bkctl ledger create --ledger 4711 --custom application=test
    """
    from bkctl.client.sync import BookKeeperSync

    secret = read_password(password, password_file, password_hex)
    choice = _bookie_choice(racks, rack_script)
    with (
        open_cluster(conf, override, metadata_uri) as store,
        BookKeeperSync(store, choice=choice) as client,
    ):
        made = _created(client, ensemble, write_quorum, ack_quorum, digest, custom, ledger, secret)
        row = ledger_row(made.ledger, made.metadata, made.handle.version)
        made.handle.abandon()
    write_one(row, LEDGER_KEYS, output)


def _bookie_choice(racks: str | None, script: str | None) -> Callable[[MetadataStore], BookieChoice] | None:
    """How bookies are chosen; None at random."""
    if racks is None and script is None:
        return None
    if racks is not None and script is not None:
        raise UsageError("give only one of --racks and --rack-script")
    from bkctl.client.bookie_choice import RackAwareChoice, script_racks
    from bkctl.client.placement import locations_of_table

    if script is not None:
        named = script_racks(script)
    else:
        assert racks is not None
        table = locations_of_table(_text_in(racks, "--racks"))
        named = lambda bookies: table  # noqa: E731 - the same for all of them
    return lambda store: RackAwareChoice(store.registration, named)


def _text_in(path: str, option: str) -> str:
    try:
        return file_content(path, option).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: {error} ({option})", path=path) from error


def _created(
    client: BookKeeperSync,
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: NewDigest,
    custom: list[str] | None,
    ledger: int | None,
    password: bytes | None,
) -> LedgerWriter:
    from bkctl.types import DigestType

    quorum = min(2, ensemble) if write_quorum is None else write_quorum
    return client.create(
        ensemble,
        quorum,
        quorum if ack_quorum is None else ack_quorum,
        digest=DigestType(digest.value),
        password=password or b"",
        custom_metadata=custom_pairs(custom),
        ledger=ledger,
    )


def write_command(
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk",
            metavar="SIZE",
            parser=parse_byte_size,
            help="Entries of this size instead of one a line.",
        ),
    ] = None,
    ensemble: EnsembleOption = 3,
    write_quorum: WriteQuorumOption = None,
    ack_quorum: AckQuorumOption = None,
    digest: DigestOption = NewDigest.CRC32C,
    custom: NewCustomOption = None,
    ledger: NewIdOption = None,
    racks: RacksOption = None,
    rack_script: RackScriptOption = None,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(WRITE_SCHEMA)] = False,
) -> None:
    """[online] [writes] Write standard input into a new ledger, an entry a line, and close it.

    A line's newline is not part of its entry. The id goes to stderr as soon as the ledger is there. When
    something fails the ledger is closed behind what is acknowledged, if that is possible.

    Examples:

      seq 1000 | bkctl ledger write --ensemble 3

      bkctl ledger write --chunk 64K < data.bin
    """
    secret = read_password(password, password_file, password_hex)
    if chunk is not None and chunk < 1:
        raise typer.BadParameter("at least 1 byte", param_hint="--chunk")
    choice = _bookie_choice(racks, rack_script)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key, choice) as client:
        entry_bytes_max = client.client.settings.net.frame_bytes_max
        if chunk is not None and chunk > entry_bytes_max:
            raise UsageError(f"--chunk: no frame holds an entry of {chunk} bytes, {entry_bytes_max} at most")
        made = _created(client, ensemble, write_quorum, ack_quorum, digest, custom, ledger, secret)
        typer.echo(f"bkctl: writing ledger {made.ledger}", err=True)
        with made, progress(f"ledger {made.ledger}") as advance:
            stream = cast("BufferedIOBase", sys.stdin.buffer)
            lines = _line_batches(stream, entry_bytes_max)
            batches = lines if chunk is None else _chunk_batches(stream, chunk)
            count = made.append_batches(_counted(batches, advance))
    metadata = made.metadata
    row = {
        "ledger": made.ledger,
        "state": metadata.state.value,
        "last_entry": metadata.last_entry,
        "length": metadata.length,
        "entries": count,
    }
    write_one(row, WRITE_SCHEMA, output)


def _line_batches(stream: BufferedIOBase, line_bytes_max: int) -> Iterator[list[bytes]]:
    """The lines that are there, without their newlines: a slow input does not wait for more.

    Raises UsageError as soon as a line is too long, which is then not read to its end.
    """
    rest = b""
    while data := stream.read1(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
        if len(rest) > line_bytes_max:
            raise UsageError(
                f"a line of more than {line_bytes_max} bytes, and no frame holds it: cut the input by --chunk"
            )
    if rest:
        yield [rest]


def _chunk_batches(stream: BufferedIOBase, size: int) -> Iterator[list[bytes]]:
    while data := stream.read(size):
        yield [data]


def _counted(batches: Iterable[list[bytes]], advance: Advance) -> Iterator[list[bytes]]:
    for batch in batches:
        advance(sum(map(len, batch)))
        yield batch


def read_command(
    ledger: LedgerArgument,
    entry: EntryOption = None,
    payload: PayloadFormOption = Payload.BASE64,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Also entries that are not confirmed; they may vanish.")
    ] = False,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(READ_SCHEMA)] = False,
) -> None:
    """[online] [reads] Read entries of a ledger, digests checked; its writer, if there is one, is left alone.

    Of a ledger that is not closed these are the entries that are confirmed. What stands before an entry that
    cannot be read is printed. Exit code 6 when entries that are named do not exist, or are not confirmed.

    Examples:

      bkctl ledger read 42

      bkctl ledger read 42 --entry 100-199 --payload text
    """
    secret = read_password(password, password_file, password_hex)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key) as client:
        reader = client.open_without_recovery(ledger, password=secret)
        first, last, missing = 0, reader.last_add_confirmed, None
        if entry is not None:
            first = entry.first
            last = entry.last if unconfirmed else min(entry.last, last)
            missing = None if last == entry.last else _missing(reader, max(first, last + 1), entry.last)
        elif unconfirmed and not reader.closed:
            last = client.call(client.client.ask_replicas(ledger, password=secret))[1].last_entry
        whole = reader.closed and (first, last) == (0, reader.last_add_confirmed)
        with progress("reading", reader.length if whole else None, streams_rows=True) as advance:
            found = _UntilAnError(_noted(reader.entries(first, last, unconfirmed=unconfirmed), advance))
            write_rows(_entry_rows(found, payload), READ_SCHEMA, output)
    if found.error is not None:
        raise found.error
    if missing is not None:
        raise missing


class _UntilAnError:
    """Entries up to the first that cannot be read; its error is kept until all rows are written."""

    def __init__(self, entries: Iterator[LedgerEntry]) -> None:
        self._entries = entries
        self.error: BkctlError | None = None

    def __iter__(self) -> Iterator[LedgerEntry]:
        try:
            yield from self._entries
        except BkctlError as error:
            self.error = error


def _noted(entries: Iterable[LedgerEntry], advance: Advance) -> Iterator[LedgerEntry]:
    for found in entries:
        advance(len(found.payload))
        yield found


def tail_command(
    ledger: LedgerArgument,
    entries: Annotated[
        int, typer.Option("--entries", "-n", metavar="N", help="Begin so many entries before the end.")
    ] = 10,
    start: Annotated[
        int | None, typer.Option("--from", metavar="ENTRY", help="Begin at this entry instead.")
    ] = None,
    payload: PayloadFormOption = Payload.BASE64,
    password: PasswordOption = None,
    password_file: PasswordFileOption = None,
    password_hex: PasswordHexOption = None,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(READ_SCHEMA)] = False,
) -> None:
    """[online] [reads] Print entries as they are confirmed, until the ledger is closed or Ctrl-C.

    The default is ndjson on a terminal too, a line at once for each entry; tables come page by page. The
    last entry of a writer that pauses is not confirmed before it goes on or closes.

    Examples:

      bkctl ledger tail 42

      bkctl ledger tail 42 --from 0 --payload text
    """
    if entries < 0 or (start is not None and start < 0):
        raise UsageError("--entries and --from: 0 or more")
    secret = read_password(password, password_file, password_hex)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key) as client:
        reader = client.open_without_recovery(ledger, password=secret)
        first = max(0, reader.last_add_confirmed - entries + 1) if start is None else start
        rows = _entry_rows(reader.tail(first), payload)
        if output in (None, Format.NDJSON):
            for row in rows:
                write_lines([row_line(row)])
        else:
            write_rows(rows, READ_SCHEMA, output)


def _missing(reader: LedgerReader, first: int, last: int) -> NotFoundError:
    from bkctl.admin.ledgers.ledger_recovery import told_end

    named = f"entry {first}" if first == last else f"entries {first} to {last}"
    newest = reader.last_add_confirmed
    if reader.closed:
        return NotFoundError(f"ledger {reader.ledger} has no {named}: {told_end(newest)}")
    return NotFoundError(
        f"ledger {reader.ledger}: {named} not confirmed, the last one that is known to be is {newest}; the "
        "ledger is not closed, --unconfirmed reads on"
    )


def _entry_rows(entries: Iterable[LedgerEntry], payload: Payload) -> Iterator[dict[str, Any]]:
    from bkctl.commands.frame.entry_rows import PAYLOAD_FORMS

    form = PAYLOAD_FORMS.get(payload.value)
    for found in entries:
        row: dict[str, Any] = {
            "ledger": found.ledger,
            "entry": found.entry,
            "lac": found.lac,
            "ledger_length": found.length,
            "payload_bytes": len(found.payload),
        }
        if form is not None:
            row["payload"] = form(found.payload)
        yield row
