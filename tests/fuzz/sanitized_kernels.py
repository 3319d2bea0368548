"""The kernels in a build of their own, with the compiler's address and undefined-behaviour sanitizers.

``make kernels-asan`` builds it, below ``build``; the environment keeps the kernels without sanitizers. A
process that uses the build starts with the sanitizer's library in front of all others (``environment``).
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "kernels-asan"
#: The environment's variable that names the build to a fuzzing process.
PATH_VARIABLE = "BKCTL_FUZZ_KERNELS"
#: What the compiler puts into the kernels.
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
_MODULE = "bkctl._kernels._native"


def why_not() -> str | None:
    """Return why no build with sanitizers can be made here, None where one can."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return "there is no C compiler (cc)"
    if not os.path.isabs(_runtime(compiler)):
        return f"{compiler} has no runtime of the address sanitizer (libasan)"
    return None


def _runtime(compiler: str) -> str:
    """Return the path of the sanitizer's library, a bare name where there is none."""
    for name in ("libasan.so", "libclang_rt.asan-x86_64.so"):
        found = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if os.path.isabs(found):
            return found
    return "libasan.so"


def build(folder: Path = BUILD) -> Path:
    """Build the kernels below ``folder``, and return the module's path. Raises CalledProcessError."""
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    # A copy, for a build leaves files beside its sources.
    for name in ("pyproject.toml", "README.md", "pyspark_bookkeeper.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    (source / "bkctl").mkdir()
    shutil.copy(REPOSITORY / "bkctl" / "__init__.py", source / "bkctl")
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(REPOSITORY / "bkctl" / "_kernels", source / "bkctl" / "_kernels", ignore=ignored)
    target = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if importlib.util.find_spec("Cython") is not None:  # the one of the environment, whose hash was checked
        command.append("--no-build-isolation")
    subprocess.run(
        [*command, "--target", str(target), str(source)],
        env={**os.environ, "CFLAGS": FLAGS},
        check=True,
    )
    return built(folder)


def built(folder: Path = BUILD) -> Path:
    """Return the path of the module in a build; FileNotFoundError where there is none."""
    for path in (folder / "site" / "bkctl" / "_kernels").glob("_native*.so"):
        return path
    raise FileNotFoundError(f"{folder}: no compiled kernels; the compiler's output says why")


def environment(module: Path) -> dict[str, str]:
    """Return the environment of a process that uses the build."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler is not None
    return {
        **os.environ,
        "LD_PRELOAD": _runtime(compiler),
        # The interpreter keeps what it allocates; only the kernels are looked at.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
        # Python's own allocator would hide where a bytes object ends.
        "PYTHONMALLOC": "malloc",
        "BKCTL_KERNELS": "native",
        PATH_VARIABLE: str(module),
    }


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the build's module under the name of the one in the environment."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path)


def load_kernels(path: str) -> None:
    """Make the build's module the one that bkctl imports; nothing has imported the kernels before."""
    assert _MODULE not in sys.modules
    sys.meta_path.insert(0, _Finder(path))


if __name__ == "__main__":
    reason = why_not()
    # Soaks go on without them, and say so.
    print(build() if reason is None else f"no kernels with sanitizers: {reason}")
