"""The jars that a ``pom.xml`` of the tests names, in the cache of the other interop tests.

What is missing skips the test with the reason, and fails it where ``BKCTL_REQUIRE_INTEROP=1``.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from tests.support import java_bookkeeper
from tests.support.java_bookkeeper import JarsUnavailableError

_RESOLVE_SECONDS = 240


def maven_jars(folder: Path) -> Path:
    """The directory of the jars, made when it is not there yet; skips when they cannot be had."""
    pom = folder / "pom.xml"
    root = java_bookkeeper.cache_root()
    jars = root / f"{folder.name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    try:
        with java_bookkeeper._locked(root, f"{folder.name}.lock"):
            if not jars.is_dir():
                _resolve(pom, jars)
    except JarsUnavailableError as error:
        java_bookkeeper._skip(f"no jars of {folder.name}: {error}")
    return jars


def _resolve(pom: Path, jars: Path) -> None:
    maven = java_bookkeeper._tool("mvn")
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=".resolving-") as scratch:
        fresh = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        options = [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        java_bookkeeper._run("mvn", [*command, *options], _RESOLVE_SECONDS, cwd=Path(scratch))
        fresh.rename(jars)
