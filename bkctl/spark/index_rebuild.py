"""Rebuilding the indexes of many directories with Spark's tasks.

The work is that of ``bkctl index rebuild`` (``bkctl.admin.index.rebuild``): logs are read into sorted
runs, merged by ranges of keys into tables, the new database is read back against the logs, and two names are
exchanged. Its units of work, one log or one range of keys each, are what Spark's tasks run; all directories
are at work at the same time. Driver and tasks have to see the directories under the same paths.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
from bkctl.admin.index.rebuild.rebuild import rebuild_index
from bkctl.directories.placement import Placement
from bkctl.errors import BkctlError
from bkctl.pipeline.index_rebuild import placements
from bkctl.reporting import Advance, nobody
from bkctl.spark.answers import decode_answer, encode_answer
from bkctl.vfs import PosixFileSystem
from bkctl.workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Directories that are rebuilt at the same time.
DIRECTORIES_AT_ONCE = 8
#: Tasks of one job of Spark; a directory has one job at a time.
_TASKS_PER_JOB = 4096


def rebuild_indexes(
    spark: SparkSession,
    paths: Sequence[str],
    options: RebuildOptions | None = None,
    *,
    cores: int = 0,
) -> list[RebuildResult]:
    """Rebuild the indexes of every bookie in ``paths``; one result for each index directory.

    ``cores`` is how many tasks Spark runs at a time (0: as the session says); ``options.memory_bytes`` is
    shared among them. Raises what ``rebuild_index`` raises, for the first directory that fails; the others
    are finished, and a directory that failed has its old index.
    """
    options = options or RebuildOptions()
    found = placements(PosixFileSystem(), paths)
    jobs = cores or cores_of(spark)
    with ThreadPoolExecutor(DIRECTORIES_AT_ONCE, thread_name_prefix="index-rebuild") as threads:
        futures = [threads.submit(_rebuild, spark, placement, options, jobs) for placement in found]
    return [result for future in futures for result in future.result()]


def _rebuild(
    spark: SparkSession, placement: Placement, options: RebuildOptions, jobs: int
) -> list[RebuildResult]:
    def hire(count: int, _: Sequence[str]) -> Workers:
        return SparkWorkers(spark, count)

    return rebuild_index(placement, options, jobs, hire)


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once; over Connect nobody says it."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 4


class SparkWorkers(Workers):
    """Workers whose tasks Spark runs, wherever it likes."""

    def __init__(self, spark: SparkSession, jobs: int) -> None:
        super().__init__(jobs)
        self._spark = spark

    def __enter__(self) -> SparkWorkers:
        return self

    def results(
        self, call: Callable[[Task, Advance], Result], tasks: Iterable[Task], advance: Advance = nobody
    ) -> Iterator[Result]:
        """Yield ``call(task, advance)`` of every task; progress is reported when a task is done.

        Raises what ``call`` raises.
        """
        waiting = iter(tasks)
        while chunk := list(islice(waiting, _TASKS_PER_JOB)):
            yield from self._job(call, chunk, advance)

    def _job(
        self, call: Callable[[Task, Advance], Result], tasks: list[Task], advance: Advance
    ) -> Iterator[Result]:
        rows = [(number, pickle.dumps((call, task))) for number, task in enumerate(tasks)]
        frame = self._spark.createDataFrame(rows, "number int, task binary")
        spread = frame.repartitionByRange(min(len(rows), 4 * self.jobs), "number")
        for row in spread.mapInArrow(_run_tasks, "answer string").collect():
            outcome, done = decode_answer(row.answer)
            if isinstance(outcome, BaseException):
                raise outcome
            advance(done)
            yield outcome


def _run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a task of Spark: every row is a call with its argument, its answer a result or an error of ours."""
    import pyarrow as pa

    for batch in batches:
        for packed in batch.column("task").to_pylist():
            call, task = pickle.loads(packed)  # noqa: S301 - made by our own driver
            told: list[int] = []
            try:
                outcome = call(task, told.append)
            except BkctlError as error:
                outcome = error
            yield pa.RecordBatch.from_pydict({"answer": pa.array([encode_answer(outcome, sum(told))])})
