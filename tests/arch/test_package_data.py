"""What is no Python module but needed at run time is in pyproject.toml, or an installed bkctl lacks it."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Made by a build, or what it is made from.
OF_THE_BUILD = {".pyx", ".pxi", ".h", ".c", ".so", ".gitignore"}


def test_every_other_file_is_shipped() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    files = [
        path
        for path in (REPOSITORY / "bkctl").rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    needed = [path for path in files if not OF_THE_BUILD & {path.suffix, path.name}]
    assert any(path.suffix == ".tcss" for path in needed)
    assert [path for path in needed if not any(fnmatch(path.name, pattern) for pattern in patterns)] == []
