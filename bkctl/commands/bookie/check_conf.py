"""``bkctl bookie check-conf``: the fate of a configuration and its directories, without a start."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, MemoryOption, given_keys
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import BkctlError, CorruptionError, MissingPackageError, RefusedError, UsageError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.configuration.directory_fates import DirectoryFate
    from bkctl.admin.configuration.key_fates import KeyFate, ReadFates
    from bkctl.admin.doctor.examination import ClusterFacts
    from bkctl.server.life.configured_bookie import ConfiguredBookie

CHECK_CONF_SCHEMA: Schema = (
    Key("about", "string", "key, directory, or bookie: what concerns the whole"),
    Key("name", "string or null", "the key, or the directory as it is named"),
    Key(
        "fate",
        "string",
        "of a key: honoured, deprecated (honoured under its old name), overruled, empty (the default "
        "counts), planned, ignored, refused, unknown or invalid; of a directory: ok, new, not_writable, or a "
        "kind of 'bkctl doctor'",
    ),
    Key("severity", "string", "ok, note, warning, or error: a bookie does not start, or not rightly"),
    Key("value", "string or null", "text that is given; null for a secret", wide=True),
    Key("effective", "string or null", "value that counts because of it, null where none does", wide=True),
    Key("where", "string or null", "file and line, the option or the variable that sets it", wide=True),
    Key("says", "string", "why, and what is expected"),
    Key("holds", "array or null", "journal, ledgers, index: what the directory is for", wide=True),
    Key("exists", "bool or null", "whether the directory is there", wide=True),
    Key("writable", "bool or null", "whether the present user may write there, or make it", wide=True),
    Key("free_bytes", "int or null", "free bytes of its disk", wide=True),
    Key("total_bytes", "int or null", "all bytes of its disk", wide=True),
    Key("bookie", "string or null", "id in the directory's cookie", wide=True),
    Key("storage", "string or null", "storage classes whose index lies there", wide=True),
    Key("held_by", "string or null", "process that uses the directory", wide=True),
)


_NOTHING = dict.fromkeys(key.key for key in CHECK_CONF_SCHEMA)


@takes(CHECK_CONF_SCHEMA)
def check_conf_command(
    *,
    configuration: ConfigurationOptions,
    memory: MemoryOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show keys and directories that are in order.")
    ] = False,
    ask_metadata: Annotated[
        bool,
        typer.Option("--ask-metadata", help="Also compare with the cookie in the metadata store."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Check a configuration without starting: the fate of each key and directory.

    Each key has a row with its fate: honoured, honoured under an old name, overruled by another key, the
    environment or -X, ignored and why, unknown (with the key that may be meant), refused, or out of bounds.
    Each directory has a row, too: whether it exists and is writable for this user, the free space on its
    disk, whether its cookie and its index belong to this configuration, and which process uses it. The
    command writes nothing, takes no lock and opens no port. It asks the metadata store only with
    --ask-metadata.

    Exit code 0: there is nothing to correct, though there may be notes; 1: there is an error or a warning.
    Without --all, keys and directories that are in order are not shown.

    Examples:

      bkctl bookie check-conf --conf /etc/bookkeeper/bk_server.conf

      bkctl bookie check-conf --conf bookkeeper.conf --all -o json

      bkctl bookie check-conf --conf bk_server.conf -X ledgerDirectories=/data/1,/data/2 --ask-metadata
    """
    from bkctl.admin.configuration.key_fates import read_fates

    if configuration.conf is None:
        raise UsageError("name the configuration to check: --conf FILE")
    keys = given_keys(configuration.override, configuration.metadata_uri)
    read = read_fates(configuration.conf, keys, os.environ, memory, configuration.words())
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for row in _rows(configuration, read, ask_metadata=ask_metadata):
            counts[row["severity"]] += 1
            if every or row["severity"] != "ok":
                yield row

    # Each row has all keys: the header of a CSV is made of those of the first one.
    whole = ({**_NOTHING, **row} for row in rows())
    write_rows(whole, CHECK_CONF_SCHEMA, output, nothing="nothing to mend; --all shows every key")
    verdict = [counted(counts[name], name) for name in ("error", "warning", "note") if counts[name]]
    found = ", ".join(verdict) or "nothing to mend"
    typer.echo(
        f"bkctl: {counted(counts.total(), 'key and directory', 'keys and directories')}: {found}", err=True
    )
    raise typer.Exit(int(bool(counts["error"] or counts["warning"])))


