"""Spark's daemon of Python workers in which chosen tasks stand still in their middle, once.

Setting ``spark.python.daemon.module`` starts it on executors. In the directory ``BKCTL_GATE`` a file
``<log>.stall`` chooses the task that begins with a log: the first attempt that gets there renames it to
``<log>.stalled-<table>-<pid>``, after it has delivered rows, and waits. Every attempt leaves a file
``<log>.attempt-<table>-<n>``.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import daemon
from pyspark.sql.datasource import InputPartition

from bkctl.spark.reader import SplitPartition, TableReader

#: No test waits so long; a worker that outlives its executor ends by then.
STALL_S_MAX = 90

_read = TableReader.read


def gated_read(reader: TableReader, partition: InputPartition) -> Iterator[Any]:
    """Read as ``TableReader.read`` does, through the gate."""
    gate = Path(os.environ["BKCTL_GATE"])
    files = partition.split.files if isinstance(partition, SplitPartition) else ()
    name = Path(files[0].path).name if files else "none"
    (gate / f"{name}.attempt-{reader.table}-{secrets.token_hex(4)}").touch()
    first = True
    for batch in _read(reader, partition):
        yield batch
        if first:
            _stand_still(gate, name, reader.table)
        first = False


def _stand_still(gate: Path, name: str, table: str) -> None:
    try:
        (gate / f"{name}.stall").rename(gate / f"{name}.stalled-{table}-{os.getpid()}")
    except FileNotFoundError:
        return
    parent, until = os.getppid(), time.monotonic() + STALL_S_MAX
    while time.monotonic() < until and os.getppid() == parent:
        time.sleep(0.1)


if __name__ == "__main__":
    TableReader.read = gated_read  # type: ignore[method-assign,assignment]
    daemon.manager()
