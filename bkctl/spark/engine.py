"""Jobs on Spark: tables read through the data source, the same SQL, Parquet files on a file system that
driver and executors share (or on this machine, in local mode)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from bkctl.admin.offline.reporting import Advance
from bkctl.errors import UsageError
from bkctl.pipeline.engine import Extraction, Row
from bkctl.pipeline.portable_sql import FUNCTIONS
from bkctl.pipeline.results import parquet_schema
from bkctl.pipeline.tables.options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_STEPS = ".steps"


class SparkEngine:
    """A session in which the data source is registered. The session stays when the engine is closed.

    ``work_dir`` is where steps are kept until then; names that the engine gave in the session are taken away.
    """

    name = "spark"

    def __init__(self, spark: SparkSession, work_dir: str) -> None:
        self._spark = spark
        self._steps = os.path.join(os.path.abspath(work_dir), _STEPS)
        self._names: set[str] = set()
        for function in FUNCTIONS:
            spark.sql(function.for_spark())

    def extract(self, work: Extraction, advance: Advance) -> None:
        """Read a table into Parquet files. Progress is told when it is done."""
        source = self._empty(work.source_schema) if work.is_empty else self._source(work)
        if work.input.reduce is not None:
            source.createOrReplaceTempView(work.input.source)
            source = self._spark.sql(work.input.reduce)
        # The folder is there, and empty; to Spark that is a table to write over.
        source.write.mode("overwrite").option("compression", "zstd").parquet(os.path.abspath(work.folder))
        if work.input.reduce is not None:
            self._spark.catalog.dropTempView(work.input.source)

    def _source(self, work: Extraction) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = self._spark.read.format("bookkeeper").option("table", work.input.source)
        for name, value in option_texts(work.options).items():
            reader = reader.option(name, value)
        if work.paths:
            reader = reader.option("paths", json.dumps([os.path.abspath(path) for path in work.paths]))
        return reader.schema(from_arrow_schema(work.source_schema)).load()

    def _empty(self, schema: pa.Schema) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        return self._spark.createDataFrame([], from_arrow_schema(schema))

    def load(self, name: str, folders: Sequence[str]) -> None:
        """Give Parquet files a name. Their columns are read here: Spark would start a job to learn them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(parquet_schema(folders))
        self._name(name, self._spark.read.schema(schema).parquet(*map(os.path.abspath, folders)))

    def view(self, name: str, query: str) -> None:
        self._name(name, self._spark.sql(query))

    def step(self, name: str, query: str) -> None:
        """Run a query into Parquet files: over Connect, too, that is what ends its being computed again."""
        folder = os.path.join(self._steps, name)
        self.write(query, folder)
        self.load(name, [folder])

    def write(self, query: str, folder: str) -> None:
        self._spark.sql(query).write.mode("overwrite").option("compression", "zstd").parquet(
            os.path.abspath(folder)
        )

    def rows(self, query: str) -> list[Row]:
        return [row.asDict(recursive=True) for row in self._spark.sql(query).collect()]

    def close(self) -> None:
        """Take away the names and the steps."""
        import shutil

        for name in self._names:
            self._spark.catalog.dropTempView(name)
        self._names.clear()
        shutil.rmtree(self._steps, ignore_errors=True)

    def __enter__(self) -> SparkEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _name(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._names.add(name)


def option_texts(options: TableOptions) -> dict[str, str]:
    """Options as texts for the data source, those that differ from the defaults."""
    standard = TableOptions()
    texts: dict[str, str] = {}
    if options.ledgers:
        texts["ledgers"] = ",".join(f"{first}-{last}" for first, last in options.ledgers)
    if options.password is not None:
        texts["password"] = _as_text(options.password)
    for name in ("digest", "metadata", "bookie", "damage"):
        value = getattr(options, name)
        if value != getattr(standard, name):
            texts[name] = os.path.abspath(value) if name == "metadata" and os.path.exists(value) else value
    return texts


def _as_text(password: bytes) -> str:
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise UsageError(
            "options of Spark are texts, and this password is none: give --metadata, which holds passwords"
        ) from None


@contextmanager
def open_spark_engine(master: str, work_dir: str, memory_bytes: int) -> Iterator[SparkEngine]:
    """An engine in a session that ends with it, unless it was there before. Raises as ``session`` does.

    An error of Spark's is raised as one of ours (:func:`~bkctl.spark.failures.failures`).
    """
    from bkctl.spark.failures import failures
    from bkctl.spark.local_session import session_for_work

    with session_for_work(master, memory_bytes) as spark, failures(), SparkEngine(spark, work_dir) as engine:
        yield engine
