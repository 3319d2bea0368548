"""A plain installation of bkctl, in processes of the environment of the tests, which has more packages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]

#: As a module `sitecustomize` it is imported when an interpreter starts, worker processes included.
_SITE = """
import sys

ABSENT = frozenset({absent!r})


class Without:
    '''A finder that does not find what is not installed.'''

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


@cache
def sbom_script() -> ModuleType:
    """Import `.ci/sbom.py`, which knows the packages of an installation."""
    spec = importlib.util.spec_from_file_location("sbom", REPOSITORY / ".ci" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sbom"] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@cache
def absent_modules() -> frozenset[str]:
    """Return the modules of installed packages that bkctl without extras does not bring."""
    _, packages = sbom_script().installation()
    kept = {*packages, "bkctl", "pip", "setuptools"}
    return frozenset(
        module
        for module, owners in packages_distributions().items()
        if not kept & {canonicalize_name(owner) for owner in owners}
    )


class PlainInstall:
    """Runs programs as a plain installation would; ``directory`` is for its own files."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(_SITE.format(absent=sorted(absent_modules())))
        self.python_path = f"{directory}{os.pathsep}{REPOSITORY}"

    def python(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run Python with these words."""
        return subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": self.python_path},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def bkctl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run bkctl with these words."""
        return self.python("-m", "bkctl", *words, stdin=stdin)
