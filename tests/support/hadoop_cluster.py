"""HDFS and YARN of a released Hadoop on this machine, as one process of their own.

Its jars are those of ``tests/interop/hadoop/pom.xml`` (:mod:`tests.support.maven_jars`).
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import TracebackType

from tests.support import java_bookkeeper
from tests.support.java_start import LIGHT
from tests.support.logged_process import LoggedProcess
from tests.support.maven_jars import maven_jars

_FOLDER = Path(__file__).resolve().parent.parent / "interop" / "hadoop"
_START_SECONDS = 180
_STOP_SECONDS = 60
#: The line by which it says that it serves, with its address; a part of a line is none yet.
_READY = re.compile(r"^ready (.*)\n", re.MULTILINE)


def need_hdfs_client() -> None:
    """Skip where the package that reads HDFS is not installed."""
    if importlib.util.find_spec("hdfs_native") is None:
        java_bookkeeper._skip("no package hdfs-native")


class HadoopCluster:
    """Two data nodes and two node managers. ``url`` is that of HDFS, ``conf`` a value of HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = ""
        self.conf = folder / "conf"

    def __enter__(self) -> HadoopCluster:
        jars = maven_jars(_FOLDER)
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
