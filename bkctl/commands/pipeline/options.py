"""Where a job of the pipeline runs, as its command line says."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.pipeline.engine import Engine
    from bkctl.pipeline.survey import Survey


class EngineName(enum.StrEnum):
    """Values of ``--engine``."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a command line says that does not belong to one job."""

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

    def __post_init__(self) -> None:
        from bkctl.pipeline.local_paths import refuse_urls

        refuse_urls("--out", self.out)
        refuse_urls("PATH", *self.paths)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError("--jobs: at least 1")
        if self.master is not None and self.engine is EngineName.LOCAL:
            raise UsageError("--master is Spark's: leave --engine local away")

    def on_spark(self, bytes_total: int) -> bool:
        """Whether the work goes to Spark."""
        from bkctl.pipeline.run import worth_spark

        if self.engine is not EngineName.AUTO:
            return self.engine is EngineName.SPARK
        return self.master is not None or worth_spark(bytes_total)

    @property
    def spark_master(self) -> str:
        """The master in effect."""
        return self.master or f"local[{self.jobs or '*'}]"


@contextmanager
def open_engine(chosen: Chosen, surveyed: Survey) -> Iterator[Engine]:
    """The engine that the options, or the size of the data, choose. A Spark session ends with it."""
    if chosen.on_spark(surveyed.bytes):
        from bkctl.spark.engine import open_spark_engine

        with open_spark_engine(chosen.spark_master, chosen.out, chosen.memory_bytes) as spark:
            yield spark
        return
    from bkctl.pipeline.local_engine import LocalEngine
    from bkctl.pipeline.out_directory import work_directory

    work_dir = work_directory(chosen.out)
    with LocalEngine(work_dir, jobs=chosen.jobs, memory_bytes=chosen.memory_bytes) as local:
        yield local
