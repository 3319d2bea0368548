"""A small file in a directory of somebody else, who may have put anything in its place."""

from __future__ import annotations

import errno
import os
import stat

from bkctl.errors import NotFoundError, StorageError, storage_error

_BLOCK_BYTES = 1 << 20


def read_small_file(path: str, bytes_max: int) -> bytes:
    """Return the content of a regular file of at most so many bytes; a link is not followed.

    Kind and size are looked at first: a FIFO would be waited for, a device never end. Raises NotFoundError,
    StorageError.
    """
    try:
        # O_NONBLOCK: or opening a FIFO waits for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _refusal(path, bytes_max) from None
        raise storage_error(error, path) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > bytes_max:
            raise _refusal(path, bytes_max)
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            content = bytearray()
            # A read takes memory for all that it is asked for, whatever is there.
            while block := stream.read(min(_BLOCK_BYTES, bytes_max - len(content))):
                content += block
            return bytes(content)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        os.close(descriptor)


def _refusal(path: str, bytes_max: int) -> StorageError:
    return StorageError(f"{path}: not a regular file of at most {bytes_max} bytes", path=path)
