"""What this process holds of the files below a directory: descriptors, locks, and what it takes for its."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bkctl.kvstore import lock_holder


def own_handles(directory: Path) -> list[str]:
    """Name each open file below the directory, each lock on one, and each LOCK that is noted as held."""
    below = {(facts.st_dev, facts.st_ino): path for path, facts in _files(directory)}
    opened = [each.path for each in lock_holder.open_files(os.getpid()) if each.identity in below]
    gone = [
        each.path
        for each in lock_holder.open_files(os.getpid())
        if each.path.startswith(f"{directory}/") and each.identity not in below
    ]
    locked = [f"lock of {below[each]}" for each in _locks() if each in below]
    noted = [f"noted lock of {below[each]}" for each in lock_holder.OWN if each in below]
    return sorted(opened + gone + locked + noted)


def _files(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    for folder, folders, names in os.walk(directory):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            yield path, os.lstat(path)


def _locks() -> Iterator[tuple[int, int]]:
    """Device and inode of each file that this process has locked."""
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[4] == str(os.getpid()):
            major, minor, inode = fields[5].split(":")
            yield os.makedev(int(major, 16), int(minor, 16)), int(inode)
