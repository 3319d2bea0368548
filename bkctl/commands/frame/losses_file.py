"""``--losses``: the list of what is lost, in a file that a later repair reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.codec.losses import Losses, encode_losses

if TYPE_CHECKING:
    from bkctl.directories.index_spaces import IndexSpace

LossesOption = Annotated[
    str | None,
    typer.Option(
        "--losses", metavar="FILE", help="Write what is lost into a new file, as JSON, before any change."
    ),
]


def write_losses(path: str | None, losses: Losses, spaces: Iterable[IndexSpace] = ()) -> None:
    """Write the list to a new file, durably, when there is a path.

    ``spaces`` are those whose ledgers are going to be in limbo: it is said where Java's bookies do not know
    that. Raises RefusedError when there is such a file, StorageError.
    """
    from bkctl.admin.new_file import new_file

    if path is not None:
        with new_file(path) as stream:
            stream.write(encode_losses(losses))
    if losses.losses and not all(space.kind.has_databases for space in spaces):
        typer.echo(
            "bkctl: the ledgers are in .idx files, in which Java's bookies do not know limbo: they answer "
            "'no such entry' for what is lost. Let only a bookie of bkctl run here until they are back "
            "(bkctl ledger repair)",
            err=True,
        )
