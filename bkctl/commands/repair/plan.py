"""``bkctl repair plan``: the findings of the doctor as commands in their order."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from posixpath import abspath, normpath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.commands.frame.metadata_options import DumpOrConfigurationOptions, is_dump
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, chosen_format, write_rows
from bkctl.commands.frame.own_command import read_own_command
from bkctl.commands.repair.journal_salvages import with_journal_salvages
from bkctl.commands.repair.log_salvages import in_order, with_log_salvage
from bkctl.commands.repair.plan_output import PLAN_SCHEMA, block, plan_rows
from bkctl.commands.repair.plan_places import absolute, bound
from bkctl.errors import BkctlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bkctl.admin.repairs.repair_plan import Needs

#: The doctor's findings about a directory that is empty, or not there.
_LOST_KINDS = frozenset({"missing_cookie", "missing_directory"})
#: The doctor's findings of a metadata store that does not answer, or has no cluster.
_NO_METADATA = frozenset({"no_answer", "no_cluster"})
#: Verbs that take --metadata for the digests of entries.
_ASKING = (["index", "rebuild"], ["journal", "salvage"])


@takes(PLAN_SCHEMA)
def plan_command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", show_default=False, help="Directories of a bookie; or --conf."),
    ] = None,
    *,
    configuration: DumpOrConfigurationOptions,
    deep: Annotated[
        bool, typer.Option("--deep", help="Check the digest of every entry in the logs.")
    ] = False,
    lost_disk: Annotated[
        list[str] | None,
        typer.Option(
            "--lost-disk",
            metavar="DIR",
            help="A configured directory whose disk is lost for good, not only not mounted. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PLAN", help="Write the plan into a new file, for 'repair run'."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Plan the repair of what 'bkctl doctor' finds: commands, their order, and why.

    The command changes nothing. Steps that need the bookie stopped come first. After them come the steps that
    copy from other replicas while the bookie runs; these need --metadata. Findings that no command can repair
    are at the end, without a number. An empty directory may be a disk that is not mounted, so its rebuild is
    planned only with --lost-disk. Exit code 1 when the plan is not empty; 3 when entries could not be
    checked.

    Examples:

      bkctl repair plan --conf /etc/bookkeeper/bk_server.conf --deep --out plan.json

      bkctl repair plan --conf bk_server.conf --lost-disk /data/disk2 --out plan.json

      bkctl repair plan /data/bookie --metadata zk://localhost:2181/ledgers
    """
    from bkctl.admin.new_file import new_file
    from bkctl.admin.repairs.repair_plan import encode_plan, plan_of

    if not paths and configuration.conf is None:
        raise UsageError("name a bookie's directories, or give --conf FILE")
    paths, configuration = list(map(abspath, paths or ())), absolute(configuration)
    examined = ["bkctl", "doctor", *paths, *configuration.words(), *(["--deep"] if deep else [])]
    code, found = _examined(examined)
    asking = _asking_the_store(found, configuration)
    rows = [with_log_salvage(row, asking) for row in found]
    rows = in_order(_with_digests(rows, asking))
    rows = with_journal_salvages(rows, asking, paths)
    if lost_disk:
        rows = _with_rebuild(rows, configuration, lost_disk)
    plan = bound(plan_of(rows, examined, _cluster(configuration), described), configuration, paths)
    if out is not None:
        with new_file(out) as stream:
            stream.write(encode_plan(plan))
    if chosen_format(output) is Format.TABLE:
        for row in plan_rows(plan):
            sys.stdout.write(block(row))
    else:
        write_rows(plan_rows(plan), PLAN_SCHEMA, output)
    if code == 3:
        raise typer.Exit(3)
    if plan.steps or plan.by_hand:
        raise typer.Exit(1)


