"""``bkctl context``: names for clusters, so that no line repeats where they are."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.confirmation import YesOption, ask
from bkctl.commands.frame.contexts import (
    CONTEXT_VARIABLE,
    NO_CONTEXT,
    Context,
    Contexts,
    applied_context,
    load_contexts,
    save_contexts,
)
from bkctl.commands.frame.metadata_options import is_dump
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one, write_rows
from bkctl.errors import NotFoundError, UsageError

app = noun_app(
    """Contexts: names for clusters, with what a line would say of them.

    They are kept in bkctl/contexts.json in $XDG_CONFIG_HOME (~/.config), which only its owner can read, and
    name files for secrets. An option on the line counts before a context; one that -c names counts before the
    environment's variables; the one of BKCTL_CONTEXT, or of 'context use', behind them. With '-c none' a line
    runs in no context.
    """
)

SCHEMA: Schema = (
    Key("name", "string", "name of the context"),
    Key("current", "bool", "whether lines that name none run in it"),
    Key("metadata", "string or null", "metadata URI of the cluster"),
    Key("url", "string or null", "HTTP admin of a bookie"),
    Key(
        "tls_ca", "string or null", "file with the certificates that bookies' are checked against", wide=True
    ),
    Key("tls_cert", "string or null", "file with the client's certificate", wide=True),
    Key("tls_key", "string or null", "file with its private key", wide=True),
    Key("password_file", "string or null", "file with the password of ledgers", wide=True),
    Key("http_token_file", "string or null", "file with the token for bookies' HTTP admin", wide=True),
    Key("http_token_hosts", "string or null", "hosts that get it though only metadata name them", wide=True),
    Key("top_theme", "string or null", "theme of the screen of bkctl top", wide=True),
    Key("protected", "bool", "whether every write to the cluster asks for the context's name"),
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        show_default=False,
        help="Name of the context.",
        autocompletion=value_completion.contexts,
    ),
]
ThemeOption = Annotated[
    str | None,
    typer.Option(
        "--top-theme",
        metavar="NAME",
        help="Theme of bkctl top for this cluster, so that clusters look different.",
        autocompletion=value_completion.themes,
    ),
]


def _file_option(name: str, text: str) -> Any:
    return typer.Option(name, metavar="FILE", help=text)


_Metadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="URI", help="Metadata store of the cluster: zk://host:2181/ledgers."),
]
_TokenHosts = Annotated[
    str | None,
    typer.Option(
        "--http-token-hosts",
        metavar="HOST[,...]",
        help="Hosts that get the token even if only the metadata name them.",
    ),
]


@app.command("add")
@takes(SCHEMA, one=True)
def add_command(
    name: NameArgument,
    metadata: _Metadata = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="HTTP admin of a bookie: http://bookie-3:8080.")
    ] = None,
    tls_ca: Annotated[
        str | None, _file_option("--tls-ca", "PEM file against which certificates of bookies are checked.")
    ] = None,
    tls_cert: Annotated[
        str | None, _file_option("--tls-cert", "PEM file with this client's certificate.")
    ] = None,
    tls_key: Annotated[
        str | None, _file_option("--tls-key", "PEM file with this client's private key.")
    ] = None,
    password_file: Annotated[
        str | None, _file_option("--password-file", "File with the password of ledgers.")
    ] = None,
    http_token_file: Annotated[
        str | None, _file_option("--http-token-file", "File with the token for bookies' HTTP admin.")
    ] = None,
    http_token_hosts: _TokenHosts = None,
    top_theme: ThemeOption = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Ask for the context's name before each write to the cluster.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Add a context, or replace one of the same name.

    If no context is in use, all commands that name no cluster use the new one from then on, and a message
    says so. A context stores no secrets; it names the files that hold them.

    Examples:

      bkctl context add test --metadata zk://test-zk:2181/ledgers

      bkctl context add prod --metadata 'zk://zk-1:2181;zk-2:2181/ledgers' --tls-ca /etc/bk/ca.pem --protected
    """
    _require_cluster(name, metadata, url)
    known = load_contexts()
    if name in known.contexts:
        ask(f"change the context {name}", yes=yes, has_dry_run=False)
    context = Context(
        metadata=metadata,
        url=url,
        tls_ca=_absolute(tls_ca),
        tls_cert=_absolute(tls_cert),
        tls_key=_absolute(tls_key),
        password_file=_absolute(password_file),
        http_token_file=_absolute(http_token_file),
        http_token_hosts=http_token_hosts,
        top_theme=top_theme,
        protected=protected,
    )
    current = known.current or name
    save_contexts(Contexts({**known.contexts, name: context}, current))
    if known.current is None:
        sys.stderr.write(
            f"bkctl: the context {name} is in use from now on, by every command that names no cluster; "
            f"'bkctl context use NAME' chooses another, '-c {NO_CONTEXT}' runs a command without one\n"
        )
    write_one(_row(name, context, current), SCHEMA, output)


