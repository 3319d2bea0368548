"""``bkctl ledger fence``: nothing more is added to a ledger."""

from __future__ import annotations

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.ledger_options import LedgerArgument
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.commands.ledger.recover import REPLICAS

FENCE_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("state", "string", "OPEN, IN_RECOVERY or CLOSED; fencing does not change it"),
    Key("covered", "bool", "whether the writer gets no ack quorum from this ensemble any more"),
    Key("guarantee", "string", "what that means"),
    Key("replicas", "array of objects", f"of the last ensemble: {REPLICAS}"),
)


@takes(FENCE_SCHEMA, one=True)
def fence_command(
    ledger: LedgerArgument,
    *,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Fence a ledger on every reachable bookie of its last ensemble, without closing it.

    A fenced bookie refuses further adds of the writer. The row says which bookies are fenced, and what that
    guarantees. The exit code is 3 when too few bookies answered to stop the writer. 'bkctl ledger recover'
    also closes the ledger.

    Examples:

      bkctl ledger fence 42
    """
    from bkctl.admin.ledgers.ledger_recovery import fence_ledger

    secret = password.read()
    with open_client(cluster, tls) as client:
        facts = client.call(fence_ledger(client.client, ledger, password=secret))
    write_one(facts, FENCE_SCHEMA, output)
    if not facts.covered:
        raise typer.Exit(3)
