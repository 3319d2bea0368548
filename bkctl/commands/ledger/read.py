"""``bkctl ledger read``: entries of a ledger, through a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.entry_options import Payload
from bkctl.commands.frame.ledger_options import LedgerArgument
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import EntryOption, OutputOption, PasswordOptions
from bkctl.commands.frame.output import write_rows
from bkctl.commands.frame.progress import Advance, progress
from bkctl.commands.ledger.entries import READ_SCHEMA, PayloadFormOption, entry_rows
from bkctl.errors import BkctlError, NotFoundError

if TYPE_CHECKING:
    from bkctl.client.ops.ledger_access import LedgerEntry
    from bkctl.client.sync import LedgerReader


@takes(READ_SCHEMA)
def read_command(
    ledger: LedgerArgument,
    entry: EntryOption = None,
    payload: PayloadFormOption = Payload.BASE64,
    unconfirmed: Annotated[
        bool,
        typer.Option(
            "--unconfirmed", help="Also read entries that are not confirmed; a recovery may drop these."
        ),
    ] = False,
    *,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Read entries of a ledger and check their digests; a writer is not disturbed.

    If a ledger is not closed, only its confirmed entries are read. If an entry cannot be read, the entries
    before it are printed. Exit code 6 when --entry names entries that do not exist or are not confirmed.

    Examples:

      bkctl ledger read 42

      bkctl ledger read 42 --entry 100-199 --payload text
    """
    secret = password.read()
    with open_client(cluster, tls) as client:
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
            write_rows(entry_rows(found, payload), READ_SCHEMA, output)
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


def _missing(reader: LedgerReader, first: int, last: int) -> NotFoundError:
    from bkctl.admin.ledgers.ledger_recovery import told_end

    named = f"entry {first}" if first == last else f"entries {first} to {last}"
    newest = reader.last_add_confirmed
    if reader.closed:
        return NotFoundError(f"ledger {reader.ledger} has no {named}: {told_end(newest)}")
    return NotFoundError(
        f"ledger {reader.ledger}: {named} not confirmed; the last entry that is known to be confirmed is "
        f"{newest}. The ledger is not closed; with --unconfirmed the command reads further"
    )
