"""Spark's errors as ours: a reader's error travels through Java as the text of a Python traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bkctl.errors import (
    BkctlError,
    CorruptionError,
    NoSpaceError,
    NotFoundError,
    StorageError,
    UsageError,
    WrongFileError,
)

#: Ours that readers raise, by the name that a traceback has.
_KINDS: dict[str, type[BkctlError]] = {
    **{kind.__name__: kind for kind in (UsageError, NotFoundError, StorageError, NoSpaceError)},
    # Made of its parts, which its text has: what is wrong usage here is so there.
    WrongFileError.__name__: UsageError,
}
_RAISED = re.compile(r"bkctl\.errors\.([A-Za-z]+): (.+)")
_CORRUPTION = re.compile(
    r"(?P<what>.+?) at offset (?P<offset>[0-9]+)(?:: (?:expected (?P<expected>.+)|found (?P<found>.+)))?"
)
_NOT_THERE = "No module named 'bkctl"
_SHOWN_LINES = 3


@contextmanager
def failures() -> Iterator[None]:
    """Raise what failed in Spark as an error with an exit code: ours again when it was one, else
    StorageError with the first lines of Spark's text."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise as_ours(str(error)) from error


def as_ours(text: str) -> BkctlError:
    """Return the error that a text of Spark's describes."""
    for name, said in reversed(_RAISED.findall(text)):
        if name in _KINDS:
            return _KINDS[name](said)
        if name == CorruptionError.__name__:
            return _corruption(said)
    if _NOT_THERE in text:
        return NotFoundError("the Python of Spark's executors has no bkctl ('On a cluster' in docs/spark.md)")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return StorageError("Spark: " + " ".join(lines[:_SHOWN_LINES]))


def _corruption(said: str) -> CorruptionError:
    found = _CORRUPTION.fullmatch(said)
    if found is None:
        return CorruptionError(said)
    expected, seen = found["expected"] or "", found["found"] or ""
    return CorruptionError(found["what"], offset=int(found["offset"]), expected=expected, found=seen)
