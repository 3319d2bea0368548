"""Other releases of BookKeeper than the one that most tests run: jars, and programs compiled against them.

Maven resolves them from the pom of the interop tests with another version, into the same cache.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.support import java_bookkeeper
from tests.support.java_bookkeeper import Jars, JarsUnavailableError, require_jars

_INTEROP_DIR = Path(__file__).resolve().parent.parent / "interop"
_POM = _INTEROP_DIR / "pom.xml"
_RESOLVE_SECONDS = 240
_COMPILE_SECONDS = 120


def jars_of(version: str, program: str) -> Jars:
    """The jars of a release, with a program of ``tests/interop/java`` compiled against them.

    Skips when they cannot be had, and fails where the interop tests are required.
    """
    jars = require_jars()
    if version == java_bookkeeper.VERSION:
        return jars
    return Jars(jars.java, _class_path(version, _INTEROP_DIR / "java" / f"{program}.java"), archive=False)


def _class_path(version: str, source: Path) -> str:
    root = java_bookkeeper.cache_root()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    jars, classes = root / f"bookkeeper-{version}", root / f"{source.stem}-{version}-{digest}"
    try:
        with java_bookkeeper._locked(root, f"bookkeeper-{version}.lock"):
            if not list(jars.glob(f"bookkeeper-server-{version}.jar")):
                _resolve(version, jars)
            if not classes.is_dir():
                fresh = classes.with_name(f"{classes.name}.{os.getpid()}")
                javac = java_bookkeeper._tool("javac")
                command = [javac, "-nowarn", "-cp", f"{jars}/*", "-d", str(fresh), str(source)]
                java_bookkeeper._run("javac", command, _COMPILE_SECONDS, cwd=root)
                fresh.rename(classes)
    except JarsUnavailableError as error:
        java_bookkeeper._skip(f"no BookKeeper {version} to compare with: {error}")
    return os.pathsep.join((str(classes), f"{jars}/*"))


def _resolve(version: str, jars: Path) -> None:
    fresh = jars.with_name(f"{jars.name}.{os.getpid()}")
    fresh.mkdir(parents=True)
    pom = fresh / "pom.xml"
    pom.write_text(_POM.read_text().replace(f"<version>{java_bookkeeper.VERSION}<", f"<version>{version}<"))
    maven = [java_bookkeeper._tool("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
    java_bookkeeper._run("mvn", [*maven, *options], _RESOLVE_SECONDS, cwd=fresh)
    fresh.rename(jars)
