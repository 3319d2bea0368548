"""Reading tables in Spark, in Arrow batches.

There are two classes of readers, because Spark refuses one that can take filters as long as its setting for
that is off: every query would fail.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from bkctl.allocator import keep_freed_memory
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.split import Split
from bkctl.pipeline.tables.split_file import planned_split, splits_in

if TYPE_CHECKING:
    import pyarrow as pa


class SplitPartition(InputPartition):
    """A task of Spark: one split."""

    def __init__(self, split: Split) -> None:
        super().__init__(None)
        self.split = split


class PlannedPartition(InputPartition):
    """A task of Spark: one split of those that a task has planned."""

    def __init__(self, plan: str, number: int) -> None:
        super().__init__(None)
        self.plan = plan
        self.number = number


class TableReader(DataSourceReader):
    """Reads a table's columns. Conditions can only be given as options."""

    def __init__(
        self,
        table: str,
        paths: Sequence[str],
        columns: Sequence[str],
        options: TableOptions,
        plans: Sequence[str] | None = None,
    ) -> None:
        self.table = table
        self.paths = list(paths)
        self.columns = list(columns)
        self.plans = plans
        self.options: TableOptions | None = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each split; Spark makes a task without a split when there is none."""
        if self.options is None:
            return []
        if self.plans is not None:
            return [PlannedPartition(plan, at) for plan in self.plans for at in range(splits_in(plan))]
        return [SplitPartition(split) for split in table_named(self.table).plan(self.paths, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one split; raises what the table raises."""
        if self.options is None:
            return
        if isinstance(partition, PlannedPartition):
            split = planned_split(partition.plan, partition.number, self.options.digest_secret)
        elif isinstance(partition, SplitPartition):
            split = partition.split
        else:
            return
        keep_freed_memory()
        yield from table_named(self.table).read(split, self.columns, self.options)
        _freeze_modules()


class PushdownReader(TableReader):
    """A reader that takes conditions on ids from the query as well."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be applied exactly; the others are Spark's."""
        from bkctl.spark.pushdown import push

        if self.options is None:
            return []
        self.options, left = push(self.table, filters, self.options)
        return left


@cache
def _freeze_modules() -> None:
    """Take what a worker process has imported out of the garbage collector's sight, once.

    Spark collects garbage after every task. Over the objects of pyarrow, pandas and numpy that takes 45 ms,
    half of what a task costs beside its work.
    """
    gc.collect()
    gc.freeze()
