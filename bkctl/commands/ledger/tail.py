"""``bkctl ledger tail``: entries as they are confirmed."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.entry_options import Payload
from bkctl.commands.frame.ledger_options import LedgerArgument
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Format, row_line, write_lines, write_rows
from bkctl.commands.ledger.entries import READ_SCHEMA, PayloadFormOption, entry_rows
from bkctl.errors import UsageError


@takes(READ_SCHEMA, one=True)
def tail_command(
    ledger: LedgerArgument,
    entries: Annotated[
        int, typer.Option("--entries", "-n", metavar="N", help="Start N entries before the end.")
    ] = 10,
    start: Annotated[
        int | None, typer.Option("--from", metavar="ENTRY", help="Begin at this entry instead.")
    ] = None,
    payload: PayloadFormOption = Payload.BASE64,
    *,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Print entries as they are confirmed, until the ledger is closed or Ctrl-C.

    The default is ndjson, also on a terminal: it prints one line for each entry at once, while a table is
    printed page by page. If a writer pauses, its last entry is confirmed only when it writes again or closes
    the ledger.

    Examples:

      bkctl ledger tail 42

      bkctl ledger tail 42 --from 0 --payload text
    """
    if entries < 0 or (start is not None and start < 0):
        raise UsageError("--entries and --from: 0 or more")
    secret = password.read()
    with open_client(cluster, tls) as client:
        reader = client.open_without_recovery(ledger, password=secret)
        first = max(0, reader.last_add_confirmed - entries + 1) if start is None else start
        rows = entry_rows(reader.tail(first), payload)
        if output in (None, Format.NDJSON):
            for row in rows:
                write_lines([row_line(row)])
        else:
            write_rows(rows, READ_SCHEMA, output)
