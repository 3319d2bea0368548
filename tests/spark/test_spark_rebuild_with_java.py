"""A Java bookie starts on indexes that Spark's tasks rebuilt, and serves every entry."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.test_rebuild_with_java import bodies, held, image_of
from tests.support.java_bookies import BookieFolders, JavaBookies
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import index_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.thorough(
        "test_rebuild_with_java.py serves rebuilt indexes, test_spark_index_writer.py writes them"
    ),
    pytest.mark.interop,
    pytest.mark.corpora,
    pytest.mark.slow,
    pytest.mark.timeout(590),
]

BOOKIES = ("bookie1", "bookie2", "bookie3")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as bookies:
        yield bookies


def test_a_java_bookie_serves_every_entry_from_indexes_rebuilt_by_spark(
    spark: SparkSession, corpora: Callable[[str], Path], java: JavaBookies, tmp_path: Path
) -> None:
    """Two directories are rebuilt at once by Spark's tasks, the third is written as a table of rows."""
    from pyspark.sql.functions import desc

    from bkctl.spark.index_rebuild import rebuild_indexes

    image = image_of(corpora, "db", "crash")
    folders = {bookie: copy_directory(image.path / bookie, tmp_path / bookie) for bookie in BOOKIES}
    keys = {}
    for bookie, folder in folders.items():
        java.serve(BookieFolders.of("db", folder))  # replays the journals, and flushes
        before = list(index_rows(folder / "ledgers/current"))
        keys[bookie] = [(ledger, entry) for ledger, entry, _, _ in before]
        assert set(keys[bookie]) >= held(image, folder)
        shutil.rmtree(folder / "ledgers/current/locations")
    rebuild_indexes(spark, [str(folders["bookie1"]), str(folders["bookie2"])], cores=2)
    entries = spark.read.format("bookkeeper").option("table", "entries").load(str(folders["bookie3"]))
    rows = entries.select("ledger", "entry", "log_id", "offset").repartitionByRange(3, "ledger", "entry")
    rows = rows.sortWithinPartitions("ledger", "entry", desc("log_id"), desc("offset"))
    rows.write.format("bookkeeper").option("table", "index_locations").mode("overwrite").save(
        str(folders["bookie3"] / "ledgers")
    )
    for bookie, folder in folders.items():
        expected = bodies(image, folder)
        wanted = [key for key in keys[bookie] if key in expected]
        assert len(wanted) == len(keys[bookie]) > 1000
        assert java.serve(BookieFolders.of("db", folder), wanted) == {key: expected[key] for key in wanted}