def _examined(words: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the findings of an examination; an error of its own ends this command, too."""
    code, content = read_own_command([*words, "-o", "json"])
    if code not in (0, 1, 3):
        raise typer.Exit(code)
    found = _rows(content)
    if code == 1 and not found:
        # The error has been written, and ends with the code of findings.
        raise typer.Exit(code)
    return code, found


def _rows(content: bytes) -> list[dict[str, Any]]:
    try:
        rows = json.loads(content or b"[]")
    except ValueError:
        # An error behind some findings leaves their array open, and may have their exit code.
        raise BkctlError(
            "'bkctl doctor' failed before its end, so its findings are not complete, and no plan is made"
        ) from None
    assert isinstance(rows, list), "the doctor writes an array"
    return rows


def _asking_the_store(
    rows: list[dict[str, Any]], configuration: ConfigurationOptions
) -> ConfigurationOptions:
    """Return the configuration with the metadata store that its file names, if that answered the doctor.

    Only the metadata know a ledger of which a loss has left nothing on the bookie, not even its id.
    """
    from bkctl.commands.frame.bookie_options import bookie_config

    silent = any(row["kind"] in _NO_METADATA for row in rows)
    if configuration.metadata_uri is not None or configuration.conf is None or silent:
        return configuration
    uri = bookie_config(configuration, tell=lambda _: None).metadata.uri
    return replace(configuration, metadata_uri=uri)


def _with_digests(rows: list[dict[str, Any]], configuration: ConfigurationOptions) -> list[dict[str, Any]]:
    """Return the rows with rebuilds and salvages that ask the metadata for the digests of the entries.

    The ids of a damaged record may be no entry's: only its digest proves them, and a MAC needs the password.
    """
    uri = configuration.metadata_uri
    if uri is None:
        return rows

    def asking(words: list[str]) -> list[str]:
        asks = words[1:3] in _ASKING and "--metadata" not in words
        return [*words[:-1], "--metadata", uri, words[-1]] if asks else words

    return [{**row, "commands": [asking(words) for words in row["commands"]]} for row in rows]


def _with_rebuild(
    rows: list[dict[str, Any]], configuration: ConfigurationOptions, lost: list[str]
) -> list[dict[str, Any]]:
    """Return the rows with 'bookie rebuild' for directories whose disks the operator knows to be lost.

    If a disk were only not mounted, mounting it would hide the rebuilt files, with all written since then.
    Raises UsageError for a directory that is not empty.
    """
    if configuration.conf is None:
        raise UsageError("--lost-disk needs the bookie's configuration: --conf FILE")
    homes = {normpath(abspath(path)) for path in lost}
    rebuild = ["bkctl", "bookie", "rebuild", *configuration.words(), "--yes"]
    found: set[str] = set()
    made = []
    for row in rows:
        home = "" if row["dir"] is None else abspath(row["dir"].removesuffix("/current"))
        if row["kind"] in _LOST_KINDS and home in homes:
            found.add(home)
        # A start is refused because of these very directories.
        refused = row["kind"] == "cookies_refused" and any(home in row["found"] for home in homes)
        made.append({**row, "commands": [rebuild], "instead": None} if home in homes or refused else row)
    if homes - found:
        raise UsageError(
            f"{', '.join(sorted(homes - found))}: not a configured directory that is empty and has no cookie"
        )
    return made


def _cluster(configuration: ConfigurationOptions) -> list[str]:
    """Return the options that name the metadata store, none for a dump."""
    uri = configuration.metadata_uri
    if uri is not None and not is_dump(uri):
        return ["--metadata", uri]
    return [] if configuration.conf is None else ["--conf", configuration.conf]


def described(command: Sequence[str]) -> tuple[Needs, str]:
    """Return what a command needs the bookie to be, and the first sentence of its help."""
    from bkctl.admin.repairs.repair_plan import Needs
    from bkctl.commands.frame.nouns import NOUNS
    from bkctl.commands.frame.root import load, summary_of

    noun = NOUNS.get(command[1]) if len(command) > 1 else None
    if noun is None:
        raise UsageError(f"{' '.join(command)}: there is no such command")
    found: Any = load(noun)
    if noun.verbs:
        found = getattr(found, "commands", {}).get(command[2] if len(command) > 2 else "")
    if found is None:
        raise UsageError(f"{' '.join(command)}: there is no such command")
    text = found.help or ""
    needs = Needs.EITHER
    if text.startswith("[offline] [writes]"):
        needs = Needs.STOPPED
    elif text.startswith("[online] [writes]"):
        needs = Needs.RUNNING
    return needs, summary_of(found)
