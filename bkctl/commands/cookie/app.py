"""``bkctl cookie``: the identity of a bookie, in its directories and in the metadata store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.admin.cookies.cookie_steps import good_file, of_difference
from bkctl.admin.cookies.in_directories import CookieDifference, FoundCookie, find_cookies
from bkctl.commands.cookie import write
from bkctl.commands.frame.bookie_options import bookie_config
from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.next_steps import NEXT_KEYS, next_keys
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one, write_rows
from bkctl.errors import NotFoundError, UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.codec.cookie import Cookie
    from bkctl.metadata.api import MetadataStore

app = noun_app("Cookies of a bookie: show, compare, make, store, remove.")

SCHEMA: Schema = (
    Key("path", "string", "the VERSION file, or the znode in a dump or in the metadata store"),
    Key("source", "string", "file or znode"),
    Key("layout_version", "int", "first line of the cookie"),
    Key("bookie_host", "string", "the bookie's id"),
    Key("journal_dirs", "array of strings", "journal directories, in the order of the configuration"),
    Key("ledger_dirs", "array of strings", "ledger directories, in the order of the configuration"),
    Key("index_dirs", "array of strings or null", "index directories when they are configured"),
    Key("instance_id", "string or null", "the cluster's id"),
)

DIFF_SCHEMA: Schema = (
    Key("path", "string", "the VERSION file or znode that differs"),
    Key("source", "string", "file or znode"),
    Key(
        "field",
        "string",
        "bookie_host, journal_dirs, ledger_dirs, index_dirs, instance_id, layout_version; "
        "cookie where there is none",
    ),
    Key("expected", "string or null", "the value in the configuration, or in the first cookie"),
    Key("found", "string or null", "the value there"),
    Key("cause", "string", "what makes such a difference"),
    *NEXT_KEYS,
)

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET...]",
        show_default=False,
        help="Bookie directories, VERSION files or dumps; any other word is a bookie id in the metadata "
        "store.",
    ),
]


@app.command("get")
@takes(SCHEMA)
def get_command(
    targets: TargetsArgument = None,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Show cookies of directories, VERSION files, dumps or the metadata store.

    An argument that exists on disk is read as a path. Any other argument is a bookie id, which needs a
    metadata store (or ./bkctl-data). With a store and without TARGET, the command shows every cookie in the
    store.

    Examples:

      bkctl cookie get /data/bookie

      bkctl cookie get zk-dump.json -o json

      bkctl cookie get bookie-3:3181 --metadata zk://host:2181/ledgers
    """
    names = targets or []
    has_store = _has_store(cluster)
    if not names and not has_store:
        raise UsageError("name a PATH, or a metadata store (--metadata, --conf)")
    with ExitStack() as stack:
        found = _found(stack, names, cluster, has_store=has_store)
        write_rows((_row(one) for one in found), SCHEMA, output, folds=False)


def _has_store(cluster: ClusterOptions) -> bool:
    from bkctl.config.loader import DATA_DIRECTORY

    named = cluster.conf is not None or cluster.metadata_uri is not None or bool(cluster.override)
    return named or os.path.isdir(DATA_DIRECTORY)


def _found(
    stack: ExitStack, names: list[str], cluster: ClusterOptions, *, has_store: bool
) -> Iterator[FoundCookie]:
    """Yield cookies in the order of the arguments; the store is opened for the first look-up there."""
    from bkctl.admin.cookies.in_metadata import stored_cookies

    opened: list[MetadataStore] = []

    def store() -> MetadataStore:
        if not opened:
            opened.append(stack.enter_context(open_cluster(cluster)))
        return opened[0]

    if not names:
        yield from stored_cookies(store())
    for name in names:
        if not os.path.lexists(name) and "/" not in name:
            if not has_store:
                raise NotFoundError(
                    f"{name}: no such file or directory; where it is a bookie's id name the metadata store "
                    "(--metadata, --conf)"
                )
            yield from stored_cookies(store(), [name])
        else:
            yield from find_cookies(PosixFileSystem(), [name])


