"""Options with which the JVMs of the tests start soon: light compilation, and an archive of their classes.

Most of these JVMs live for seconds, most of which go into reading, checking and compiling classes. An archive
(class data sharing) holds them read and checked: a bookie then starts in half of the processor's time. It is
made once for each class path and Java by a rehearsal (``tests/interop/java/Rehearsal.java``), beside the
compiled programs. Where it cannot be made or does not fit, JVMs start without it, only later.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

#: Compiled once and lightly, one thread to collect garbage, no files for jstat.
LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
#: Those of the release's start script; without them netty falls back to slower buffers.
NETTY = ("-Dio.netty.tryReflectionSetAccessible=true", "--add-opens=java.base/java.nio=ALL-UNNAMED")
#: The JVM says nothing of an archive that it cannot use.
_SILENT = ("-Xshare:auto", "-Xlog:disable")
_REHEARSAL = "org.apache.bookkeeper.bookie.Rehearsal"
_REHEARSAL_SECONDS = 60
#: A rehearsal that failed is not tried again by every process.
_RETRY_SECONDS = 3600


@functools.cache
def start_options(java: Path, classpath: str, folder: Path) -> tuple[str, ...]:
    """Return the options; the first call on a machine makes the archive below ``folder``."""
    archive = folder / f"classes-{_digest(java, classpath)}.jsa"
    try:
        with (folder / "classes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists() or _is_stale_failure(archive):
                _rehearse(java, classpath, archive)
            made = archive.stat().st_size > 0
    except OSError:
        made = False
    return (*LIGHT, *_SILENT, f"-XX:SharedArchiveFile={archive}") if made else LIGHT


def _is_stale_failure(archive: Path) -> bool:
    """An empty file stands for a rehearsal that failed."""
    stat = archive.stat()
    return not stat.st_size and time.time() - stat.st_mtime > _RETRY_SECONDS


def _digest(java: Path, classpath: str) -> str:
    """Of what an archive depends on: Java and every file of the class path (files, and folders of them)."""
    home = java.resolve().parent.parent
    digest = hashlib.sha256(classpath.encode())
    paths = [home / "release", home / "lib" / "modules"]
    for entry in map(Path, classpath.split(os.pathsep)):
        paths += sorted(entry.parent.glob("*.jar")) if entry.name == "*" else [entry]
    for path in paths:
        stat = path.stat()
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _rehearse(java: Path, classpath: str, archive: Path) -> None:
    """An archive that was begun and not ended is none: the JVM writes it elsewhere."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".rehearsing-") as scratch:
        fresh = Path(scratch) / archive.name
        options = (*LIGHT, *NETTY, "-Xmx256m", "-Xlog:disable", "-Dorg.apache.logging.log4j.level=OFF")
        command = [str(java), *options, f"-XX:ArchiveClassesAtExit={fresh}", "-cp", classpath]
        try:
            _run([*command, _REHEARSAL, scratch])
            _run(
                [str(java), *LIGHT, *_SILENT, f"-XX:SharedArchiveFile={fresh}", "-cp", classpath, "-version"]
            )
            fresh.rename(archive)
        except (OSError, subprocess.SubprocessError):
            archive.unlink(missing_ok=True)
            archive.touch()


def _run(command: list[str]) -> None:
    nowhere = subprocess.DEVNULL
    subprocess.run(
        command, stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=_REHEARSAL_SECONDS, check=True
    )
