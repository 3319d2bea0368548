"""Check what the metadata store says of the bookie, as far as it is not about cookies."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.next_step import ended_by, not_ended

CHECK = "metadata"


def check_metadata(exam: Examination) -> Iterator[Finding]:
    """Check whether the store answers, has a cluster, and whether the registration fits what runs here."""
    cluster = exam.cluster
    if cluster is None:
        return
    listing = ("bookies", "list", "--all", *exam.command_options)
    if cluster.error is not None:
        step = not_ended(
            "bring the metadata store back, or correct its URI; the command asks it again", *listing
        )
        expected = f"an answer of {cluster.uri}"
        yield Finding(CHECK, Kind.NO_ANSWER, Severity.ERROR, cluster.error, expected, step)
        return
    if not cluster.exists:
        yield Finding(
            CHECK,
            Kind.NO_CLUSTER,
            Severity.ERROR if exam.subject.cookie is not None else Severity.NOTE,
            f"{cluster.uri}: there is no cluster",
            "the cluster of the bookie's cookies; the URI's server and path are the right ones?",
            ended_by(
                ("bookies", "init", *exam.command_options),
                instead="only where the URI is right and the cluster is to be a new one: a bookie that has "
                "cookies of another cluster does not start in it",
            ),
        )
        return
    # A copy's bookie may well run somewhere else.
    if cluster.mode is not None and exam.subject.at_home and not exam.in_use:
        yield Finding(
            CHECK,
            Kind.REGISTERED_ELSEWHERE,
            Severity.WARNING,
            f"the bookie is registered ({cluster.mode}), and no process here uses its directories: it runs "
            "elsewhere, was killed a moment ago, or runs in another container",
            "a registration only while the bookie runs on these directories",
            not_ended(
                "a registration ends with the session of its process, some seconds after that was killed; "
                "one that stays is a bookie that runs elsewhere under this id",
                *listing,
            ),
        )
