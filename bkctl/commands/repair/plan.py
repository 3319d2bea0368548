"""``bkctl repair plan``: the findings of the doctor as commands in their order."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import chain
from posixpath import abspath, normpath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.commands.frame.metadata_options import DumpOrConfigurationOptions, is_dump
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.commands.frame.own_command import read_own_command
from bkctl.commands.frame.terminal_text import escaped
from bkctl.commands.repair.plan_places import absolute, bound
from bkctl.errors import BkctlError, UsageError
from bkctl.scan.directory import current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bkctl.admin.repairs.repair_plan import Needs, Plan

PLAN_SCHEMA: Schema = (
    Key("number", "int or null", "the step's place in the plan; null for what no command ends"),
    Key("needs", "string or null", "stopped, running or either: what the bookie has to be for it"),
    Key("command", "array or null", "its words"),
    Key("line", "string or null", "the same for a shell"),
    Key("changes", "string", "what it does; for what no command ends, what to do"),
    Key("findings", "array of strings", "what it is for"),
    Key("know", "array of strings", "what to know before"),
)

#: The doctor's findings about a directory that is empty, or not there.
_LOST_KINDS = frozenset({"missing_cookie", "missing_directory"})
#: The doctor's findings about journals that an earlier copy would bring back.
_JOURNAL_KINDS = frozenset(
    {"missing_journal", "mark_beyond_journal", "mark_within_record", "damaged_journal"}
)
_SWAPPED = "journal directories were swapped"
#: Findings of logs that a salvage ends: damaged bytes, or a log of another ledger directory.
_SALVAGED_KINDS = frozenset({"damaged_log", "wrong_log_id_space"})
#: The doctor's finding of a rebuild that did not come to its end.
_LEFT_BEHIND = "unfinished_rebuild"
#: The doctor's finding of an index that is gone while there are logs; its rebuild names their directory.
_LOST_INDEX = "lost_index"
#: The doctor's findings of a metadata store that does not answer, or has no cluster.
_NO_METADATA = frozenset({"no_answer", "no_cluster"})
#: In the row of a log: where its index is, which may be another directory.
_INDEX = "index of the log"
_EXCHANGED_KNOW = (
    "if the log was moved here from another ledger directory, move it back instead, and nothing is lost: "
    "else it goes into quarantine, and what should stand here has to come from other replicas"
)
_JOURNAL_KNOW = (
    "if there is a copy of the journal, or it was only moved, bring it back instead: otherwise what it had "
    "is lost on this bookie, and where it is not known which entries these are, all ledgers of the journal "
    "are put into limbo"
)


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
            help="A configured directory whose disk is lost for good, not only not mounted. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PLAN", help="Write the plan into a new file, for 'repair run'."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Plan the repair of what 'bkctl doctor' finds: commands, their order, and why.

    Nothing is changed. Steps that need the bookie stopped come first, then those that copy from other
    replicas while it runs, which need --metadata. Findings that no command repairs stand at the end,
    without a number. An empty directory may be a disk that is not mounted: its rebuild is planned only with
    --lost-disk. Exit code 1 when there is anything in the plan; 3 when entries could not be checked.

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
    rows = [_with_salvage(row, asking) for row in found]
    rows = _in_order(_with_digests(rows, asking))
    rows = _with_journal_salvage(rows, asking, paths)
    if lost_disk:
        rows = _with_rebuild(rows, configuration, lost_disk)
    plan = bound(plan_of(rows, examined, _cluster(configuration), described), configuration, paths)
    if out is not None:
        with new_file(out) as stream:
            stream.write(encode_plan(plan))
    if chosen_format(output) is Format.TABLE:
        for row in plan_rows(plan):
            sys.stdout.write(_block(row))
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
            "'bkctl doctor' did not come to its end, and what it has found so far makes no plan"
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


def _with_salvage(row: dict[str, Any], configuration: ConfigurationOptions) -> dict[str, Any]:
    """Return the row of a damaged or exchanged log with the command that salvages it, others as they are.

    The doctor names no command for such a log: to bring its entries back from a copy of the file, from other
    replicas, or not at all is a person's choice, and asking for a plan of repairs is that choice.
    """
    from bkctl.admin.entrylogs.log_place import find_log
    from bkctl.admin.logs.file_steps import salvage_words
    from bkctl.vfs import PosixFileSystem

    if row["kind"] not in _SALVAGED_KINDS or row["commands"] or not row["path"]:
        return row
    try:
        place = find_log(PosixFileSystem(), [row["path"]], None, in_quarantine=False)
    except BkctlError as error:
        # Without an index nobody knows what a log should have.
        return {**row, "instead": f"{row['instead']} (not here: {error})"}
    row = {**row, _INDEX: place.space.dir}
    if row["kind"] != "damaged_log":
        if place.space.index_dirs != (place.current_dir,):
            # The index has a place of its own, which may be configured or mounted in a wrong order.
            return row
        row = {**row, "instead": _EXCHANGED_KNOW}
    metadata = configuration.metadata_uri
    words = ["--metadata", metadata] if metadata is not None else []
    return {**row, "commands": [["bkctl", *salvage_words(row["path"], words)]]}


#: Verbs that take --metadata for the digests of entries.
_ASKING = (["index", "rebuild"], ["journal", "salvage"])


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


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with either the salvage of a damaged log or the rebuild of its index, never both.

    A salvage moves the rows of an index, so that an index which is gone or wrong is rebuilt first, beside the
    damaged logs: the rebuild lists the entries that they lost, sets limbo, and the next plan has the salvage.
    If nothing but rows that name damaged bytes is wrong with the index, the salvage alone is enough: it lists
    their entries and puts the ledgers into limbo, and ``ledger repair`` gives them new rows. A rebuild that
    was refused over the damage, and left its work behind, is no reason for another one: the next plan has it.
    """

    def index_of(row: dict[str, Any]) -> str:
        """Return the directory of the index that speaks of a row's log, or that a row is about."""
        if row["kind"] == _LOST_INDEX and row["commands"]:
            # Its logs name it: no index says whose they are.
            return current(row["commands"][0][3])
        return str(row.get(_INDEX, row["dir"]))

    def is_rebuilt(row: dict[str, Any]) -> bool:
        return any(words[1:3] == ["index", "rebuild"] for words in row["commands"])

    logs = [row for row in rows if row["kind"] in _SALVAGED_KINDS]
    damaged = {index_of(row) for row in logs if row["kind"] == "damaged_log"}
    salvages = {row["path"]: row["commands"] for row in logs if row["commands"]}

    def names_damage(row: dict[str, Any]) -> bool:
        is_salvaged = any(words[1:3] == ["entrylog", "salvage"] for words in row["commands"])
        return row["kind"] not in _SALVAGED_KINDS and (
            is_salvaged or (row["kind"] == "dangling_location" and row["path"] in salvages)
        )

    salvaged = {index_of(row) for row in logs if row["commands"]}

    def is_left_behind(row: dict[str, Any]) -> bool:
        return row["kind"] == _LEFT_BEHIND and index_of(row) in salvaged

    rebuilt = {
        index_of(row) for row in rows if is_rebuilt(row) and not names_damage(row) and not is_left_behind(row)
    }
    made = []
    for row in rows:
        if is_left_behind(row) and index_of(row) not in rebuilt:
            continue
        if index_of(row) in rebuilt and (
            row["kind"] in _SALVAGED_KINDS or (names_damage(row) and not is_rebuilt(row))
        ):
            continue
        if index_of(row) in rebuilt & damaged and is_rebuilt(row):
            row = {**row, "commands": [[*words[:-1], "--accept-loss", "--yes"] for words in row["commands"]]}
        elif names_damage(row) and index_of(row) not in rebuilt:
            # As the log's own row has it: a second salvage, which does not ask the metadata, proves less.
            commands = [*chain.from_iterable(salvages.get(words[3], [words]) for words in row["commands"])]
            row = {**row, "commands": commands or salvages[row["path"]], "instead": ""}
        made.append(row)
    return made


