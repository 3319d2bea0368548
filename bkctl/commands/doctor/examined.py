"""The subjects of ``bkctl doctor``: a configuration, files of bookies, their metadata, a live bookie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkctl.commands.doctor.report import Report
from bkctl.commands.frame.bookie_options import ConfigurationOptions, given_keys
from bkctl.commands.frame.progress import progress
from bkctl.errors import BkctlError, CorruptionError, MissingPackageError, RefusedError, UsageError

if TYPE_CHECKING:
    from bkctl.admin.doctor.checks.configuration import ReadConfiguration
    from bkctl.admin.doctor.examination import ClusterFacts, Examination
    from bkctl.admin.doctor.finding import Finding
    from bkctl.admin.doctor.subject import Subject
    from bkctl.admin.index.check.placed_entries import Stripe
    from bkctl.commands.frame.cluster_options import StoredMetadata
    from bkctl.scan.metadata_dump import MetadataDump
    from bkctl.server.life.configured_bookie import ConfiguredBookie


@dataclass(frozen=True, slots=True)
class ExaminationOptions:
    """The options of an examination; ``names`` are those of its checks."""

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


def everything(
    paths: list[str], url: str | None, options: ExaminationOptions, report: Report
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


def _read_configuration(options: ExaminationOptions) -> ReadConfiguration | None:
    from bkctl.admin.doctor.checks.configuration import read_configuration

    if options.conf is None:
        return None
    keys = given_keys(options.configuration.override, options.configuration.metadata_uri)
    return read_configuration(options.conf, keys, os.environ, options.memory_bytes, options.words)


def _identity(
    read: ReadConfiguration, options: ExaminationOptions
) -> tuple[ConfiguredBookie | None, Finding | None]:
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
    options: ExaminationOptions,
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
    from bkctl.admin.ledgers.known_ledgers import are_two_clusters, refuse_another
    from bkctl.scan.metadata_dump import load_metadata_dump
    from bkctl.vfs import PosixFileSystem

    filesystem, system = PosixFileSystem(), this_system()
    file = options.metadata_file
    dump = None if file is None else load_metadata_dump(filesystem, file)
    subjects: list[tuple[Subject, ReadConfiguration | None]] = []
    if read is not None and read.config is not None:
        subjects.append((configured_subject(filesystem, read.config.directories), read))
    if paths:
        subjects += [(subject, None) for subject in found_subjects(filesystem, paths, vanished)]
    with _finder(options) as find:
        for subject, configuration in subjects:
            if dump is not None:
                refuse_another(dump.instance_id, _instance_of(subject), str(file))
            # The check of cookies reports a store of another cluster; its ledgers are not these.
            is_ours = find is None or not are_two_clusters(find.instance_id, _instance_of(subject))
            config = None if configuration is None else configuration.config
            cluster = _cluster(subject, identity if config is not None else None, options)
            yield Examination(
                filesystem,
                system,
                subject,
                config=config,
                given=frozenset() if configuration is None else configuration.given,
                cluster=cluster,
                ledgers=None if dump is None else dump.ledgers,
                metadata_file=file,
                placed=_placed(subject, cluster, options) if is_ours else None,
                placed_then=_placed_in(dump, subject, options),
                find=find if is_ours else None,
                command_options=options.words,
                deep=options.deep,
            )


def _instance_of(subject: Subject) -> str | None:
    """Return the UUID of the cluster that a bookie is of by its cookie, None when nothing says it."""
    return None if subject.cookie is None else subject.cookie.instance_id


def _placed(
    subject: Subject, cluster: ClusterFacts | None, options: ExaminationOptions
) -> Mapping[int, Sequence[Stripe]] | None:
    """Read which ledgers the metadata store places on the bookie; None when nobody asks.

    All metadata of the cluster are read for it, so only --deep asks for it.
    """
    from bkctl.admin.index.check.placed_entries import stripes_on
    from bkctl.admin.ledgers.known_ledgers import names
    from bkctl.commands.frame.cluster_options import open_cluster
    from bkctl.commands.frame.progress import progress

    bookie = _asked_for(subject, options)
    if bookie is None or cluster is None or not cluster.is_known:
        return None
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


def _asked_for(subject: Subject, options: ExaminationOptions) -> str | None:
    """Return the bookie whose entries are to be looked for; None where they are not, or nobody knows it."""
    asked = options.deep and "index" in options.names
    cookie = subject.cookie
    return cookie.bookie_host if asked and cookie is not None and cookie.has_fields else None


def _placed_in(
    dump: MetadataDump | None, subject: Subject, options: ExaminationOptions
) -> Mapping[int, Sequence[Stripe]]:
    """Return the entries of closed ledgers that a dump places on the bookie; none without --deep."""
    from bkctl.admin.index.check.placed_entries import stripes_on

    bookie = _asked_for(subject, options)
    if bookie is None or dump is None:
        return {}
    found = ((ledger, stripes_on(metadata, bookie)) for ledger, metadata in dump.ledgers.items())
    return {ledger: stripes for ledger, stripes in found if stripes}


@contextmanager
def _finder(options: ExaminationOptions) -> Iterator[StoredMetadata | None]:
    """Open the metadata store to look for ledgers' digest types in; gives None where there is none to ask.

    That a store does not answer now is what the check ``metadata`` reports.
    """
    from bkctl.commands.frame.cluster_options import StoredMetadata, open_cluster

    if not options.names & {"databases", "journals", "entry_logs", "index"} or not options.has_store:
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


def _cluster(
    subject: Subject, identity: ConfiguredBookie | None, options: ExaminationOptions
) -> ClusterFacts | None:
    """Ask the metadata store for its facts; None when there is none to ask, or no check wants to know."""
    if not options.names & {"metadata", "cookies"} or not options.has_store:
        return None
    if identity is not None:
        return _ask_cluster(options, identity.bookie, identity.ids)
    known = {place.cookie.bookie_host for place in subject.places if place.cookie is not None}
    return _ask_cluster(options, None, tuple(sorted(known)))


def _ask_cluster(
    options: ExaminationOptions, bookie: str | None, ids: tuple[str, ...], url: str | None = None
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


def _live(url: str, options: ExaminationOptions, report: Report) -> Iterator[tuple[str | None, Finding]]:
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
