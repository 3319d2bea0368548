"""Entries as rows, for ``bkctl ledger read`` and ``tail``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.entry_options import Payload
from bkctl.commands.frame.output import Key, Schema

if TYPE_CHECKING:
    from bkctl.client.ops.ledger_access import LedgerEntry

READ_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("entry", "int", "entry id"),
    Key("lac", "int", "last add confirmed in the entry's header"),
    Key("ledger_length", "int", "payload bytes of the ledger up to this entry, from its header"),
    Key("payload_bytes", "int", "length of the payload"),
    Key("payload", "string", "the payload in base64, or in the form asked for with --payload"),
)

PayloadFormOption = Annotated[
    Payload,
    typer.Option("--payload", metavar="FORM", help="Form of the payload: none, sha256, hex, base64 or text."),
]


def entry_rows(entries: Iterable[LedgerEntry], payload: Payload) -> Iterator[dict[str, Any]]:
    """Return a row for each entry, with its payload in the form that is asked for."""
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
