"""``bkctl cookie``: the identity a bookie has written into its directories."""

from __future__ import annotations

from typing import Annotated

from bkctl.admin.offline.cookies import find_cookies
from bkctl.commands.options import OutputOption, PathsArgument, noun_app, schema_option
from bkctl.commands.output import Key, Schema, write_rows
from bkctl.vfs import PosixFileSystem

app = noun_app("[offline] [reads] The cookie of a bookie: in its directories, or in a metadata dump.")

SCHEMA: Schema = (
    Key("path", "string", "the VERSION file, or the znode in a dump"),
    Key("source", "string", "file or znode"),
    Key("layout_version", "int", "first line of the cookie"),
    Key("bookie_host", "string", "the bookie's id"),
    Key("journal_dirs", "array of strings", "journal directories, in the order of the configuration"),
    Key("ledger_dirs", "array of strings", "ledger directories, in the order of the configuration"),
    Key("index_dirs", "array of strings or null", "index directories when they are configured"),
    Key("instance_id", "string or null", "the cluster's id"),
)


@app.callback()
def noun() -> None:
    """[offline] [reads] The cookie of a bookie: in its directories, or in a metadata dump."""


@app.command("get")
def get_command(
    paths: PathsArgument,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(SCHEMA)] = False,
) -> None:
    """[offline] [reads] Show cookies: of VERSION files, of directories, of a metadata dump (zk-*.json).

    Examples:

      bkctl cookie get /data/bookie

      bkctl cookie get zk-dump.json -o json
    """
    rows = (
        {
            "path": found.path,
            "source": found.source,
            "layout_version": found.cookie.layout_version,
            "bookie_host": found.cookie.bookie_host,
            "journal_dirs": list(found.cookie.journal_paths),
            "ledger_dirs": list(found.cookie.ledger_paths),
            "index_dirs": list(found.cookie.index_paths) if found.cookie.index_dirs is not None else None,
            "instance_id": found.cookie.instance_id,
        }
        for found in find_cookies(PosixFileSystem(), paths)
    )
    write_rows(rows, SCHEMA, output)
