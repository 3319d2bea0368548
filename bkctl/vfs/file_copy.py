"""A copy of a file, in steps that every writable file system has."""

from __future__ import annotations

from collections.abc import Callable

from bkctl.vfs.base import WritableFileSystem

_COPY_BYTES = 1 << 20


def _at_once(_: int) -> None:
    """Let a copy run without a pace."""


def copy_file(
    filesystem: WritableFileSystem, source: str, target: str, pace: Callable[[int], None] = _at_once
) -> None:
    """Copy all bytes of a file; they are durable when this returns, the name ``target`` is not yet.

    ``pace`` is called with the bytes of each piece before it is written. Raises StorageError.
    """
    reader = filesystem.open(source)
    try:
        writer = filesystem.create(target)
        try:
            offset = 0
            while data := reader.read_at(offset, _COPY_BYTES):
                pace(len(data))
                writer.write_at(offset, data)
                offset += len(data)
            writer.sync()
        finally:
            writer.close()
    finally:
        reader.close()
