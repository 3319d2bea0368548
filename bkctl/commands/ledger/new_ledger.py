"""How ``bkctl ledger create`` and ``write`` make a ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.ledger_options import NewDigest, custom_pairs, parse_ledger_id
from bkctl.commands.frame.options import file_content
from bkctl.errors import StorageError, UsageError

if TYPE_CHECKING:
    from bkctl.client.driver import BookieChoice
    from bkctl.client.sync import BookKeeperSync, LedgerWriter
    from bkctl.metadata.api import MetadataStore


@dataclass(frozen=True, slots=True)
class NewLedgerOptions:
    """How a new ledger is to be."""

    ensemble: Annotated[
        int, typer.Option("--ensemble", "-e", metavar="N", help="Number of bookies that hold the ledger.")
    ] = 3
    write_quorum: Annotated[
        int | None,
        typer.Option(
            "--write-quorum", "-w", metavar="N", help="Number of bookies that hold each entry. Default: 2."
        ),
    ] = None
    ack_quorum: Annotated[
        int | None,
        typer.Option(
            "--ack-quorum",
            "-a",
            metavar="N",
            help="Number of bookies that must acknowledge an entry. Default: that of -w.",
        ),
    ] = None
    digest: Annotated[
        NewDigest,
        typer.Option(
            "--digest", metavar="TYPE", help="How entries are protected: crc32c, crc32, mac or dummy."
        ),
    ] = NewDigest.CRC32C
    custom: Annotated[
        list[str] | None,
        typer.Option(
            "--custom", metavar="NAME=VALUE", help="Custom metadata of the ledger; may be repeated."
        ),
    ] = None
    ledger: Annotated[
        int | None,
        typer.Option(
            "--ledger", metavar="ID", parser=parse_ledger_id, help="Id of the ledger. Default: a new id."
        ),
    ] = None
    racks: Annotated[
        str | None,
        typer.Option(
            "--racks",
            metavar="FILE",
            help="Spread the ledger over racks: file with a bookie and its location (/dc1/rack7) on each "
            "line.",
        ),
    ] = None
    rack_script: Annotated[
        str | None,
        typer.Option(
            "--rack-script",
            metavar="FILE",
            help="Spread the ledger over racks by a topology script, which gets bookies' hosts.",
        ),
    ] = None

    def bookie_choice(self) -> Callable[[MetadataStore], BookieChoice] | None:
        """Return how bookies are chosen; None for at random."""
        if self.racks is None and self.rack_script is None:
            return None
        if self.racks is not None and self.rack_script is not None:
            raise UsageError("give only one of --racks and --rack-script")
        from bkctl.client.bookie_choice import PolicyChoice
        from bkctl.client.placement import locations_of_table
        from bkctl.client.placement_locations import script_locations
        from bkctl.client.placement_policies import rack_aware

        if self.rack_script is not None:
            named = script_locations(self.rack_script)
        else:
            assert self.racks is not None
            table = locations_of_table(text_in(self.racks, "--racks"))
            named = lambda bookies: table  # noqa: E731 - the same for all of them
        return lambda store: PolicyChoice(store.registration, named, rack_aware)

    def make(self, client: BookKeeperSync, password: bytes | None) -> LedgerWriter:
        """Make the ledger, and return its writer."""
        from bkctl.types import DigestType

        quorum = min(2, self.ensemble) if self.write_quorum is None else self.write_quorum
        return client.create(
            self.ensemble,
            quorum,
            quorum if self.ack_quorum is None else self.ack_quorum,
            digest=DigestType(self.digest.value),
            password=password or b"",
            custom_metadata=custom_pairs(self.custom),
            ledger=self.ledger,
        )


def text_in(path: str, option: str) -> str:
    """Return the text of a file that an option names. Raises StorageError."""
    try:
        return file_content(path, option).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: {error} ({option})", path=path) from error
