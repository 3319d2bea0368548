"""``--losses``: the list of what is lost, in a file that a later repair reads."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.codec.losses import Losses, encode_losses

LossesOption = Annotated[
    str | None,
    typer.Option(
        "--losses", metavar="FILE", help="Write what is lost into a new file, as JSON, first of all."
    ),
]


def write_losses(path: str | None, losses: Losses) -> None:
    """Write the list to a new file, durably, when there is a path.

    Raises RefusedError when there is such a file, StorageError.
    """
    from bkctl.admin.new_file import new_file

    if path is not None:
        with new_file(path) as stream:
            stream.write(encode_losses(losses))
