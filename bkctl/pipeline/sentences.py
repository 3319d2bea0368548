"""A run's counts as a sentence, as its report begins."""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.pipeline.plots import amount
from bkctl.reporting import noun_of


def number(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun and marks at thousands: ``1 entry``, ``1,147 entries``."""
    return f"{count:,} {noun_of(count, noun, plural)}"


def entries(count: int) -> str:
    """Return a number of entries."""
    return number(count, "entry", "entries")


def size(size_bytes: int) -> str:
    """Return bytes in a unit for people: ``1.2 MiB``."""
    return amount(size_bytes, is_bytes=True)


def sentence(parts: Iterable[str]) -> str:
    """Join clauses to a sentence with a capital letter and a full stop; empty ones are left out."""
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}."
