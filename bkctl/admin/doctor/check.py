"""One row of a table of checks, for directories and for running bookies alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from bkctl.admin.doctor.finding import Finding

Examined = TypeVar("Examined")

FILES, CONFIGURATION, METADATA, URL = "files", "configuration", "metadata", "url"


@dataclass(frozen=True, slots=True)
class Check(Generic[Examined]):
    """Describe one check.

    ``needs`` is ``files``, ``configuration``, ``metadata`` or ``url``. ``long`` checks read whole files.
    ``run`` is None where the findings come from elsewhere: from reading the configuration.
    """

    name: str
    needs: str
    summary: str
    run: Callable[[Examined], Iterator[Finding]] | None
    long: bool = False
