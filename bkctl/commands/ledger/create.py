"""``bkctl ledger create``: a new ledger without entries."""

from __future__ import annotations

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.ledger_rows import LEDGER_KEYS, ledger_row
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import write_one
from bkctl.commands.ledger.new_ledger import NewLedgerOptions


@takes(LEDGER_KEYS, one=True)
def create_command(
    *,
    new: NewLedgerOptions,
    password: PasswordOptions,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Create an empty, open ledger: choose its bookies and store its metadata.

    Only the process that creates a ledger can write to it, so the only way to close this one is 'bkctl
    ledger recover'.

    Examples:

      bkctl ledger create --ensemble 3 --write-quorum 2 --ack-quorum 2

      bkctl ledger create --ledger 4711 --custom application=test
    """
    from bkctl.client.sync import BookKeeperSync

    secret = password.read()
    choice = new.bookie_choice()
    with (
        open_cluster(cluster) as store,
        BookKeeperSync(store, choice=choice) as client,
    ):
        made = new.make(client, secret)
        row = ledger_row(made.ledger, made.metadata, made.handle.version)
        made.handle.abandon()
    write_one(row, LEDGER_KEYS, output)
