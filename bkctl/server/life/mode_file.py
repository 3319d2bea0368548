"""BOOKIE_STATUS: the mode that a bookie remembers over restarts (Java: ``BookieStatus``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from posixpath import join

from bkctl.codec.bookie_status import BookieStatus, decode_bookie_status, encode_bookie_status
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.scan.directory import current, read_small
from bkctl.vfs.base import WritableFileSystem

_log = logging.getLogger(__name__)
FILE_NAME = "BOOKIE_STATUS"


def read_mode(filesystem: WritableFileSystem, ledger_directories: Sequence[str]) -> BookieStatus | None:
    """Read the newest status in any ledger directory; files that do not parse are passed over, as in Java."""
    found: list[BookieStatus] = []
    for directory in ledger_directories:
        path = join(current(directory), FILE_NAME)
        try:
            found.append(decode_bookie_status(read_small(filesystem, path)))
        except NotFoundError:
            continue
        except CorruptionError as error:
            _log.warning("%s is passed over: %s", path, error)
    return max(found, key=lambda status: status.updated_ms, default=None)


def write_mode(
    filesystem: WritableFileSystem, ledger_directories: Sequence[str], status: BookieStatus
) -> None:
    """Remember a mode in every ledger directory that takes it; a full disk is no reason to fail."""
    content = encode_bookie_status(status)
    for directory in ledger_directories:
        try:
            filesystem.replace(join(current(directory), FILE_NAME), content)
        except StorageError as error:
            _log.warning("the bookie's mode is not remembered: %s", error)