def _with_journal_salvage(
    rows: list[dict[str, Any]], configuration: ConfigurationOptions, paths: list[str]
) -> list[dict[str, Any]]:
    """Return the rows with 'journal salvage --in-place' for journals that are damaged or gone for good.

    As for logs, the doctor leaves it to a person whether there is a copy of such a journal.
    """

    def is_salvaged(row: dict[str, Any]) -> bool:
        return row["kind"] in _JOURNAL_KINDS and not row["commands"] and _SWAPPED not in row["found"]

    if not any(map(is_salvaged, rows)):
        return rows
    journals, places = _journals_of(configuration, paths)
    uri = configuration.metadata_uri
    metadata = ["--metadata", uri] if uri is not None else []

    def salvage(row: dict[str, Any]) -> list[str]:
        # One that was not found, because all of its journals are gone, is named by the row alone.
        known = journals if configuration.conf is not None else {*journals, row["dir"]}
        chosen = _chosen_journal(row, known)
        return ["bkctl", "journal", "salvage", *places, "--in-place", *chosen, *metadata, "--yes"]

    return [
        {**row, "commands": [salvage(row)], "instead": _JOURNAL_KNOW} if is_salvaged(row) else row
        for row in rows
    ]


def _journals_of(configuration: ConfigurationOptions, paths: list[str]) -> tuple[set[str], list[str]]:
    """Return the journal directories of the bookie, and the paths that name all of its directories."""
    from bkctl.commands.frame.bookie_options import bookie_config
    from bkctl.scan.files.paths import directories as found_directories
    from bkctl.vfs import PosixFileSystem

    if configuration.conf is None:
        return {found.path for found in found_directories(PosixFileSystem(), paths) if found.journals}, paths
    # A disk of these may be empty, or not mounted: nothing is searched for in them.
    directories = bookie_config(configuration).directories
    places = (*directories.journals, *directories.ledgers, *directories.index_places)
    return set(directories.journals), list(dict.fromkeys(places))


