"""Saying that a maintenance was begun and not ended, wherever a command looks at a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from bkctl.errors import CorruptionError

if TYPE_CHECKING:
    from bkctl.codec.maintenance import Maintenance
    from bkctl.metadata.api import MetadataStore


def known_maintenance(store: MetadataStore) -> Maintenance | None:
    """Return the maintenance of a cluster and warn of it on stderr; None without one."""
    try:
        found = store.underreplication.maintenance()
    except CorruptionError as error:
        typer.echo(f"bkctl: {error}", err=True)
        return None
    if found is None:
        return None
    typer.echo(f"bkctl: {maintenance_text(found[0])}", err=True)
    return found[0]


def maintenance_text(maintenance: Maintenance) -> str:
    """Return the warning: who, since when, and what ends it."""
    began = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(maintenance.begun_ms / 1000))
    why = f" ({maintenance.reason})" if maintenance.reason else ""
    return (
        f"a maintenance is on since {began}, begun by {maintenance.by}{why}: lost replicas are not put back; "
        "'bkctl maintenance end' ends it"
    )
