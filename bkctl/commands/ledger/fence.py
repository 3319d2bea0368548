"""``bkctl ledger fence``: nothing more is added to a ledger."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.commands.frame.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    open_client,
)
from bkctl.commands.frame.ledger_options import LedgerArgument
from bkctl.commands.frame.options import (
    OutputOption,
    PasswordFileOption,
    PasswordHexOption,
    PasswordOption,
    read_password,
    schema_option,
)
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.commands.ledger.recover import REPLICAS

FENCE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED; fencing does not change it"),
    Key("covered", "bool", "whether the writer gets no ack quorum from this ensemble any more"),
    Key("guarantee", "string", "what that means"),
    Key("replicas", "array of objects", f"of the last ensemble: {REPLICAS}"),
)


def fence_command(
    ledger: LedgerArgument,
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
    schema: Annotated[bool, schema_option(FENCE_SCHEMA)] = False,
) -> None:
    """[online] [writes] Fence a ledger on every bookie of its last ensemble that answers, without closing it.

    Says what that guarantees. The exit code is 3 when too few bookies answered for the writer to be stopped.

    Examples:

      bkctl ledger fence 42
    """
    from bkctl.admin.ledgers.ledger_recovery import fence_ledger

    secret = read_password(password, password_file, password_hex)
    with open_client(conf, override, metadata_uri, tls_ca, tls_cert, tls_key) as client:
        facts = client.call(fence_ledger(client.client, ledger, password=secret))
    write_one(facts, FENCE_SCHEMA, output)
    if not facts.covered:
        raise typer.Exit(3)