def _chosen_journal(row: dict[str, Any], journals: set[str]) -> list[str]:
    """Return the options that name the journal directory of a row.

    Where there are several, their journals may have the same names. The only one is named by its oldest
    journal, or by the one that the last mark names where it has none.
    """
    from bkctl.codec.journal import parse_journal_name
    from bkctl.vfs import PosixFileSystem

    if len(journals) > 1:
        return ["--journal-dir", row["dir"]]
    ids = sorted(filter(None, map(parse_journal_name, PosixFileSystem().names(row["dir"]))))
    return [
        word for journal_id in (ids or [row["journal_id"]])[:1] for word in ("--journal", hex(journal_id))
    ]


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
            f"{', '.join(sorted(homes - found))}: no configured directory that is empty and without a cookie"
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


def _block(row: dict[str, Any]) -> str:
    """Return a step for people: in a table's cell the command could not be copied."""
    if row["number"] is None:
        lines = [f"BY HAND {row['changes']}", f"  look:     {row['line']}"]
    else:
        lines = [
            f"STEP {row['number']} (bookie {row['needs']}): {row['line']}",
            f"  changes:  {row['changes']}",
        ]
    lines += [f"  for:      {text}" for text in row["findings"]]
    lines += [f"  know:     {text}" for text in row["know"]]
    return "\n".join(map(escaped, lines)) + "\n\n"


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return the rows of a plan."""
    import shlex

    rows: list[dict[str, Any]] = [
        {
            "number": step.number,
            "needs": step.needs.value,
            "command": list(step.command),
            "line": shlex.join(step.command),
            "changes": step.changes,
            "findings": step.findings,
            "know": step.know,
        }
        for step in plan.steps
    ]
    rows += [
        {
            "number": None,
            "needs": None,
            "command": None,
            "line": one.look,
            "changes": one.instead,
            "findings": [one.finding],
            "know": [],
        }
        for one in plan.by_hand
    ]
    return rows
