"""A bookie's files of which the disk refuses a sector, or that fail when they are opened again."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bkctl.pipeline.jobs.catalogue import JOBS

LOG, NEWEST, JOURNAL = "ledgers/current/0.log", "ledgers/current/1.log", "journal/current/1a1fe14808f.txn"
MARK = "ledgers/current/lastMark"
#: The mark is at 341504 of the journal; the ledgers map of the log in its last sector.
CASES = {
    "in a log": (LOG, 61440, 65536),
    "a log's header": (LOG, 0, 4096),
    "a ledgers map": (LOG, 122880, 126976),
    "in the newest log": (NEWEST, 8192, 12288),
    "in front of the mark": (JOURNAL, 8192, 12288),
    "behind the mark": (JOURNAL, 344064, 348160),
    "a journal's header": (JOURNAL, 0, 4096),
}
OF_MAPS = {"garbage", "orphans", "stats"}
OF_LOGS_ALONE = OF_MAPS | {"replica-compare"}
#: The jobs whose answer does not depend on it: the modules of the jobs say why.
INDEPENDENT = {
    "in a log": OF_MAPS,
    "a log's header": set[str](),
    "a ledgers map": set[str](),
    "in the newest log": set[str](),
    "in front of the mark": set(JOBS) - {"journal-forensics"},
    "behind the mark": OF_LOGS_ALONE,
    "a journal's header": OF_LOGS_ALONE,
}


def refuse(monkeypatch: pytest.MonkeyPatch, path: Path, start: int, stop: int) -> None:
    """Have every read of a range of a file fail."""
    real = os.pread

    def failing(descriptor: int, length: int, offset: int) -> bytes:
        inside = offset < stop and offset + length > start
        if inside and os.readlink(f"/proc/self/fd/{descriptor}") == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", failing)


def refuse_again(
    monkeypatch: pytest.MonkeyPatch, path: Path, number: int = errno.EIO, *, first: int = 1
) -> None:
    """Have every opening of a file fail but the ``first`` ones."""
    real, seen = os.open, Counter[str]()

    def failing(what: Any, *rest: Any, **how: Any) -> int:
        seen[str(what)] += 1
        if str(what) == str(path) and seen[str(what)] > first:
            raise OSError(number, os.strerror(number))
        return real(what, *rest, **how)

    monkeypatch.setattr(os, "open", failing)