def _rows(
    configuration: ConfigurationOptions, read: ReadFates, *, ask_metadata: bool
) -> Iterator[dict[str, Any]]:
    from bkctl.admin.configuration.directory_fates import directory_fates
    from bkctl.admin.doctor.doctor import this_system
    from bkctl.admin.doctor.examination import Examination
    from bkctl.admin.doctor.subject import configured_subject
    from bkctl.vfs import PosixFileSystem

    for fate in read.fates:
        yield _key_row(fate)
    if read.config is None:
        yield _bookie_row(
            "invalid", "error", "no configuration can be made of it: directories are not examined"
        )
        return
    identity, problem = _identity(read)
    if problem is not None:
        yield _bookie_row("no_bookie_id", "error", problem)
    filesystem = PosixFileSystem()
    exam = Examination(
        filesystem,
        this_system(),
        configured_subject(filesystem, read.config.directories),
        config=read.config,
        given=read.given,
        cluster=_cluster(configuration, read.config.metadata.uri, identity, ask=ask_metadata),
        command_options=configuration.words(),
    )
    for one in directory_fates(exam, asked=ask_metadata):
        yield _directory_row(one)


def _identity(read: ReadFates) -> tuple[ConfiguredBookie | None, str | None]:
    """Return the bookie that the configuration makes, or why none can be said."""
    from bkctl.server.life.configured_bookie import configured_bookie

    assert read.config is not None, "it could be made"
    try:
        return configured_bookie(read.config), None
    except CorruptionError:
        return None, None  # a cookie that does not parse, which the directory's row reports
    except (UsageError, RefusedError) as error:
        return None, str(error)


def _cluster(
    configuration: ConfigurationOptions, uri: str, identity: ConfiguredBookie | None, *, ask: bool
) -> ClusterFacts | None:
    """Return what the metadata store knows of the bookie; where it is not asked, the bookie's id alone."""
    from bkctl.admin.doctor.examination import ClusterFacts
    from bkctl.admin.doctor.live_bookie import cluster_facts
    from bkctl.commands.frame.cluster_options import open_cluster

    bookie = None if identity is None else identity.bookie
    if not ask:
        return ClusterFacts(uri, bookie, error="not asked")
    try:
        with open_cluster(configuration) as store:
            return cluster_facts(store, bookie, () if identity is None else identity.ids)
    except MissingPackageError:
        raise
    except BkctlError as error:
        return ClusterFacts(uri, bookie, error=str(error))


def _key_row(fate: KeyFate) -> dict[str, Any]:
    return {
        "about": "key" if fate.key is not None else "bookie",
        "name": fate.key,
        "fate": fate.fate.value,
        "severity": "ok" if fate.severity is None else fate.severity.value,
        "value": fate.given,
        "effective": fate.effective,
        "where": fate.where,
        "says": fate.says,
    }


def _bookie_row(fate: str, severity: str, says: str) -> dict[str, Any]:
    return {"about": "bookie", "name": None, "fate": fate, "severity": severity, "says": says}


def _directory_row(fate: DirectoryFate) -> dict[str, Any]:
    severity = "ok" if fate.severity is None else fate.severity.value
    if fate.directory is None:
        return _bookie_row(fate.fate, severity, fate.says)
    return {
        "about": "directory",
        "name": fate.directory,
        "fate": str(fate.fate),
        "severity": severity,
        "says": fate.says,
        "holds": list(fate.holds),
        "exists": fate.exists,
        "writable": fate.writable,
        "free_bytes": fate.free_bytes,
        "total_bytes": fate.total_bytes,
        "bookie": fate.bookie,
        "storage": fate.storage,
        "held_by": fate.held_by,
    }


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("check-conf")(check_conf_command)
