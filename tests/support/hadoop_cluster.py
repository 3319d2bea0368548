"""HDFS and YARN of a released Hadoop on this machine, as one process of their own.

Its jars come from ``tests/interop/hadoop/pom.xml``, into the cache of the other interop tests. What is
missing skips the test with the reason, and fails it where ``BKCTL_REQUIRE_INTEROP=1``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tempfile
from pathlib import Path
from types import TracebackType

from tests.support import java_bookkeeper
from tests.support.java_bookkeeper import JarsUnavailableError
from tests.support.java_start import LIGHT
from tests.support.logged_process import LoggedProcess

_FOLDER = Path(__file__).resolve().parent.parent / "interop" / "hadoop"
_RESOLVE_SECONDS = 240
_START_SECONDS = 180
_STOP_SECONDS = 60
#: The line by which it says that it serves, with its address; a part of a line is none yet.
_READY = re.compile(r"^ready (.*)\n", re.MULTILINE)


def need_hdfs_client() -> None:
    """Skip where the package that reads HDFS is not installed."""
    if importlib.util.find_spec("hdfs_native") is None:
        java_bookkeeper._skip("no package hdfs-native")


def hadoop_jars() -> Path:
    """The directory of the jars, made when it is not there yet; skips when they cannot be had."""
    pom = _FOLDER / "pom.xml"
    root = java_bookkeeper.cache_root()
    jars = root / f"hadoop-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    try:
        with java_bookkeeper._locked(root, "hadoop.lock"):
            if not jars.is_dir():
                _resolve(pom, jars)
    except JarsUnavailableError as error:
        java_bookkeeper._skip(f"no Hadoop to run on: {error}")
    return jars


def _resolve(pom: Path, jars: Path) -> None:
    maven = java_bookkeeper._tool("mvn")
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=".resolving-") as scratch:
        fresh = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        options = [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        java_bookkeeper._run("mvn", [*command, *options], _RESOLVE_SECONDS, cwd=Path(scratch))
        fresh.rename(jars)


class HadoopCluster:
    """Two data nodes and two node managers. ``url`` is that of HDFS, ``conf`` a value of HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = ""
        self.conf = folder / "conf"

    def __enter__(self) -> HadoopCluster:
        jars = hadoop_jars()
        (self._folder / "temporary").mkdir()
        command = [
            java_bookkeeper._tool("java"),
            *LIGHT,
            "-Xmx768m",
            f"-Djava.io.tmpdir={self._folder / 'temporary'}",
            f"-Dtest.build.data={self._folder / 'yarn'}",
            f"-Dlog4j.configuration=file:{_FOLDER / 'log4j.properties'}",
            *("-cp", f"{jars}/*", str(_FOLDER / "MiniHadoop.java"), str(self._folder)),
        ]
        self._process = LoggedProcess(command, self._folder / "log", cwd=self._folder, has_stdin=True)
        try:
            self.url = self._await_url()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def words_of_containers(self) -> str:
        """Return what YARN's containers have said, each behind its name."""
        found = sorted((self._folder / "yarn").rglob("std*"))
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-4000:]}" for path in found)

    def _await_url(self) -> str:
        log = self._process.await_log(lambda text: _READY.search(text) is not None, _START_SECONDS)
        found = _READY.search(log)
        assert found is not None
        return found[1]

    def _end(self) -> None:
        """End it by its stdin; it takes its containers along."""
        self._process.ask_to_end()
        self._process.await_end(_STOP_SECONDS)