def _row(found: FoundCookie) -> dict[str, Any]:
    cookie = found.cookie
    return {
        "path": found.path,
        "source": found.source,
        "layout_version": cookie.layout_version,
        "bookie_host": cookie.bookie_host,
        "journal_dirs": list(cookie.journal_paths),
        "ledger_dirs": list(cookie.ledger_paths),
        "index_dirs": list(cookie.index_paths) if cookie.index_dirs is not None else None,
        "instance_id": cookie.instance_id,
    }


@app.command("diff")
@takes(DIFF_SCHEMA)
def diff_command(
    targets: TargetsArgument = None,
    *,
    cluster: ClusterOptions,
    no_metadata: Annotated[
        bool,
        typer.Option("--no-metadata", help="With --conf: leave out the metadata store and the instance id."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Explain field by field why cookies differ. Exit code 1 when they do.

    With --conf, the configuration is compared with the cookies of its directories, of the metadata store and
    of the TARGETs. Without --conf, the cookie of the first TARGET is compared with the others.

    Examples:

      bkctl cookie diff --conf /etc/bookkeeper/bk_server.conf

      bkctl cookie diff /data/journal /data/ledgers

      bkctl cookie diff bookie-3:3181 /data/bookie --metadata zk://host:2181/ledgers
    """
    good = None
    compared = _Compared()
    with ExitStack() as stack:
        if cluster.conf is not None:
            found = list(_against_configuration(stack, targets or [], cluster, compared, no_metadata))
            directories = bookie_config(cluster, tell=lambda _: None).directories
            good = good_file(directories, found)
        else:
            found = list(_against_the_first(stack, targets or [], cluster, compared))
    options = cluster.words()
    steps = (of_difference(PosixFileSystem(), one, good, options) for one in found)
    rows = [{**asdict(one), **next_keys(step)} for one, step in zip(found, steps, strict=True)]
    write_rows(rows, DIFF_SCHEMA, output, clean=compared.clean)
    raise typer.Exit(int(bool(rows)))


@dataclass(slots=True)
class _Compared:
    """How many cookies were compared, and with what."""

    cookies: int = 0
    wanted: str = ""
    left_out: str = ""

    def clean(self) -> str:
        """Return what was compared, where nothing differs."""
        return f"{counted(self.cookies, 'cookie')} compared with {self.wanted}, nothing found{self.left_out}"


def _against_the_first(
    stack: ExitStack, names: list[str], cluster: ClusterOptions, compared: _Compared
) -> Iterator[CookieDifference]:
    from bkctl.admin.cookies.in_directories import compare_cookies

    has_store = _has_store(cluster)
    if not names:
        raise UsageError("name --conf FILE, or cookies to compare: paths or bookie ids")
    found = list(_found(stack, names, cluster, has_store=has_store))
    if len(found) < 2:
        raise UsageError(f"{', '.join(names)}: one cookie alone; name another one, or --conf FILE")
    compared.cookies, compared.wanted = len(found) - 1, found[0].path
    return compare_cookies(found[0].cookie, found[1:])


def _against_configuration(
    stack: ExitStack,
    names: list[str],
    cluster: ClusterOptions,
    compared: _Compared,
    no_metadata: bool,
) -> Iterator[CookieDifference]:
    from bkctl.admin.cookies.in_directories import compare_cookies, compare_directories
    from bkctl.admin.cookies.in_metadata import cookie_node, stored_cookies
    from bkctl.directories.bookie_directories import every_directory
    from bkctl.server.life.configured_bookie import configured_bookie, configured_cookie

    config = bookie_config(cluster)
    filesystem = PosixFileSystem()
    instance = None
    stored: list[FoundCookie] = []
    if not no_metadata:
        store = stack.enter_context(open_cluster(cluster))
        instance = store.layout.instance_id()
        known = [bookie for bookie in configured_bookie(config).ids if store.cookies.read_cookie(bookie)]
        stored = list(stored_cookies(store, known)) if known else []
    wanted = configured_cookie(config, instance)
    yield from compare_directories(filesystem, config.directories, wanted, any_instance=no_metadata)
    if not no_metadata and not stored:
        cause = "a new bookie, one that was decommissioned, or another cluster's metadata"
        node = cookie_node(store, wanted.bookie_host)
        yield CookieDifference(node, "znode", "cookie", wanted.bookie_host, None, cause)
    yield from compare_cookies(wanted, stored)
    more = list(_found(stack, names, cluster, has_store=True)) if names else []
    compared.cookies = sum(1 for _ in every_directory(config.directories)) + len(stored) + len(more)
    compared.wanted = f"{cluster.conf}"
    if no_metadata:
        compared.left_out = "; the metadata store and the instance id were left out (--no-metadata)"
    yield from compare_cookies(wanted, more, any_instance=no_metadata)


_JournalDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--journal-dir",
        metavar="DIR",
        help="A journal directory, in the configured form and order; may be repeated.",
    ),
]
_LedgerDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--ledger-dir",
        metavar="DIR",
        help="A ledger directory, in the configured form and order; may be repeated.",
    ),
]
_IndexDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--index-dir",
        metavar="DIR",
        help="An index directory, only if indexDirectories is configured; may be repeated.",
    ),
]
_InstanceId = Annotated[
    str | None,
    typer.Option(
        "--instance-id",
        metavar="ID",
        help="Instance id of the cluster. Default: the metadata store is asked.",
    ),
]
_Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the cookie into a new file. Default: the cookie is printed."
    ),
]


@app.command("generate")
@takes(SCHEMA)
def generate_command(
    bookie: Annotated[
        str | None,
        typer.Argument(
            metavar="[BOOKIE]", show_default=False, help="Id of the bookie, possibly a custom one (bookieId)."
        ),
    ] = None,
    journal_dirs: _JournalDirs = None,
    ledger_dirs: _LedgerDirs = None,
    index_dirs: _IndexDirs = None,
    instance_id: _InstanceId = None,
    out: _Out = None,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Make a cookie as a Java bookie would write it, without storing it.

    The cookie is made from --conf, or from a bookie id and its directories, written exactly as they are
    configured, without 'current' at their end. A bookie accepts only a cookie that agrees with its
    configuration in every field.

    Examples:

      bkctl cookie generate --conf bk_server.conf --out cookie

      bkctl cookie generate bookie-3 --journal-dir /j --ledger-dir /l1 --ledger-dir /l2 --instance-id ID
    """
    from bkctl.admin.new_file import new_file
    from bkctl.codec.cookie import encode_cookie

    named = (bookie, journal_dirs, ledger_dirs, index_dirs)
    if cluster.conf is not None and any(named):
        raise UsageError("either --conf, or the bookie id and its directories")
    if instance_id is None and (
        cluster.conf is not None or cluster.metadata_uri is not None or cluster.override
    ):
        with open_cluster(cluster) as store:
            instance_id = store.layout.instance_id()
    elif instance_id is None:
        typer.echo("bkctl: no instance id: only a cluster that has none accepts this cookie", err=True)
    if cluster.conf is not None:
        from bkctl.server.life.configured_bookie import configured_cookie

        cookie = configured_cookie(bookie_config(cluster), instance_id or None)
    else:
        cookie = _cookie_of(bookie, journal_dirs, ledger_dirs, index_dirs, instance_id)
    content = encode_cookie(cookie)
    if out is None:
        sys.stdout.write(content.decode("ascii"))
        return
    with new_file(out, 0o666) as stream:
        stream.write(content)
    write_one(_row(FoundCookie(out, "file", cookie)), SCHEMA, output)


def _cookie_of(
    bookie: str | None,
    journal_dirs: list[str] | None,
    ledger_dirs: list[str] | None,
    index_dirs: list[str] | None,
    instance_id: str | None,
) -> Cookie:
    from bkctl.codec.cookie import LAYOUT_VERSION, Cookie, join_dirs
    from bkctl.metadata.paths import check_bookie_id

    if bookie is None or not journal_dirs or not ledger_dirs:
        raise UsageError("name --conf FILE; or BOOKIE, --journal-dir and --ledger-dir")
    for path in (*journal_dirs, *ledger_dirs, *(index_dirs or ())):
        if not os.path.isabs(path) or "," in path:
            raise UsageError(f"{path}: expected a path from / without a comma, as a configuration names it")
    return Cookie(
        LAYOUT_VERSION,
        check_bookie_id(bookie),
        ",".join(journal_dirs),
        join_dirs(ledger_dirs),
        instance_id or None,
        join_dirs(index_dirs) if index_dirs else None,
    )


write.register(app)
