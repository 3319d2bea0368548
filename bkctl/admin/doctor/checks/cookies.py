"""Cookies against each other, against the configuration and against the metadata store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from posixpath import join

from bkctl.admin.cookies import cookie_steps
from bkctl.admin.cookies.difference import FieldDifference, differences
from bkctl.admin.doctor.examination import ClusterFacts, Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.subject import Place
from bkctl.admin.next_step import ended_by, not_ended
from bkctl.codec.cookie import Cookie
from bkctl.directories.bookie_directories import holds_nothing
from bkctl.directories.cookie_rules import DirectoryFacts, cookie_of, decide
from bkctl.directories.half_converted import is_half_converted
from bkctl.directories.half_rebuilt import is_half_rebuilt
from bkctl.errors import BkctlError
from bkctl.scan.directory import COOKIE_NAME

CHECK = "cookies"
_REBUILD_AGAIN = "run 'bkctl bookie rebuild' again, with the bookie's configuration"


def check_cookies(exam: Examination) -> Iterator[Finding]:
    """Report cookies that cannot be read, are missing, differ, or keep the bookie from starting."""
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
    old = _old_name(exam, wanted)
    if old is not None:
        yield _renamed(exam, old, wanted)
    told = old is not None
    same = wanted if old is None else replace(wanted, bookie_host=old)
    for finding in _differing(exam, same, renamed=old is not None):
        told = True
        yield finding
    if not told and refusal is not None and not _has_unreadable(exam):
        step = not_ended("the finding says what to do; no command knows which side is right", *_diff(exam))
        expected = "cookies with which the bookie starts"
        yield Finding(CHECK, Kind.COOKIES_REFUSED, Severity.ERROR, refusal, expected, step)


def wanted_cookie(exam: Examination) -> Cookie | None:
    """Work out, as far as it is known, which cookie each directory should have; None when nothing says so."""
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


def _old_name(exam: Examination, wanted: Cookie) -> str | None:
    """Find the id under which the bookie has served so far.

    There is one where all of its cookies say the same and it is not the one that the configuration makes.
    """
    names = {place.cookie.bookie_host for place in exam.subject.places if place.cookie is not None}
    if exam.config is None or len(names) != 1 or _has_unreadable(exam):
        return None
    (name,) = names
    return name if name and name != wanted.bookie_host else None


def _renamed(exam: Examination, old: str, wanted: Cookie) -> Finding:
    cause = next(
        field.cause
        for field in differences(wanted, replace(wanted, bookie_host=old))
        if field.field == "bookie_host"
    )
    homes = [place.path for place in exam.subject.places if place.cookie is not None]
    return Finding(
        CHECK,
        Kind.RENAMED_BOOKIE,
        Severity.ERROR,
        f"bookie_host is {old} in every cookie, but {wanted.bookie_host} by the configuration ({cause}): the "
        f"bookie does not start, and the metadata of its ledgers names {old}",
        f"a configuration that gives the id {old}",
        cookie_steps.of_renamed(old, wanted.bookie_host, homes, exam.command_options, _diff(exam)),
        dir=homes[0],
    )


def _has_unreadable(exam: Examination) -> bool:
    return any(place.cookie_error is not None for place in exam.subject.places)


def _unreadable(exam: Examination) -> Iterator[Finding]:
    for place in exam.subject.places:
        if place.cookie_error is not None:
            path = join(place.path, COOKIE_NAME)
            good = _good_file(exam)
            step = not_ended(cookie_steps.WITHOUT_SOURCE, "inspect", path)
            if good is not None:
                step = ended_by(("cookie", "update", place.path, "--file", good, "--yes"))
            yield Finding(
                CHECK,
                Kind.UNREADABLE_COOKIE,
                Severity.ERROR,
                place.cookie_error,
                "a cookie: the layout version on line 1, then the fields",
                step,
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
        Kind.NO_COOKIE,
        Severity.NOTE,
        "no directory has a cookie: it is not known which bookie this is, and whether all of it is here",
        "current/VERSION in every directory",
        not_ended(
            "name the bookie's configuration (--conf), which defines the bookie",
            "inspect",
            exam.subject.places[0].path,
        ),
        dir=exam.subject.places[0].path,
    )


def _elsewhere(exam: Examination, wanted: Cookie) -> Finding:
    named = ", ".join(dict.fromkeys(wanted.paths))
    place = exam.subject.places[0]
    return Finding(
        CHECK,
        Kind.COPIED_BOOKIE,
        Severity.NOTE,
        f"the directories of bookie {wanted.bookie_host} are not where their cookie says ({named}): a copy",
        "directories in the places that the cookie names",
        not_ended(
            "nothing to do for a copy; a bookie starts on it only in the places that the cookie names",
            "cookie",
            "get",
            place.path,
        ),
        dir=place.path,
    )


def _refusal(exam: Examination, wanted: Cookie) -> str | None:
    """Return why a bookie would not start, by the rules of its start; None when it would, or nobody knows."""
    config, cluster = exam.config, exam.known_cluster
    if config is None or cluster is None:
        return None
    facts = [_facts(exam, place) for place in exam.subject.places]
    try:
        decide(
            wanted,
            facts,
            cluster.stored,
            allow_expansion=config.directories.allow_expansion,
            kind=config.storage_kind,
        )
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


def _differing(exam: Examination, wanted: Cookie, *, renamed: bool) -> Iterator[Finding]:
    """Yield what differs from the wanted cookie.

    The store was asked about a renamed bookie by its new name only.
    """
    subject, cluster = exam.subject, exam.known_cluster
    known = [place for place in subject.places if place.cookie is not None]
    for place in subject.places:
        if place.cookie is not None:
            path = join(place.path, COOKIE_NAME)
            for field in differences(wanted, place.cookie):
                yield _difference(exam, field, f"{path}: ", _diff(exam, place), dir=place.path, path=path)
        elif is_half_converted(exam.filesystem, place.path):
            continue  # the conversion has it, and brings it back
        elif place.found is not None and place.cookie_error is None and (known or exam.is_stored):
            yield _missing(exam, place, wanted)
    for stored in cluster.stored if cluster is not None else ():
        for field in differences(wanted, stored.cookie):
            where = f"metadata store, cookie of bookie {stored.bookie}: "
            yield _difference(exam, field, where, _diff(exam))
    if cluster is not None and known and not cluster.stored and not renamed:
        yield _not_stored(exam, cluster, wanted)


def _difference(
    exam: Examination,
    field: FieldDifference,
    where: str,
    look: tuple[str, ...],
    *,
    dir: str | None = None,
    path: str | None = None,
) -> Finding:
    source = "the other directories have" if exam.config is None else "the configuration has"
    if exam.is_stored:
        source = source.rsplit(" ", 1)[0] + " and the cluster have"
    return Finding(
        CHECK,
        Kind.DIFFERENT_COOKIE,
        Severity.ERROR,
        f"{where}{field.field} is {field.found or 'absent'} ({field.cause})",
        f"{field.expected or 'absent'}, as {source} it",
        not_ended(cookie_steps.INSTEAD[field.field], *look),
        dir=dir,
        path=path,
    )


def _missing(exam: Examination, place: Place, wanted: Cookie) -> Finding:
    empty = holds_nothing(exam.filesystem.names(place.path))
    step = cookie_steps.of_missing_file(place.path, _good_file(exam), is_empty=empty, look=_diff(exam))
    if is_half_rebuilt(exam.filesystem, place.path):
        # Behind the cookie alone a bookie would deny what was there.
        found = "no cookie in a directory whose rebuild was interrupted"
        step = not_ended(_REBUILD_AGAIN)
        if exam.config is not None:
            step = ended_by(("bookie", "rebuild", *exam.command_options, "--yes"))
    elif empty:
        found = "empty and without a cookie: its disk is not mounted, was replaced or emptied, or is new"
    else:
        found = "no cookie in a directory that holds data"
    return Finding(
        CHECK,
        Kind.MISSING_COOKIE,
        Severity.ERROR,
        found,
        f"the cookie of bookie {wanted.bookie_host} in {COOKIE_NAME}",
        step,
        dir=place.path,
        path=join(place.path, COOKIE_NAME),
    )


def _not_stored(exam: Examination, cluster: ClusterFacts, wanted: Cookie) -> Finding:
    known = exam.subject.cookie
    good = _good_file(exam) if known is not None and not differences(wanted, known) else None
    return Finding(
        CHECK,
        Kind.COOKIE_NOT_STORED,
        Severity.ERROR,
        f"the metadata store {cluster.uri} has no cookie of bookie {wanted.bookie_host}: the bookie was "
        "decommissioned, or its cookie was removed, or this is another cluster's metadata",
        "the same cookie in the directories and in the metadata store",
        cookie_steps.of_missing_node(wanted.bookie_host, good, exam.command_options, _diff(exam)),
    )


def _diff(exam: Examination, place: Place | None = None) -> tuple[str, ...]:
    """Give the words of the command that shows what differs."""
    if exam.config is not None:
        return ("cookie", "diff", *exam.command_options)
    good = _good_file(exam)
    others = [one.path for one in exam.subject.places if one is not place and one.cookie is not None]
    first = good.removesuffix(f"/{COOKIE_NAME}") if good is not None else next(iter(others), None)
    second = place.path if place is not None else exam.subject.name
    if first is None or (place is not None and first == place.path):
        return ("cookie", "get", second, *exam.command_options)
    return ("cookie", "diff", first, second, *exam.command_options)
