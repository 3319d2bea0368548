"""Build a wheel that installs without a compiler: wheel.py DIRECTORY TOOLS.

It has the compiled kernels in the stable ABI, so that one serves Python 3.11 and later, and a tag that says
from which version of the C library on it runs (manylinux): auditwheel finds that out from the symbols. TOOLS
is where auditwheel and patchelf are installed. Ends with 1 when the kernels are missing: they are optional
where bkctl is built from source, and a wheel without them would install as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "README.md", "LICENSE", "pyspark_bookkeeper.py")
KERNELS = "bkctl/_kernels/_native.abi3.so"


def build(tree: Path, folder: Path) -> Path:
    """Return the wheel of the sources; the kernels are compiled anew, nothing of other builds lies beside."""
    tree.mkdir()
    for name in FILES:
        shutil.copy(REPOSITORY / name, tree)
    left_out = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    shutil.copytree(REPOSITORY / "bkctl", tree / "bkctl", ignore=left_out)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-build-isolation", "-w", str(folder), str(tree)]
    subprocess.run(command, check=True)  # noqa: S603
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Build the wheel and return the exit code."""
    folder, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name) / "tree", Path(name) / "built")
        if KERNELS not in zipfile.ZipFile(wheel).namelist():
            print(f"{wheel.name} has no {KERNELS}: is there a C compiler?", file=sys.stderr)
            return 1
        for old in folder.glob("bkctl-*.whl"):
            old.unlink()
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)],
            check=True,
            env={
                **os.environ,
                "PYTHONPATH": str(tools),
                "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            },
        )
    (repaired,) = folder.glob("bkctl-*.whl")
    if "-abi3-manylinux" not in repaired.name:
        print(f"{repaired.name}: no wheel of the stable ABI for any Linux", file=sys.stderr)
        return 1
    print(repaired)
    return 0


if __name__ == "__main__":
    sys.exit(main())
