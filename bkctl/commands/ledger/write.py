"""``bkctl ledger write``: lines or pieces of a file as the entries of a new ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.commands.frame.progress import Advance, progress
from bkctl.commands.ledger.new_ledger import NewLedgerOptions
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from io import BufferedIOBase


WRITE_SCHEMA: Schema = (
    Key("ledger", "int", "id of the new ledger"),
    Key("state", "string", "CLOSED"),
    Key("last_entry", "int", "last entry, -1 when nothing was written"),
    Key("length", "int", "payload bytes"),
    Key("entries", "int", "entries that were written and acknowledged"),
)

#: Most bytes of lines that are sent together.
_READ_BYTES = 64 << 10


@takes(WRITE_SCHEMA, one=True)
def write_command(
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk",
            metavar="SIZE",
            parser=parse_byte_size,
            help="Write entries of this size, such as 64K, instead of one for each line.",
        ),
    ] = None,
    *,
    new: NewLedgerOptions,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Write standard input into a new ledger, an entry a line, and close it.

    The newline of a line is not part of its entry. The id is printed to stderr as soon as the ledger exists.
    If the command fails, it closes the ledger after the last acknowledged entry, if that is possible.

    Examples:

      seq 1000 | bkctl ledger write --ensemble 3

      bkctl ledger write --chunk 64K < data.bin
    """
    secret = password.read()
    if chunk is not None and chunk < 1:
        raise typer.BadParameter("at least 1 byte", param_hint="--chunk")
    choice = new.bookie_choice()
    with open_client(cluster, tls, choice) as client:
        entry_bytes_max = client.client.settings.net.frame_bytes_max
        if chunk is not None and chunk > entry_bytes_max:
            raise UsageError(f"--chunk: no frame holds an entry of {chunk} bytes, {entry_bytes_max} at most")
        made = new.make(client, secret)
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
    """Yield the lines that are there, without their newlines: a slow input does not wait for more.

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