def _require_cluster(name: str, metadata: str | None, url: str | None) -> None:
    """Raise UsageError for what cannot be a name, and where there is no cluster to give it to."""
    from bkctl.metadata.uri import parse_metadata_uri

    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r}: a name is of letters, digits, points, dashes and underscores")
    if name == NO_CONTEXT:
        raise UsageError(f"'-c {NO_CONTEXT}' means no context: choose another name")
    if metadata is None and url is None:
        raise UsageError("a context names a cluster: give --metadata or --url")
    if metadata is not None and not (is_dump(metadata) and os.path.isfile(metadata)):
        parse_metadata_uri(metadata)


@app.command("use")
@takes(SCHEMA, one=True)
def use_command(name: NameArgument, output: OutputOption = None) -> None:
    """[offline] [writes] Use this context for commands that name none.

    Examples:

      bkctl context use test
    """
    known = load_contexts()
    context = known.named(name)
    save_contexts(replace(known, current=name))
    write_one(_row(name, context, name), SCHEMA, output)


@app.command("list")
@takes(SCHEMA)
def list_command(output: OutputOption = None) -> None:
    """[offline] [reads] List the contexts.

    Examples:

      bkctl context list
    """
    known = load_contexts()
    rows = [_row(name, context, known.current) for name, context in sorted(known.contexts.items())]
    write_rows(rows, SCHEMA, output, nothing="no contexts; 'bkctl context add' makes one")


@app.command("show")
@takes(SCHEMA, one=True)
def show_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            show_default=False,
            help="Name of the context. Default: the one in use.",
            autocompletion=value_completion.contexts,
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Show the context in use, or the one that is named.

    Examples:

      bkctl context show

      bkctl context show prod -o json
    """
    known = load_contexts()
    applied = applied_context()
    here = applied.name if applied is not None else os.environ.get(CONTEXT_VARIABLE)
    name = name or here or known.current
    if name is None:
        raise NotFoundError("no context is in use: 'bkctl context use NAME' chooses one")
    write_one(_row(name, known.named(name), known.current), SCHEMA, output)


@app.command("remove")
@takes(SCHEMA, one=True)
def remove_command(name: NameArgument, yes: YesOption = False, output: OutputOption = None) -> None:
    """[offline] [writes] Remove a context; the cluster is not touched.

    Examples:

      bkctl context remove test --yes
    """
    known = load_contexts()
    context = known.named(name)
    ask(f"remove the context {name}", yes=yes, has_dry_run=False)
    rest = {each: value for each, value in known.contexts.items() if each != name}
    save_contexts(Contexts(rest, None if known.current == name else known.current))
    if known.current == name and rest:
        sys.stderr.write("bkctl: no context is in use now; 'bkctl context use NAME' chooses one\n")
    write_one(_row(name, context, None), SCHEMA, output)


def _absolute(path: str | None) -> str | None:
    """Return a path that means the same wherever a later line is typed."""
    return None if path is None else os.path.abspath(path)


def _row(name: str, context: Context, current: str | None) -> dict[str, Any]:
    return {"name": name, "current": name == current, **asdict(context)}
