"""Offer a shell values behind an option or as an argument: names of jobs, checks, error codes, ids.

Ids come from the metadata store that the line, the environment or the context names. A TAB must not hang and
must not print: whatever goes wrong, nothing is offered.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore

#: As many ids as a screen may hold; a cluster may have millions.
_OFFERED_MAX = 200


def jobs(incomplete: str) -> list[str]:
    """Return the names of the pipeline's jobs."""
    from bkctl.pipeline.jobs.catalogue import JOBS

    return [name for name in JOBS if name.startswith(incomplete)]


def checks(incomplete: str) -> list[str]:
    """Return the doctor's checks; behind a comma the next one of a list."""
    from bkctl.admin.doctor.doctor import CHECKS
    from bkctl.admin.doctor.live import LIVE_CHECKS

    before, comma, begun = incomplete.rpartition(",")
    names = dict.fromkeys([check.name for check in CHECKS] + [check.name for check in LIVE_CHECKS])
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(begun) and name not in taken]


def codes(incomplete: str) -> list[str]:
    """Return the names of BookKeeper's error codes and words, whatever the case of what was typed."""
    from bkctl.admin.explanations.meaning import every_code, every_word

    names = {code.name for code in (*every_code(), *every_word())}
    return sorted(name for name in names if name.lower().startswith(incomplete.lower()))


def ledgers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the cluster's ledgers that begin with what was typed."""
    with _store(ctx) as store:
        if store is not None:
            ids = map(str, store.ledgers.ledgers())
            return list(islice((each for each in ids if each.startswith(incomplete)), _OFFERED_MAX))
    return []


def bookies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the cluster's bookies, those that are down too."""
    with _store(ctx) as store:
        if store is not None:
            known = {*store.registration.bookies().everyone, *store.cookies.cookie_bookies()}
            return sorted(each for each in known if each.startswith(incomplete))[:_OFFERED_MAX]
    return []


def contexts(incomplete: str) -> list[str]:
    """Return the names of contexts."""
    from bkctl.commands.frame.contexts import load_contexts

    with contextlib.suppress(Exception):
        return sorted(name for name in load_contexts().contexts if name.startswith(incomplete))
    return []


def themes(incomplete: str) -> list[str]:
    """Return the names of the themes of ``bkctl top``; none without its extra."""
    with contextlib.suppress(ImportError):
        from bkctl.tui.themes import theme_names

        return [name for name in theme_names() if name.startswith(incomplete)]
    return []


@contextlib.contextmanager
def _store(ctx: typer.Context) -> Iterator[MetadataStore | None]:
    """Open the metadata store of the line that is being typed, None where there is none to ask."""
    from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
    from bkctl.commands.frame.contexts import in_context

    conf, override = ctx.params.get("conf"), ctx.params.get("override")
    with contextlib.ExitStack() as stack:
        store = None
        with (
            contextlib.suppress(Exception),
            open(os.devnull, "w") as nothing,
            contextlib.redirect_stderr(nothing),
        ):
            stack.enter_context(in_context(None, ()))
        uri = ctx.params.get("metadata_uri") or os.environ.get("BKCTL_METADATA_URI")
        with (
            contextlib.suppress(Exception),
            open(os.devnull, "w") as nothing,
            contextlib.redirect_stderr(nothing),
        ):
            store = stack.enter_context(open_cluster(ClusterOptions(conf, override, uri)))
        with contextlib.suppress(Exception):
            yield store
