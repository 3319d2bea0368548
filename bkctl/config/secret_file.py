"""Files that hold secrets: a token, a private key, a password. One that others can read holds none."""

from __future__ import annotations

import os
import stat

from bkctl.errors import UsageError


def refuse_wide(facts: os.stat_result, path: str, where: str) -> None:
    """Raise UsageError for a file that others than its owner can read or change.

    Its group may read it where root owns it: so are keys kept for several services (``root:ssl-cert``, 0640),
    and so hand systemd and Kubernetes secrets over. A pipe is nobody else's.
    """
    allowed = 0o740 if facts.st_uid == 0 else 0o700
    mode = stat.S_IMODE(facts.st_mode)
    if stat.S_ISREG(facts.st_mode) and mode & ~allowed & 0o777:
        raise UsageError(
            f"{where}: mode {mode:04o} lets others read or change it: chmod 600 {path}, and replace the "
            "secret; only a file of root's may be read by its group"
        )


def require_secret(path: str, where: str) -> None:
    """Look at a file that somebody else's code reads.

    Raises UsageError, which begins with ``where``: setting and file.
    """
    try:
        facts = os.stat(path)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}") from error
    refuse_wide(facts, path, where)


def read_secret(path: str, where: str, bytes_max: int) -> bytes:
    """Return what a secret file holds. Raises UsageError as :func:`require_secret`."""
    try:
        with open(path, "rb") as stream:
            refuse_wide(os.fstat(stream.fileno()), path, where)
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}") from error
    if len(content) > bytes_max:
        raise UsageError(f"{where}: more than {bytes_max} bytes")
    return content
