"""What the metadata store says of the bookie, as far as it is not about cookies."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.offline.doctor.examination import Examination
from bkctl.admin.offline.doctor.finding import Finding, Severity, bkctl_line

CHECK = "metadata"


def check_metadata(exam: Examination) -> Iterator[Finding]:
    """Whether the store answers, has a cluster, and whether the registration fits what runs here."""
    cluster = exam.cluster
    if cluster is None:
        return
    listing = bkctl_line("bookies", "list", "--all", *exam.command_options)
    if cluster.error is not None:
        yield Finding(CHECK, Severity.ERROR, cluster.error, f"an answer of {cluster.uri}", listing)
        return
    if not cluster.exists:
        yield Finding(
            CHECK,
            Severity.ERROR if exam.subject.cookie is not None else Severity.NOTE,
            f"{cluster.uri}: there is no cluster",
            "the cluster of the bookie's cookies; the URI's server and path are the right ones?",
            bkctl_line("bookies", "init", *exam.command_options, "--dry-run"),
        )
        return
    # A copy's bookie may well run somewhere else.
    if cluster.mode is not None and exam.subject.at_home and not exam.in_use:
        yield Finding(
            CHECK,
            Severity.WARNING,
            f"the bookie is registered ({cluster.mode}), and no process here uses its directories: it runs "
            "elsewhere, was killed a moment ago, or runs in another container",
            "a registration only while the bookie runs on these directories",
            listing,
        )
