"""How ``bkctl ledger create`` and ``write`` make a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.ledger_options import NewDigest, custom_pairs, parse_ledger_id
from bkctl.commands.frame.options import file_content
from bkctl.errors import StorageError, UsageError

if TYPE_CHECKING:
    from bkctl.client.driver import BookieChoice
    from bkctl.client.sync import BookKeeperSync, LedgerWriter
    from bkctl.metadata.api import MetadataStore

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


def bookie_choice(racks: str | None, script: str | None) -> Callable[[MetadataStore], BookieChoice] | None:
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
        table = locations_of_table(text_in(racks, "--racks"))
        named = lambda bookies: table  # noqa: E731 - the same for all of them
    return lambda store: RackAwareChoice(store.registration, named)


def text_in(path: str, option: str) -> str:
    """Return the text of a file that an option names. Raises StorageError."""
    try:
        return file_content(path, option).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: {error} ({option})", path=path) from error


def created(
    client: BookKeeperSync,
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    digest: NewDigest,
    custom: list[str] | None,
    ledger: int | None,
    password: bytes | None,
) -> LedgerWriter:
    """Return the writer of a new ledger."""
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
