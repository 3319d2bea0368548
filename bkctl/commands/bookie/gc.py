"""``bkctl bookie gc`` and ``bkctl bookie compact``: collection and compaction of a running bookie."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, running_bookie_url
from bkctl.commands.frame.durations import parse_duration_or_seconds_ms
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, UrlOption
from bkctl.commands.frame.output import Format, Key, Schema, write_rows

if TYPE_CHECKING:
    from bkctl.admin.gc.over_http import DirectoryGc

GC_SCHEMA: Schema = (
    Key("dir", "string or null", "ledger directory; null on a Java bookie"),
    Key("collecting", "bool", "whether a pass that was asked for is still running"),
    Key("deleted_ledgers", "int or null", "ledgers that the last pass deleted; null on a Java bookie"),
    Key("held_deletions", "int or null", "ledgers that wait for --confirm-deletions"),
    Key("deleted_logs", "int or null", "logs without a live ledger that it removed"),
    Key("compacted_logs", "int or null", "logs that it compacted"),
    Key("copied_bytes", "int or null", "bytes that it copied for that"),
    Key("freed_bytes", "int or null", "bytes of disk that the pass gave back"),
    Key("compaction", "string or null", "minor or major, null when none ran"),
    Key("reason", "string or null", "why it ran, or why none did"),
    Key("stopped_by", "string or null", "what kept ledgers from being deleted, or ended the pass"),
    Key("set_aside", "array", "of {log_id, reason}: damaged logs that stay as they are"),
    Key("logs", "array", "of {log_id, action, reason, file_bytes, live_bytes, copied_bytes, freed_bytes}"),
    Key("major_compactions", "int", "since the bookie's start"),
    Key("minor_compactions", "int", "since the bookie's start"),
    Key("last_major_ms", "int", "when the last one ended, ms since 1970"),
    Key("last_minor_ms", "int", "when the last one ended, ms since 1970"),
)


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """Whether a command waits for the end of a pass, and how long."""

    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the pass has ended, and report what it did.")
    ] = True
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=parse_duration_or_seconds_ms,
            help="How long to wait for the end of the pass, such as 90s. Default: until it has ended.",
        ),
    ] = None

    @property
    def timeout_s(self) -> float | None:
        """Return the longest wait in seconds, None where there is no bound."""
        return None if self.timeout is None else self.timeout / 1000


@takes(GC_SCHEMA)
def gc_command(
    url: UrlOption = None,
    confirm_deletions: Annotated[
        bool,
        typer.Option(
            "--confirm-deletions",
            help="Confirm the unusually large number of deletions that the last pass held back.",
        ),
    ] = False,
    *,
    waiting: WaitOptions,
    configuration: ConfigurationOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Collect garbage on a running bookie now: deleted ledgers, and logs of only such
    ledgers.

    Exit code 1 when damaged logs were quarantined, 3 when ledgers could not be deleted or the time ran out, 4
    when deletions wait to be confirmed. Also works on Java bookies, which report fewer details.

    Examples:

      bkctl bookie gc

      bkctl bookie gc --url http://bookie-3:8080

      bkctl bookie gc --confirm-deletions
    """
    from bkctl.admin.gc import over_http

    url = running_bookie_url(url, configuration, changes=True)
    if confirm_deletions:
        over_http.confirm_deletions(url)
    else:
        over_http.trigger(url, major=False, minor=False)
    _wait_and_tell(url, waiting, output)


@takes(GC_SCHEMA)
def compact_command(
    url: UrlOption = None,
    major: Annotated[
        bool, typer.Option("--major", help="Compact logs below majorCompactionThreshold.")
    ] = False,
    minor: Annotated[
        bool, typer.Option("--minor", help="Compact logs below minorCompactionThreshold.")
    ] = False,
    suspend: Annotated[
        bool, typer.Option("--suspend", help="Run no automatic compaction until --resume or the next start.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="End a --suspend.")] = False,
    *,
    waiting: WaitOptions,
    configuration: ConfigurationOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Compact entry logs of a running bookie now, or suspend compaction.

    Without --major and --minor both are run; a major compaction includes the logs of a minor one. A
    compaction that the bookie's configuration switches off stays off unless forceAllowCompaction=true. Exit
    codes are those of gc. Also works on Java bookies, which report fewer details.

    Examples:

      bkctl bookie compact --major

      bkctl bookie compact --minor --url http://bookie-3:8080

      bkctl bookie compact --suspend
    """
    from bkctl.admin.gc import over_http

    if suspend and resume:
        raise typer.BadParameter("either --suspend or --resume", param_hint="--resume")
    if not major and not minor:
        major = minor = True
    url = running_bookie_url(url, configuration, changes=True)
    if suspend:
        over_http.suspend(url, major=major, minor=minor)
    elif resume:
        over_http.resume(url, major=major, minor=minor)
    else:
        over_http.trigger(url, major=major, minor=minor)
    if suspend or resume:
        waiting = WaitOptions(wait=False)
        typer.echo(f"bkctl: {url}: {_resting(*over_http.suspended(url))}", err=True)
    _wait_and_tell(url, waiting, output)


def _resting(major: bool, minor: bool) -> str:
    kinds = [name for name, flag in (("major", major), ("minor", minor)) if flag]
    if not kinds:
        return "no compaction is suspended"
    return f"{' and '.join(kinds)} compactions are suspended until --resume or the bookie's next start"


def register(app: typer.Typer) -> None:
    """Add the two commands to their noun."""
    app.command("gc")(gc_command)
    app.command("compact")(compact_command)


def _wait_and_tell(url: str, waiting: WaitOptions, output: Format | None) -> None:
    from bkctl.admin.gc import over_http

    ended = over_http.wait(url, waiting.timeout_s, _say) if waiting.wait else True
    found = over_http.details(url)
    write_rows((_row(each) for each in found), GC_SCHEMA, output)
    if not waiting.wait:
        return
    codes = [0 if ended else 3]
    for each in found:
        codes += [4] if each.held_deletions else []
        codes += [3] if each.stopped_by else []
        codes += [1] if each.set_aside else []
    # Of several the worst, in the order of the command line's contract.
    worst = next((code for code in (4, 3, 1) if code in codes), 0)
    if worst:
        raise typer.Exit(worst)


def _say(doing: str) -> None:
    if sys.stderr.isatty():
        typer.echo(doing, err=True)


def _row(found: DirectoryGc) -> dict[str, object]:
    row: dict[str, object] = asdict(found)
    row["dir"] = row.pop("directory")
    row["set_aside"] = [{"log_id": each.log_id, "reason": each.reason} for each in found.set_aside]
    return {key.key: row[key.key] for key in GC_SCHEMA}
