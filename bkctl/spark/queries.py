"""A job's queries as Spark SQL, over Parquet files on a file system that driver and executors share (or on
this machine, in local mode), or that go through an exchange."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from bkctl.pipeline.engine import Row
from bkctl.pipeline.locations import is_url, local_path
from bkctl.pipeline.portable_sql import FUNCTIONS, for_spark
from bkctl.pipeline.results import parquet_schema
from bkctl.spark.exchange import Exchange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkQueries:
    """Queries in a session, which stays when they are closed. Steps are kept in ``steps_dir`` until then, or
    in the exchange; names that were given in the session are taken away."""

    def __init__(self, spark: SparkSession, steps_dir: str, exchange: Exchange | None = None) -> None:
        self._spark = spark
        self._steps_dir = steps_dir
        self._exchange = exchange
        self._names: set[str] = set()
        for function in FUNCTIONS:
            spark.sql(function.for_spark())

    def load(self, name: str, folders: Sequence[str]) -> None:
        """Give Parquet files a name. Their columns are read here: Spark would start a job to learn them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        if self._exchange is not None:
            folders = self._exchange.given(folders)
        schema = from_arrow_schema(parquet_schema(folders))
        options = {name: value for folder in folders for name, value in bucket_options(folder).items()}
        reader = self._spark.read.options(**options)
        self._name(name, reader.schema(schema).parquet(*map(spark_path, folders)))

    def view(self, name: str, query: str) -> None:
        self._name(name, self._spark.sql(for_spark(query)))

    def step(self, name: str, query: str) -> None:
        """Run a query into Parquet files: over Connect, too, that is what ends its being computed again."""
        folder = os.path.join(self._steps_dir, name)
        if self._exchange is not None:
            folder = self._exchange.fresh().text
        write_parquet(self._spark.sql(for_spark(query)), folder)
        self.load(name, [folder])

    def write(self, query: str, folder: str) -> None:
        write_table(self._spark.sql(for_spark(query)), folder, self._exchange)

    def rows(self, query: str) -> list[Row]:
        return [row.asDict(recursive=True) for row in self._spark.sql(for_spark(query)).collect()]

    def close(self) -> None:
        """Take away the names and the steps."""
        for name in self._names:
            self._spark.catalog.dropTempView(name)
        self._names.clear()
        shutil.rmtree(self._steps_dir, ignore_errors=True)

    def _name(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._names.add(name)


def write_table(frame: DataFrame, folder: str, exchange: Exchange | None) -> None:
    """Write into a folder of this machine, by way of the exchange where there is one."""
    if exchange is None:
        write_parquet(frame, folder)
        return
    place = exchange.fresh()
    write_parquet(frame, place.text)
    exchange.fetch(place, folder)


def write_parquet(frame: DataFrame, folder: str) -> None:
    """Write into a folder, which may be there and empty: to Spark that is a table to write over."""
    writer = frame.write.options(**bucket_options(folder))
    writer.mode("overwrite").option("compression", "zstd").parquet(spark_path(folder))


def spark_path(path: str) -> str:
    """Return a path as Spark is to be given it: with its scheme, because a cluster's default file system need
    not be that of this machine. An object store of Amazon's protocol is ``s3a`` to Hadoop, and parameters of
    a URL are options there (:func:`bucket_options`)."""
    if not is_url(path):
        return f"file:{os.path.abspath(local_path(path))}"
    plain = path.partition("?")[0]
    return "s3a://" + plain.removeprefix("s3://") if plain.startswith("s3://") else plain


def bucket_options(path: str) -> dict[str, str]:
    """Return Hadoop's options for the bucket of an ``s3://`` URL that say what the URL's parameters say.

    Those are the parameters of Arrow's S3 file system. Credentials are none of them: both look for these in
    the environment, in Amazon's configuration files and with the machine.
    """
    address, _, parameters = path.partition("?")
    if not address.startswith("s3://"):
        return {}
    given = dict(parse_qsl(parameters))
    bucket = address.removeprefix("s3://").partition("/")[0]
    options = {}
    if "region" in given:
        options["endpoint.region"] = given["region"]
    if "endpoint_override" in given:
        options["endpoint"] = f"{given.get('scheme', 'https')}://{given['endpoint_override']}"
        options["path.style.access"] = str(given.get("force_virtual_addressing") != "true").lower()
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in options.items()}
