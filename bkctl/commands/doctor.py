"""``bkctl doctor``: every check on a bookie's directories, or on a live bookie."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.bookie_options import ConfigurationOptions, MemoryOption, given_keys
from bkctl.commands.frame.metadata_options import DumpOrConfigurationOptions, OldDumpOption, dump_and_store
from bkctl.commands.frame.next_steps import NEXT_KEYS, next_keys
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, UrlOption, noun_app, url_unless
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import default_paths
from bkctl.commands.frame.view_options import current_view
from bkctl.errors import BkctlError, CorruptionError, MissingPackageError, RefusedError, UsageError

if TYPE_CHECKING:
    from bkctl.admin.doctor.checks.configuration import ReadConfiguration
    from bkctl.admin.doctor.examination import ClusterFacts, Examination
    from bkctl.admin.doctor.finding import Finding
    from bkctl.admin.doctor.subject import Subject
    from bkctl.admin.index.check.placed_entries import Stripe
    from bkctl.admin.logs.digests import FindMetadata
    from bkctl.server.life.configured_bookie import ConfiguredBookie

app = noun_app("[offline] [online] [reads] Examine a bookie's directories, or a live bookie.")

SCHEMA: Schema = (
    Key(
        "bookie",
        "string or null",
        "the bookie's id; without one its first directory or URL; or the configuration",
    ),
    Key("check", "string", "name of the check, as --list-checks shows it"),
    Key("kind", "string", "what is wrong, in a word; of the check index a kind of 'index check'"),
    Key("severity", "string", "error, warning, unchecked or note"),
    Key("dir", "string or null", "directory of the bookie"),
    Key("path", "string or null", "file or database"),
    Key("ledger", "int or null", "ledger id"),
    Key("log_id", "int or null", "entry log, decimal"),
    Key("journal_id", "int or null", "journal, decimal"),
    Key("offset", "int or null", "offset in the file"),
    Key("count", "int", "how many alike this row stands for"),
    Key("found", "string", "what was found"),
    Key("expected", "string", "what was expected"),
    *NEXT_KEYS,
)

CHECKS_SCHEMA: Schema = (
    Key("check", "string", "name of the check"),
    Key("needs", "string", "files (PATH or --conf), configuration (--conf), metadata, or url"),
    Key("long", "bool", "whether it reads whole files"),
    Key("summary", "string", "the subject of the check"),
)


def _list_checks(ctx: typer.Context, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from bkctl.admin.doctor.check import Check
    from bkctl.admin.doctor.doctor import CHECKS
    from bkctl.admin.doctor.live import LIVE_CHECKS

    checks: tuple[Check[Any], ...] = (*CHECKS, *LIVE_CHECKS)
    rows: list[dict[str, Any]] = [
        {"check": check.name, "needs": check.needs, "long": check.long, "summary": check.summary}
        for check in checks
    ]
    write_rows(rows, CHECKS_SCHEMA, ctx.params.get("output"))
    raise typer.Exit


@dataclass(frozen=True, slots=True)
class _CheckOptions:
    """Which checks are made."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="CHECK[,...]",
            help="Only these checks.",
            autocompletion=value_completion.checks,
        ),
    ] = None
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            metavar="CHECK[,...]",
            help="Not these checks.",
            autocompletion=value_completion.checks,
        ),
    ] = None


