"""The process that holds the fcntl lock of a file, found without taking or losing a lock.

RocksDB keeps two writers apart by a POSIX lock on the file LOCK. Trying the lock by opening the database
would leave a trace even when it is refused (RocksDB renames the text log LOG of the running bookie first),
so the kernel is asked, in two ways, because each of them misses some locks:

* ``/proc/locks`` shows no lock of a process in another container;
* ``F_GETLK`` shows those locks, though not their holders, but needs the file opened, and closing any
  descriptor of a file drops all locks that the own process has on it. It is therefore not used on a file of
  :data:`OWN`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_POSIX_LOCKS = ("POSIX", "OFDLCK")
_FLOCK = struct.Struct("hhqqi4x")

#: Device and inode, which are the same whatever path leads to a file.
FileIdentity = tuple[int, int]

#: (device, inode) of the lock files that this process itself holds; kept by ``kvstore.rocksdb_store``.
OWN: set[FileIdentity] = set()


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that holds a lock; ``pid`` is None when it runs in another container."""

    pid: int | None
    name: str

    def __str__(self) -> str:
        return self.name if self.pid is None else f"{self.name} (pid {self.pid})"


def lock_holder(path: str) -> LockHolder | None:
    """Return the process that holds a lock on the file ``path``; None without a holder or a file.

    Raises OSError when the system does not answer.
    """
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(facts.st_mode):
        # Opening a FIFO would wait for its other end.
        raise OSError(errno.EINVAL, "not a regular file", path)
    identity = (facts.st_dev, facts.st_ino)
    if identity in OWN:
        return LockHolder(os.getpid(), process_name(os.getpid()))
    pid = _pid_in_proc_locks(*identity)
    if pid is None:
        pid = _pid_by_getlk(path)
    if pid is None:
        return None
    if pid <= 0:
        return LockHolder(None, "a process in another container or on another machine")
    return LockHolder(pid, process_name(pid))


def flock_holder(path: str) -> LockHolder:
    """Return the process that holds a lock taken by flock(2) on ``path``, as far as the system says."""
    facts = os.stat(path)
    pid = _pid_in_proc_locks(facts.st_dev, facts.st_ino, ("FLOCK",))
    return (
        LockHolder(None, "another process") if pid is None or pid <= 0 else LockHolder(pid, process_name(pid))
    )


def _pid_in_proc_locks(device: int, inode: int, kinds: tuple[str, ...] = _POSIX_LOCKS) -> int | None:
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return None  # no such file outside Linux; F_GETLK is asked anyway
    for line in lines:
        fields = line.split()
        # "1: POSIX  ADVISORY  WRITE 24550 fe:00:9986132 0 EOF"; waiters have "->" behind the number.
        if len(fields) >= 6 and fields[1] in kinds and fields[5] == wanted:
            return int(fields[4])
    return None


def _pid_by_getlk(path: str) -> int | None:
    """Return the holder's process id, 0 or -1 when it has none here; None without a lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else pid


def process_ids() -> list[int]:
    """Return the ids of all processes that are seen from here, ascending; none where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


class OpenFile(NamedTuple):
    """A file that a process has open: its path in that process's own view of mounts, and its identity."""

    path: str
    identity: FileIdentity


def open_files(pid: int) -> Iterator[OpenFile]:
    """Yield every file that a process has open. Raises OSError: it has ended, or is another user's."""
    descriptors = f"/proc/{pid}/fd"
    for number in os.listdir(descriptors):
        try:
            facts = os.stat(f"{descriptors}/{number}")
            path = os.readlink(f"{descriptors}/{number}")
        except FileNotFoundError:
            continue  # closed since it was listed
        yield OpenFile(path, (facts.st_dev, facts.st_ino))


def shares_mounts(pid: int) -> bool:
    """Return whether a path means the same file to process ``pid`` as to this one. Raises OSError."""
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino


def process_name(pid: int) -> str:
    """Return a process's name for people: ``bkctl``, or ``java org.apache.bookkeeper.server.Main``.

    Arguments are left out, because they can hold passwords. "a process" when the system does not say.
    """
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            arguments = [os.fsdecode(part) for part in stream.read().split(b"\0")]
    except OSError:
        return "a process"
    if name == "java":
        program = _java_program(arguments[1:])
    elif name.startswith("python"):
        program = _python_program(arguments[1:])
    else:
        program = ""
    return f"{name} {program}" if program else name or "a process"


def _python_program(arguments: list[str]) -> str:
    """Return the module or the script of a Python program.

    Return an empty text for ``python -c``, and for an interpreter with options before the script.
    """
    if arguments[:1] == ["-m"]:
        return arguments[1] if len(arguments) > 1 else ""
    first = arguments[0] if arguments else ""
    return "" if first.startswith("-") else os.path.basename(first)


def _java_program(arguments: list[str]) -> str:
    """Return the main class of a Java program, or its jar."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"):
            skip = True
        elif argument and not argument.startswith(("-", "@")):
            return os.path.basename(argument)
    return ""
