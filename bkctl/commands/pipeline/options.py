"""Choose where a job of the pipeline runs, as its command line says."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.pipeline.collect import set_wish
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.pipeline.engine import Engine
    from bkctl.pipeline.results import Outcome
    from bkctl.pipeline.sets.choice import SetWish
    from bkctl.pipeline.survey import Survey
    from bkctl.vfs import FileSystem

_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+")


class EngineName(enum.StrEnum):
    """Values of ``--engine``."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Settings of Spark's own."""

    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
    ] = None
    properties_file: Annotated[
        str | None,
        typer.Option(
            "--properties-file",
            metavar="FILE",
            help="File with settings of Spark, in the form of spark-defaults.conf.",
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark by name. Raises UsageError."""
        return spark_settings(self.conf, self.properties_file)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The reports that a run leaves beside its tables."""

    report: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE|URL", help="Also write an HTML page with tables and plots."),
    ] = None
    textfile: Annotated[
        str | None,
        typer.Option(
            "--textfile",
            metavar="FILE",
            help="Also write the counts into a file for Prometheus' node exporter.",
        ),
    ] = None

    def given(self) -> list[str]:
        """Return the names of those that are given."""
        return [name for name in ("report", "textfile") if getattr(self, name) is not None]

    def check(self) -> None:
        """Check before the work that the report can be written; make its directory, as ``--out`` does.

        Raises UsageError.
        """
        from bkctl.pipeline.locations import is_url, refuse_foreign_schemes

        refuse_foreign_schemes("--report", self.report)
        if self.report is None or is_url(self.report):
            return
        if os.path.isdir(self.report):
            raise UsageError(f"--report {self.report}: a directory; name a file for the page")
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self.report)), exist_ok=True)
        except OSError as error:
            raise UsageError(f"--report {self.report}: {error.filename}: {error.strerror}") from None

    def write_textfile(self, outcome: Outcome) -> None:
        """Write the counts where they are wanted. Raises StorageError."""
        if self.textfile is not None:
            from bkctl.pipeline.textfile import write_textfile

            write_textfile(outcome, self.textfile)


@dataclass(frozen=True, slots=True)
class SetOptions:
    """Which sets of a store are read."""

    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHEN",
            help="Use the sets that were complete at this time: 2026-11-23T04:00:00Z.",
        ),
    ] = None
    max_age: Annotated[
        int,
        typer.Option(
            "--max-age",
            metavar="TIME",
            parser=parse_duration_ms,
            help="Do not judge bookies whose set is older than this; 0s allows any age.",
        ),
    ] = "36h"  # type: ignore[assignment] # typer parses the default as well

    def wish(self) -> SetWish:
        """Return the wish for sets that the options make up. Raises UsageError."""
        return set_wish(self.as_of, self.max_age)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choices of a command line that do not belong to one job."""

    paths: tuple[str, ...]
    out: str
    metadata: str | None
    metadata_after: str | None
    engine: EngineName
    master: str | None
    digest: str
    password: bytes | None = field(repr=False)
    bookie: str | None
    jobs: int | None
    memory_bytes: int
    spark_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    sets: SetOptions = field(default_factory=SetOptions)

    def __post_init__(self) -> None:
        from bkctl.pipeline.locations import refuse_foreign_schemes

        refuse_foreign_schemes("--out", self.out)
        refuse_foreign_schemes("PATH", *self.paths)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError("--jobs: at least 1")
        if self.master is not None and self.engine is EngineName.LOCAL:
            raise UsageError("--master is Spark's: leave --engine local away")
        if self.spark_settings and self.engine is EngineName.LOCAL:
            raise UsageError("--conf and --properties-file are Spark's: leave --engine local away")

    def on_spark(self, bytes_total: int) -> bool:
        """Return whether the work goes to Spark."""
        from bkctl.pipeline.run import worth_spark

        if self.engine is not EngineName.AUTO:
            return self.engine is EngineName.SPARK
        return self.master is not None or bool(self.spark_settings) or worth_spark(bytes_total)

    @property
    def spark_master(self) -> str:
        """The master in effect."""
        return self.master or self.spark_settings.get("spark.master") or f"local[{self.jobs or '*'}]"


def spark_settings(given: list[str] | None, properties_file: str | None) -> dict[str, str]:
    """Return the settings of ``--properties-file`` and, over them, those of ``--conf``. Raises UsageError."""
    found = {} if properties_file is None else _properties(properties_file)
    for text in given or ():
        name, mark, value = text.partition("=")
        if not mark or "." not in name:
            raise UsageError("--conf: expected NAME=VALUE with the full name of one of Spark's settings")
        found[name.strip()] = value
    return found


def _properties(path: str) -> dict[str, str]:
    """Read a file as ``spark-defaults.conf`` is: a name, blanks, ``=`` or ``:``, and a value, a line each."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = [line.strip() for line in stream]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--properties-file {path}: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line or line[0] in "#!":
            continue
        parts = _SEPARATOR.split(line, maxsplit=1)
        if len(parts) < 2 or "." not in parts[0]:
            raise UsageError(f"--properties-file {path}: line {number} is no setting of Spark's")
        found[parts[0]] = parts[1]
    return found


def surveyed_here(filesystem: FileSystem, chosen: Chosen) -> Survey | None:
    """Look into the paths as far as this process does; None where it is for Spark, and its tasks look into
    them."""
    from bkctl.pipeline.run import SPARK_FROM_BYTES
    from bkctl.pipeline.survey import survey, survey_of_few

    if chosen.engine is EngineName.LOCAL:
        return survey(filesystem, chosen.paths)
    if chosen.on_spark(0):
        from bkctl.spark.engine import FILES_HERE_MAX

        return survey_of_few(filesystem, chosen.paths, FILES_HERE_MAX)
    return survey_of_few(filesystem, chosen.paths, 1 << 62, SPARK_FROM_BYTES)


@contextmanager
def open_engine(chosen: Chosen, surveyed: Survey | None) -> Iterator[Engine]:
    """Open the engine that the options, or the size of the data, choose. A Spark session ends with it."""
    from bkctl.pipeline.locations import is_url, local_path
    from bkctl.pipeline.out_directory import work_directory

    work_dir = None if is_url(chosen.out) else work_directory(local_path(chosen.out))
    if surveyed is None or chosen.on_spark(surveyed.bytes):
        from bkctl.spark.engine import open_spark_engine

        settings = chosen.spark_settings
        with open_spark_engine(
            chosen.spark_master, work_dir or chosen.out, chosen.memory_bytes, settings
        ) as spark:
            yield spark
        return
    from bkctl.pipeline.local_engine import LocalEngine

    with LocalEngine(work_dir, jobs=chosen.jobs, memory_bytes=chosen.memory_bytes) as local:
        yield local
