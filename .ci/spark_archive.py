"""Make the archive that Spark's executors unpack.

It has an interpreter, ``bkctl`` with its compiled kernels, and the packages of the extras ``pipeline``,
``hdfs`` and ``zookeeper``, copied from the environment that runs this.

    python .ci/spark_archive.py build/bkctl-spark.tar.gz
"""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Parts of the standard library that no job needs.
LEFT_OUT = {
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "__pycache__",
}
NAME = re.compile(r"^[A-Za-z0-9_.-]+")
EXTRAS = ("pipeline", "hdfs", "zookeeper")


def needed() -> dict[str, Distribution]:
    """Return the distributions of the extras and of what they need, by name; bkctl is not among them."""
    found: dict[str, Distribution] = {}
    waiting = [("bkctl", extra) for extra in ("", *EXTRAS)]
    seen = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # a package of another platform
        if name != "bkctl":
            found[one.metadata["Name"].lower()] = one
        for text in one.requires or ():
            requirement, _, marker = text.partition(";")
            asked = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
            match = NAME.match(requirement.strip())
            if match and (asked is None or asked[1] == extra):
                extras = re.search(r"\[([^]]*)\]", requirement)
                more = extras[1].split(",") if extras else []
                waiting += [(match[0], each.strip()) for each in ("", *more)]
    return found


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return None if "__pycache__" in info.name else info


def main(target: Path) -> None:
    """Write the archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    packages = f"lib/{version}/site-packages"
    with tarfile.open(target, "w:gz", compresslevel=6, dereference=True) as archive:
        for name in (version, "python3", "python"):
            archive.add(home / "bin" / version, f"bin/{name}", filter=_plain)
        for shared in home.glob("lib/libpython*.so*"):
            archive.add(shared, f"lib/{shared.name}", filter=_plain)
        for path in sorted(library.iterdir()):
            if path.name not in LEFT_OUT and not path.name.startswith("config-"):
                archive.add(path, f"lib/{version}/{path.name}", filter=_plain)
        for one in needed().values():
            for file in one.files or ():
                path = Path(str(one.locate_file(file))).resolve()
                if path.is_file() and ".." not in file.parts and "__pycache__" not in file.parts:
                    archive.add(path, f"{packages}/{file}", filter=_plain)
        archive.add(ROOT / "bkctl", f"{packages}/bkctl", filter=_plain)
        archive.add(ROOT / "pyspark_bookkeeper.py", f"{packages}/pyspark_bookkeeper.py", filter=_plain)
    print(f"{target}: {target.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
