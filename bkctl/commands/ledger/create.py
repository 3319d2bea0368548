"""``bkctl ledger create``: a new ledger without entries."""

from __future__ import annotations

from typing import Annotated

from bkctl.commands.frame.cluster_options import (
    ClusterConfOption,
    MetadataUriOption,
    OverrideOption,
    open_cluster,
)
from bkctl.commands.frame.ledger_options import NewDigest
from bkctl.commands.frame.ledger_rows import LEDGER_KEYS, ledger_row
from bkctl.commands.frame.options import (
    OutputOption,
    PasswordFileOption,
    PasswordHexOption,
    PasswordOption,
    read_password,
    schema_option,
)
from bkctl.commands.frame.output import write_one
from bkctl.commands.ledger.new_ledger import (
    AckQuorumOption,
    DigestOption,
    EnsembleOption,
    NewCustomOption,
    NewIdOption,
    RackScriptOption,
    RacksOption,
    WriteQuorumOption,
    bookie_choice,
    created,
)


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
    choice = bookie_choice(racks, rack_script)
    with (
        open_cluster(conf, override, metadata_uri) as store,
        BookKeeperSync(store, choice=choice) as client,
    ):
        made = created(client, ensemble, write_quorum, ack_quorum, digest, custom, ledger, secret)
        row = ledger_row(made.ledger, made.metadata, made.handle.version)
        made.handle.abandon()
    write_one(row, LEDGER_KEYS, output)
