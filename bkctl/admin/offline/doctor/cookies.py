"""Cookies against each other, against the configuration and against the metadata store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from posixpath import join

from bkctl.admin.offline.bookie_directories import holds_nothing
from bkctl.admin.offline.cookie_difference import FieldDifference, differences
from bkctl.admin.offline.cookie_rules import DirectoryFacts, cookie_of, decide
from bkctl.admin.offline.doctor.examination import ClusterFacts, Examination
from bkctl.admin.offline.doctor.finding import Finding, Severity, bkctl_line
from bkctl.admin.offline.doctor.subject import Place
from bkctl.codec.cookie import Cookie
from bkctl.errors import BkctlError
from bkctl.scan.directory import COOKIE_NAME

CHECK = "cookies"


def check_cookies(exam: Examination) -> Iterator[Finding]:
    """Cookies that cannot be read, are missing, differ, or keep the bookie from starting."""
    yield from _unreadable(exam)
    wanted = wanted_cookie(exam)
    if wanted is None:
        if not exam.subject.configured:
            yield _without_any(exam)
        return
    if not exam.subject.configured and not exam.subject.at_home:
        yield _elsewhere(exam, wanted)
    refusal = _refusal(exam, wanted)
    if refusal is None and exam.subject.configured and exam.known_cluster is not None:
        return  # what differs is what a start may change
    told = False
    for finding in _differing(exam, wanted):
        told = True
        yield finding
    if not told and refusal is not None and not _has_unreadable(exam):
        yield Finding(CHECK, Severity.ERROR, refusal, "cookies with which the bookie starts", _diff(exam))


def wanted_cookie(exam: Examination) -> Cookie | None:
    """The cookie that every directory should have, as far as it is known; None when nothing says so."""
    known = exam.subject.cookie
    instance = None if known is None else known.instance_id
    if exam.known_cluster is not None:
        instance = exam.known_cluster.instance_id
    if exam.config is None:
        return None if known is None else replace(known, instance_id=instance)
    bookie = None if exam.cluster is None else exam.cluster.bookie
    if bookie is None and known is not None:
        bookie = known.bookie_host
    return None if bookie is None else cookie_of(bookie, exam.config.directories, instance)


def _has_unreadable(exam: Examination) -> bool:
    return any(place.cookie_error is not None for place in exam.subject.places)


def _unreadable(exam: Examination) -> Iterator[Finding]:
    for place in exam.subject.places:
        if place.cookie_error is not None:
            path = join(place.path, COOKIE_NAME)
            good = _good_file(exam)
            words = (
                ["cookie", "update", place.path, "--file", good, "--dry-run"] if good else ["inspect", path]
            )
            yield Finding(
                CHECK,
                Severity.ERROR,
                place.cookie_error,
                "a cookie: the layout version on line 1, then the fields",
                bkctl_line(*words),
                dir=place.path,
                path=path,
            )


def _good_file(exam: Examination) -> str | None:
    for place in exam.subject.places:
        if place.cookie is not None and place.cookie == exam.subject.cookie:
            return join(place.path, COOKIE_NAME)
    return None


def _without_any(exam: Examination) -> Finding:
    return Finding(
        CHECK,
        Severity.NOTE,
        "no directory has a cookie: which bookie this is, and whether all of it is here, is not known",
        "current/VERSION in every directory",
        bkctl_line("inspect", exam.subject.places[0].path),
        dir=exam.subject.places[0].path,
    )


def _elsewhere(exam: Examination, wanted: Cookie) -> Finding:
    named = ", ".join(dict.fromkeys(wanted.paths))
    place = exam.subject.places[0]
    return Finding(
        CHECK,
        Severity.NOTE,
        f"the directories of bookie {wanted.bookie_host} are not where their cookie says ({named}): a copy",
        "directories in the places that the cookie names",
        bkctl_line("cookie", "get", place.path),
        dir=place.path,
    )


def _refusal(exam: Examination, wanted: Cookie) -> str | None:
    """Why a bookie would not start, by the rules of its start; None when it would, or it is not known."""
    config, cluster = exam.config, exam.known_cluster
    if config is None or cluster is None:
        return None
    facts = [_facts(exam, place) for place in exam.subject.places]
    try:
        decide(wanted, facts, cluster.stored, allow_expansion=config.directories.allow_expansion)
    except BkctlError as error:
        return str(error)
    return None


def _facts(exam: Examination, place: Place) -> DirectoryFacts:
    found = place.found
    if found is None:
        return DirectoryFacts(place.home, None, is_empty=True)
    holds_data = bool(found.logs or found.journals or found.indexes)
    empty = holds_nothing(exam.filesystem.names(place.path))
    return DirectoryFacts(place.home, place.cookie, empty, holds_data)


def _differing(exam: Examination, wanted: Cookie) -> Iterator[Finding]:
    subject, cluster = exam.subject, exam.known_cluster
    known = [place for place in subject.places if place.cookie is not None]
    for place in subject.places:
        if place.cookie is not None:
            path = join(place.path, COOKIE_NAME)
            for field in differences(wanted, place.cookie):
                yield _difference(exam, field, f"{path}: ", _diff(exam, place), dir=place.path, path=path)
        elif place.found is not None and place.cookie_error is None and (known or exam.is_stored):
            yield _missing(exam, place, wanted)
    for stored in cluster.stored if cluster is not None else ():
        for field in differences(wanted, stored.cookie):
            where = f"metadata store, cookie of bookie {stored.bookie}: "
            yield _difference(exam, field, where, _diff(exam))
    if cluster is not None and known and not cluster.stored:
        yield _not_stored(exam, cluster, wanted)


def _difference(
    exam: Examination,
    field: FieldDifference,
    where: str,
    following: str,
    *,
    dir: str | None = None,
    path: str | None = None,
) -> Finding:
    source = "the other directories have" if exam.config is None else "the configuration has"
    if exam.is_stored:
        source = source.rsplit(" ", 1)[0] + " and the cluster have"
    return Finding(
        CHECK,
        Severity.ERROR,
        f"{where}{field.field} is {field.found or 'absent'} ({field.cause})",
        f"{field.expected or 'absent'}, as {source} it",
        following,
        dir=dir,
        path=path,
    )


def _missing(exam: Examination, place: Place, wanted: Cookie) -> Finding:
    empty = holds_nothing(exam.filesystem.names(place.path))
    good = _good_file(exam)
    if empty:
        found = "empty and without a cookie: a disk that is not mounted, was replaced or emptied, or is new"
        following = _diff(exam)
    else:
        found = "no cookie in a directory that holds data"
        following = _diff(exam)
        if good is not None:
            following = bkctl_line("cookie", "create", place.path, "--file", good, "--dry-run")
    return Finding(
        CHECK,
        Severity.ERROR,
        found,
        f"the cookie of bookie {wanted.bookie_host} in {COOKIE_NAME}",
        following,
        dir=place.path,
        path=join(place.path, COOKIE_NAME),
    )


def _not_stored(exam: Examination, cluster: ClusterFacts, wanted: Cookie) -> Finding:
    good = _good_file(exam)
    following = _diff(exam)
    if good is not None:
        words = ("cookie", "create", wanted.bookie_host, "--file", good)
        following = bkctl_line(*words, *exam.command_options, "--dry-run")
    return Finding(
        CHECK,
        Severity.ERROR,
        f"the metadata store {cluster.uri} has no cookie of bookie {wanted.bookie_host}: it was "
        "decommissioned, its cookie was removed, or this is another cluster's metadata",
        "the same cookie in the directories and in the metadata store",
        following,
    )


def _diff(exam: Examination, place: Place | None = None) -> str:
    """The command that shows what differs."""
    if exam.config is not None:
        return bkctl_line("cookie", "diff", *exam.command_options)
    good = _good_file(exam)
    others = [one.path for one in exam.subject.places if one is not place and one.cookie is not None]
    first = good.removesuffix(f"/{COOKIE_NAME}") if good is not None else next(iter(others), None)
    second = place.path if place is not None else exam.subject.name
    if first is None or (place is not None and first == place.path):
        return bkctl_line("cookie", "get", second, *exam.command_options)
    return bkctl_line("cookie", "diff", first, second, *exam.command_options)