@app.command("doctor")
@takes(SCHEMA)
def doctor_command(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            show_default=False,
            help="Directories of a bookie, or a folder that holds those of several.",
        ),
    ] = None,
    *,
    configuration: DumpOrConfigurationOptions,
    url: UrlOption = None,
    ledger_metadata: OldDumpOption = None,
    memory: MemoryOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Check the digest of every entry in the logs.")
    ] = False,
    checks: _CheckOptions,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also show notes (informational, no action needed).")
    ] = False,
    list_checks: Annotated[
        bool, typer.Option("--list-checks", help="List the checks and exit.", callback=_list_checks)
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Examine a bookie's directories, or a live bookie; say what to do.

    With --conf everything is examined: the configuration, cookies against it and the metadata store,
    directories and disks, marks, journals, entry logs and the index. With PATH the files are examined by
    themselves. With --url the live bookie is asked; --metadata adds what the metadata store knows about it.
    Nothing is written, no lock taken.

    Quick checks come first; journals, entry_logs and index read whole files. Every finding names the next
    command; with --columns findings are rows of a table. Exit code 1 when there are errors or warnings; 0
    and nothing on stdout when there are none; 3, also beside them, when the digests of some entries could
    not be checked. The digests of the entries in journals are always checked, those of the entries in logs
    with --deep; their types come from the metadata (--metadata), or else from the entries.

    Examples:

      bkctl doctor --conf /etc/bookkeeper/bk_server.conf

      bkctl doctor /data/bookie --skip index,journals

      bkctl doctor --url http://bookie-3:8080 --metadata zk://host:2181/ledgers -o json
    """
    url = url_unless(url, context, given=paths or configuration.conf)
    ledger_metadata, uri = dump_and_store(configuration.metadata_uri, ledger_metadata)
    configuration = replace(configuration, metadata_uri=uri)
    if configuration.override and configuration.conf is None:
        raise UsageError("-X goes with --conf")
    if not paths and configuration.conf is None and url is None:
        paths = default_paths(", or --conf, or --url")
        uri = configuration.metadata_uri or _default_metadata(paths[0])
        configuration = replace(configuration, metadata_uri=uri)
    options = _Options(configuration, memory, deep, ledger_metadata, _chosen(checks.only, checks.skip))
    report = _Report()
    rows = report.watch(_everything(paths or [], url, options, report), notes=notes)
    view = current_view()
    if chosen_format(output) is Format.TABLE and view.columns is None:
        for row in view.rows(rows):
            sys.stdout.write(_block(row))
    else:
        write_rows(rows, SCHEMA, output)
    report.close(notes=notes)


def _default_metadata(data: str) -> str | None:
    """Return the embedded metadata of a bookie without a configuration, when it has made some."""
    from bkctl.config.loader import METADATA_FILE

    path = os.path.abspath(os.path.join(data, METADATA_FILE))
    return f"embedded://{path}" if os.path.exists(path) else None


@dataclass(frozen=True, slots=True)
class _Options:
    configuration: ConfigurationOptions
    memory_bytes: int | None
    deep: bool
    metadata_file: str | None
    names: frozenset[str]

    @property
    def words(self) -> tuple[str, ...]:
        """The options by which another command finds the same bookie and cluster."""
        return self.configuration.words()

    @property
    def conf(self) -> str | None:
        """The file of the configuration."""
        return self.configuration.conf

    @property
    def has_store(self) -> bool:
        """Whether a metadata store is named."""
        return self.conf is not None or self.configuration.metadata_uri is not None


def _chosen(only: list[str] | None, skip: list[str] | None) -> frozenset[str]:
    from bkctl.admin.doctor.doctor import CHECKS
    from bkctl.admin.doctor.live import LIVE_CHECKS

    known = [check.name for check in CHECKS] + [check.name for check in LIVE_CHECKS]

    def named(words: list[str] | None, option: str) -> frozenset[str]:
        names = [name.strip() for word in words or () for name in word.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{option} {name}: no such check; there are {', '.join(dict.fromkeys(known))}"
                )
        return frozenset(names)

    chosen = named(only, "--only") or frozenset(known)
    return chosen - named(skip, "--skip")


@dataclass(slots=True)
class _Report:
    """Counts what passes by. ``skipped_digests``: the digests of entries in logs were not looked at."""

    checks: int = 0
    skipped_digests: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def watch(self, found: Iterable[tuple[str | None, Finding]], *, notes: bool) -> Iterator[dict[str, Any]]:
        for bookie, finding in found:
            severity = finding.severity.value
            self.counts[severity] += 1
            if severity != "note" or notes:
                yield _row(bookie, finding)

    def close(self, *, notes: bool) -> None:
        """Write the last line on stderr, and end with the exit code."""
        errors, warnings, hidden = self.counts["error"], self.counts["warning"], self.counts["note"]
        from bkctl.reporting import counted

        if not self.checks:
            raise UsageError("none of the chosen checks can be done on what was named; see --list-checks")
        unchecked = self.counts["unchecked"]
        text = counted(self.checks, "check")
        if errors or warnings:
            text += f": {counted(errors, 'error')}, {counted(warnings, 'warning')}"
        else:
            text += ", nothing found" + (" in what could be checked" if unchecked else "")
        if unchecked:
            text += f"; {unchecked} with unchecked entries"
        if self.skipped_digests:
            text += "; the digests of entries in logs were not checked (--deep checks them)"
        if hidden:
            text += f"; {counted(hidden, 'note')}" + ("" if notes else " (--notes shows them)")
        typer.echo(f"bkctl: {text}", err=True)
        raise typer.Exit(3 if unchecked else int(bool(errors or warnings)))


def _row(bookie: str | None, finding: Finding) -> dict[str, Any]:
    return {
        "bookie": bookie,
        "check": finding.check,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "dir": finding.dir,
        "path": finding.path,
        "ledger": finding.ledger,
        "log_id": finding.log_id,
        "journal_id": finding.journal_id,
        "offset": finding.offset,
        "count": finding.count,
        "found": finding.found,
        "expected": finding.expected,
        **next_keys(finding.next),
    }


def _block(row: Mapping[str, Any]) -> str:
    """Return a finding as text for people: in a table's cell the next command could not be copied."""
    where = row["path"] or row["dir"] or row["bookie"]
    at = "" if row["offset"] is None else f", offset {row['offset']}"
    lines = [
        f"{row['severity'].upper()} {row['check']}: {where}{at}",
        f"  found:    {row['found']}",
        f"  expected: {row['expected']}",
    ]
    if row["next"] is not None:
        lines.append(f"  {'next:    ' if row['commands'] else 'look:    '} {row['next']}")
    if row["instead"] is not None:
        lines.append(f"  {'know:    ' if row['commands'] else 'do:      '} {row['instead']}")
    return (
        "\n".join("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line) for line in lines)
        + "\n\n"
    )


def _everything(
    paths: list[str], url: str | None, options: _Options, report: _Report
) -> Iterator[tuple[str | None, Finding]]:
    """Yield findings with the bookie that they are about: files first, then the live bookie."""
    from bkctl.admin.doctor.checks.directories import vanished_directory
    from bkctl.admin.doctor.doctor import (
        applicable,
        bytes_to_read,
        configuration_findings,
        run_checks,
    )

    if paths or options.conf is not None:
        read = _read_configuration(options)
        report.checks += int(read is not None and "configuration" in options.names)
        for finding in configuration_findings(read, options.names):
            yield options.conf, finding
        identity = None
        if read is not None and read.config is not None:
            identity, problem = _identity(read, options)
            if problem is not None and "configuration" in options.names:
                yield options.conf, problem
        vanished: list[str] = []
        for exam in _examinations(paths, options, read, identity, vanished):
            name = exam.subject.name
            checks = applicable(exam, options.names)
            report.checks += len(checks)
            report.skipped_digests |= not exam.deep and any(check.name == "entry_logs" for check in checks)
            bytes_total = bytes_to_read(exam, options.names)
            with progress(f"examining {name}", bytes_total, streams_rows=True) as advance:
                exam.advance = advance
                for finding in run_checks(exam, options.names):
                    yield name, finding
        if "directories" in options.names:
            yield from ((None, vanished_directory(path)) for path in vanished)
    if url is not None:
        yield from _live(url, options, report)


def _read_configuration(options: _Options) -> ReadConfiguration | None:
    from bkctl.admin.doctor.checks.configuration import read_configuration

    if options.conf is None:
        return None
    keys = given_keys(options.configuration.override, options.configuration.metadata_uri)
    return read_configuration(options.conf, keys, os.environ, options.memory_bytes, options.words)


def _identity(read: ReadConfiguration, options: _Options) -> tuple[ConfiguredBookie | None, Finding | None]:
    """Return the bookie that the configuration names, or why that cannot be said."""
    from bkctl.admin.doctor.checks.configuration import identity_finding
    from bkctl.server.life.configured_bookie import configured_bookie

    assert read.config is not None, "it could be read"
    try:
        return configured_bookie(read.config), None
    except CorruptionError:
        return None, None  # a cookie that does not parse, which the check of cookies reports
    except (UsageError, RefusedError) as error:
        return None, identity_finding(error, read.path, options.words)


def _examinations(
    paths: list[str],
    options: _Options,
    read: ReadConfiguration | None,
    identity: ConfiguredBookie | None,
    vanished: list[str],
) -> Iterator[Examination]:
    """Yield the bookies to be examined: the configured one, and those in the directories that were named.

    ``vanished`` collects folders that are removed while bookies are looked for in what was named.
    """
    from bkctl.admin.doctor.doctor import this_system
    from bkctl.admin.doctor.examination import Examination
    from bkctl.admin.doctor.subject import configured_subject, found_subjects
    from bkctl.scan.metadata_dump import load_metadata_dump
    from bkctl.vfs import PosixFileSystem

    filesystem, system = PosixFileSystem(), this_system()
    file = options.metadata_file
    ledgers = load_metadata_dump(filesystem, file).ledgers if file is not None else None
    subjects: list[tuple[Subject, ReadConfiguration | None]] = []
    if read is not None and read.config is not None:
        subjects.append((configured_subject(filesystem, read.config.directories), read))
    if paths:
        subjects += [(subject, None) for subject in found_subjects(filesystem, paths, vanished)]
    with _finder(options) as find:
        for subject, configuration in subjects:
            config = None if configuration is None else configuration.config
            cluster = _cluster(subject, identity if config is not None else None, options)
            yield Examination(
                filesystem,
                system,
                subject,
                config=config,
                given=frozenset() if configuration is None else configuration.given,
                cluster=cluster,
                ledgers=ledgers,
                metadata_file=file,
                placed=_placed(subject, cluster, options),
                find=find,
                command_options=options.words,
                deep=options.deep,
            )


def _placed(
    subject: Subject, cluster: ClusterFacts | None, options: _Options
) -> Mapping[int, Sequence[Stripe]] | None:
    """Read which ledgers the metadata store places on the bookie; None when nobody asks.

    All metadata of the cluster are read for it, so only --deep asks for it.
    """
    from bkctl.admin.index.check.placed_entries import stripes_on
    from bkctl.admin.ledgers.known_ledgers import names
    from bkctl.commands.frame.cluster_options import open_cluster
    from bkctl.commands.frame.progress import progress

    asked = options.deep and "index" in options.names and cluster is not None and cluster.is_known
    if not asked or subject.cookie is None or not subject.cookie.has_fields:
        return None
    bookie = subject.cookie.bookie_host
    placed: dict[int, Sequence[Stripe]] = {}
    with (
        open_cluster(options.configuration) as store,
        progress("reading metadata", counts="ledgers", streams_rows=True) as advance,
    ):
        for ledger, stored in store.ledgers.read_ledgers(store.ledgers.ledgers()):
            advance(1)
            if isinstance(stored, CorruptionError):
                placed[ledger] = ()
            elif stored is not None and names(stored.metadata, bookie):
                placed[ledger] = stripes_on(stored.metadata, bookie)
    return placed


@contextmanager
def _finder(options: _Options) -> Iterator[FindMetadata | None]:
    """Open the metadata store to look for ledgers' digest types in; gives None where there is none to ask.

    That a store does not answer now is what the check ``metadata`` reports.
    """
    from bkctl.commands.frame.cluster_options import StoredMetadata, open_cluster

    if not options.names & {"journals", "entry_logs", "index"} or not options.has_store:
        yield None
        return
    with ExitStack() as stack:
        try:
            store = stack.enter_context(open_cluster(options.configuration))
            is_known = store.layout.cluster_exists()
        except MissingPackageError:
            raise
        except BkctlError:
            is_known = False
        yield StoredMetadata(store) if is_known else None


def _cluster(subject: Subject, identity: ConfiguredBookie | None, options: _Options) -> ClusterFacts | None:
    """Ask the metadata store for its facts; None when there is none to ask, or no check wants to know."""
    if not options.names & {"metadata", "cookies"} or not options.has_store:
        return None
    if identity is not None:
        return _ask_cluster(options, identity.bookie, identity.ids)
    known = {place.cookie.bookie_host for place in subject.places if place.cookie is not None}
    return _ask_cluster(options, None, tuple(sorted(known)))


def _ask_cluster(
    options: _Options, bookie: str | None, ids: tuple[str, ...], url: str | None = None
) -> ClusterFacts:
    """Return the cluster's facts about a bookie; ``url`` finds a live one that does not report its id."""
    from bkctl.admin.doctor.examination import ClusterFacts
    from bkctl.admin.doctor.live_bookie import cluster_facts, registered_at
    from bkctl.commands.frame.cluster_options import open_cluster
    from bkctl.commands.frame.maintenance_warning import known_maintenance

    try:
        with open_cluster(options.configuration) as store:
            if url is not None and bookie is None and store.layout.cluster_exists():
                bookie = registered_at(store, url)
                ids = () if bookie is None else (bookie,)
            facts = cluster_facts(store, bookie, ids)
            if facts.error is None and store.layout.cluster_exists():
                known_maintenance(store)
            return facts
    except MissingPackageError:
        raise  # the store may well be there: nothing is wrong with it that a finding could name
    except BkctlError as error:
        named = options.configuration.metadata_uri or f"the metadata store that {options.conf} names"
        return ClusterFacts(named, bookie, error=str(error))


def _live(url: str, options: _Options, report: _Report) -> Iterator[tuple[str | None, Finding]]:
    from bkctl.admin.doctor.live import LIVE_CHECKS, run_live_checks
    from bkctl.admin.doctor.live_bookie import ask_bookie
    from bkctl.clock import SystemClock

    def find(bookie: str | None) -> ClusterFacts:
        return _ask_cluster(options, bookie, () if bookie is None else (bookie,), url)

    asked = options.has_store and "registration" in options.names
    bookie = ask_bookie(url, find if asked else None, SystemClock(), options.words)
    report.checks += sum(
        check.name in options.names and (check.name != "registration" or bookie.cluster is not None)
        for check in LIVE_CHECKS
    )
    for finding in run_live_checks(bookie, options.names):
        yield bookie.status.bookie or bookie.url, finding
