"""The stream: every entry once, while a bookie writes, over restarts, torn tails and logs that go away."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bkctl.client.sync import BookKeeperSync
from bkctl.errors import NotFoundError, StorageError, UsageError
from bkctl.pipeline.tables.log_extent import Extent, follow
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import SplitFile
from bkctl.server.life.embedded import LocalCluster
from bkctl.vfs import FileSystem
from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.small_bookie import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from bkctl.spark.stream import EntryStream

COLUMNS = ["ledger", "entry", "payload", "digest_ok"]


class Folder:
    """A ledger directory with logs that grow."""

    def __init__(self, path: Path) -> None:
        self.current = path / "current"
        self.current.mkdir(parents=True)
        (self.current / "lastMark").write_bytes(bytes(16))

    def log(self, log_id: int, data: bytes) -> Path:
        path = self.current / f"{log_id:x}.log"
        path.write_bytes(data)
        return path

    def stream(self, **given: str) -> EntryStream:
        from bkctl.spark.stream import EntryStream, StreamOptions

        return EntryStream([str(self.current)], COLUMNS, TableOptions(), StreamOptions.parse(given))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "ledgers")


def log_of(ledger: int, entries: range) -> EntryLogBuilder:
    log = EntryLogBuilder()
    for entry in entries:
        log.add(entry_body(ledger, entry, f"{ledger}:{entry}".encode()))
    return log


def between(stream: EntryStream, start: Any, end: Any) -> list[tuple[int, int]]:
    """Ids of what the stream delivers between two offsets."""
    rows = [
        row
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for row in batch.to_pylist()
    ]
    assert all(row["payload"] == f"{row['ledger']}:{row['entry']}".encode() for row in rows)
    assert all(row["digest_ok"] for row in rows)
    return [(row["ledger"], row["entry"]) for row in rows]


def test_a_torn_record_waits_until_it_is_whole(folder: Folder) -> None:
    data = log_of(1, range(10)).build().data
    folder.log(1, data[:-5])
    stream = folder.stream()
    first = stream.latestOffset({})
    assert between(stream, {}, first) == [(1, entry) for entry in range(9)]
    assert stream.latestOffset(first) == first
    assert stream.partitions(first, first) == []
    folder.log(1, data)
    second = stream.latestOffset(first)
    assert between(stream, first, second) == [(1, 9)]


def test_logs_that_roll_and_new_logs_are_followed(folder: Folder) -> None:
    log = log_of(1, range(5))
    path = folder.log(1, log.build().data)
    stream = folder.stream()
    first = stream.latestOffset({})
    folder.log(1, log.roll().data)
    folder.log(2, log_of(2, range(3)).build().data)
    second = stream.latestOffset(first)
    assert between(stream, first, second) == [(2, 0), (2, 1), (2, 2)]
    assert second[str(folder.current)]["batch"] == [[1, 1]]
    path.unlink()  # compacted away after it was delivered whole
    third = stream.latestOffset(second)
    assert list(third[str(folder.current)]["open"]) == ["2"]
    assert between(stream, second, third) == []


def test_a_log_that_goes_away_too_early_is_lost_data(folder: Folder) -> None:
    path = folder.log(1, log_of(1, range(5)).build().data)
    stream = folder.stream()
    offset = stream.latestOffset({})
    path.unlink()
    with pytest.raises(StorageError, match="failOnDataLoss"):
        stream.latestOffset(offset)
    assert folder.stream(failondataloss="false").latestOffset(offset) == {str(folder.current): {"top": 1}}
    lenient = folder.stream(failondataloss="false")
    assert between(lenient, {}, offset) == []
    folder.log(1, log_of(1, range(2)).build().data)
    with pytest.raises(StorageError, match="not the log"):
        folder.stream().latestOffset(offset)


@pytest.mark.parametrize("read_before", [True, False])
def test_a_log_that_goes_away_while_it_is_looked_at_is_lost_data(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, read_before: bool
) -> None:
    gone, other = (folder.log(log_id, log_of(log_id, range(5)).build().data) for log_id in (1, 2))
    stream = folder.stream()
    start = stream.latestOffset({}) if read_before else {}

    def follow_after_removal(filesystem: FileSystem, log: SplitFile, *where: Any) -> Extent:
        gone.unlink(missing_ok=True)
        return follow(filesystem, log, *where)

    monkeypatch.setattr("bkctl.spark.stream.follow", follow_after_removal)
    following = stream.latestOffset(start)
    assert following[str(other.parent)]["open"]["2"] > 1024
    with pytest.raises(StorageError, match=r"1\.log: gone after"):
        stream.latestOffset(following)


def test_a_log_that_goes_away_before_its_turn_is_lost_data(folder: Folder) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxFiles

    for log_id in (1, 2):
        folder.log(log_id, log_of(log_id, range(5)).roll().data)
    stream = folder.stream(maxfilespertrigger="1")
    offset = stream.latestOffset({}, ReadMaxFiles(1))
    assert {row[0] for row in between(stream, {}, offset)} == {1}
    (folder.current / "2.log").unlink()
    with pytest.raises(StorageError, match=r"2\.log: gone after 0 bytes"):
        stream.latestOffset(offset, ReadMaxFiles(1))


def test_a_restart_that_is_not_told_where_it_begins_still_sees_lost_data(folder: Folder) -> None:
    """As Spark 4.1 calls it: the end first, then both."""
    gone, _ = (folder.log(log_id, log_of(log_id, range(5)).build().data) for log_id in (1, 2))
    checkpoint = folder.stream().latestOffset()
    gone.unlink()
    stream = folder.stream()
    end = stream.latestOffset()
    with pytest.raises(StorageError, match=r"1\.log: gone after"):
        stream.partitions(checkpoint, end)
    assert folder.stream(failondataloss="false").partitions(checkpoint, end) == []


def test_a_batch_is_bounded_by_bytes_or_files(folder: Folder) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles

    for log_id in (1, 2, 3):
        folder.log(log_id, log_of(log_id, range(50)).roll().data)
    stream = folder.stream(maxbytespertrigger="1k")
    assert stream.getDefaultReadLimit() == ReadMaxBytes(1024)
    offset: Any = {}
    seen: list[tuple[int, int]] = []
    batches = 0
    while (following := stream.latestOffset(offset, stream.getDefaultReadLimit())) != offset:
        part = between(stream, offset, following)
        assert len(part) <= 1024 // 40 + 2
        seen += part
        offset, batches = following, batches + 1
    assert sorted(seen) == [(log_id, entry) for log_id in (1, 2, 3) for entry in range(50)]
    assert batches > 6
    by_file = folder.stream(maxfilespertrigger="2")
    assert by_file.getDefaultReadLimit() == ReadMaxFiles(2)
    taken = by_file.latestOffset({}, by_file.getDefaultReadLimit())
    assert taken == {
        str(folder.current): {"top": 3, "waiting": [[3, 3]], "done": [[1, 2]], "batch": [[1, 2]]}
    }


def test_an_offset_does_not_grow_with_what_was_delivered(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkctl.spark.stream_offset.WINDOW", 8)
    stream = folder.stream()
    offset: Any = {}
    sizes, seen = [], []
    for log_id in range(1, 61):
        if log_id % 3:  # two bookies of one machine number their logs together, or compaction leaves holes
            folder.log(log_id, log_of(log_id, range(2)).roll().data)
        following = stream.latestOffset(offset)
        seen += between(stream, offset, following)
        sizes.append(len(json.dumps(following)))
        offset = following
    assert seen == [(log_id, entry) for log_id in range(1, 61) if log_id % 3 for entry in range(2)]
    assert max(sizes[30:]) <= max(sizes[10:30])
    everything = folder.stream()
    assert between(everything, offset, everything.latestOffset(offset)) == []


def test_a_compaction_that_ends_late_is_new(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is lower than those of logs that were delivered meanwhile, and below the window too."""
    monkeypatch.setattr("bkctl.spark.stream_offset.WINDOW", 2)
    folder.log(1, log_of(1, range(2)).roll().data)
    writing = folder.current / "2.log.compacting"
    writing.write_bytes(b"")
    for log_id in (3, 4, 5, 6):
        folder.log(log_id, log_of(log_id, range(2)).roll().data)
    stream = folder.stream()
    first = stream.latestOffset({})
    assert {ledger for ledger, _ in between(stream, {}, first)} == {1, 3, 4, 5, 6}
    writing.unlink()
    folder.log(2, log_of(2, range(2)).roll().data)
    second = folder.stream().latestOffset(first)
    assert between(stream, first, second) == [(2, 0), (2, 1)]
    assert stream.latestOffset(second) == second


def test_an_offset_of_an_earlier_version_is_gone_on_from(folder: Folder) -> None:
    paths = [
        folder.log(log_id, log.data)
        for log_id, log in ((1, log_of(1, range(3)).roll()), (2, log_of(2, range(3)).build()))
    ]
    earlier: Any = {
        str(paths[0]): {"position": paths[0].stat().st_size, "rolled": True},
        str(paths[1]): {"position": 1024, "rolled": False},
    }
    folder.log(3, log_of(3, range(1)).build().data)
    stream = folder.stream()
    assert between(stream, earlier, stream.latestOffset(earlier)) == [(2, 0), (2, 1), (2, 2), (3, 0)]
    paths[1].unlink()
    with pytest.raises(StorageError, match=r"2\.log: gone after 1024"):
        stream.latestOffset(earlier)


def test_a_log_that_goes_away_between_offset_and_reading_is_lost_data(folder: Folder) -> None:
    path = folder.log(1, log_of(1, range(5)).roll().data)
    stream = folder.stream()
    end = stream.latestOffset({})
    path.unlink()
    with pytest.raises(NotFoundError):
        between(stream, {}, end)
    assert between(folder.stream(failondataloss="false"), {}, end) == []


def test_a_stream_that_is_asked_twice_before_it_reads_leaves_nothing_out(folder: Folder) -> None:
    """As Spark 4.1 may: what the first answer told belongs to the batch as well."""
    folder.log(1, log_of(1, range(2)).roll().data)
    stream = folder.stream()
    stream.latestOffset()
    folder.log(2, log_of(2, range(2)).roll().data)
    end = stream.latestOffset()
    assert between(stream, {}, end) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    folder.log(3, log_of(3, range(2)).roll().data)
    following = stream.latestOffset()
    assert following[str(folder.current)]["batch"] == [[3, 3]]
    assert between(stream, end, following) == [(3, 0), (3, 1)]


def test_a_log_that_is_named_itself_is_followed_by_its_path(folder: Folder) -> None:
    from bkctl.spark.stream import EntryStream, StreamOptions

    path = folder.log(1, log_of(1, range(5)).build().data)
    folder.log(2, log_of(2, range(5)).build().data)
    stream = EntryStream([str(path)], COLUMNS, TableOptions(), StreamOptions())
    first = stream.latestOffset({})
    assert list(first) == [str(path)]
    assert len(between(stream, {}, first)) == 5
    assert stream.latestOffset(first) == first
    path.unlink()
    folder.log(1, log_of(1, range(1)).build().data)
    with pytest.raises(StorageError, match="not the log"):
        stream.latestOffset(first)


def test_a_stream_may_begin_behind_what_is_there(folder: Folder) -> None:
    log = log_of(1, range(5))
    folder.log(1, log.build().data)
    stream = folder.stream(startingoffsets="latest")
    start = stream.initialOffset()
    log.add(entry_body(1, 5, b"1:5"))
    folder.log(1, log.build().data)
    assert between(stream, start, stream.latestOffset(start)) == [(1, 5)]
    assert folder.stream().initialOffset() == {}
    with pytest.raises(UsageError, match="startingOffsets"):
        folder.stream(startingoffsets="yesterday")


def test_a_stream_without_arguments_goes_on_from_its_last_offset(folder: Folder) -> None:
    """As Spark 4.1 calls it."""
    log = log_of(1, range(5))
    folder.log(1, log.build().data)
    stream = folder.stream()
    first = stream.latestOffset()
    log.add(entry_body(1, 5, b"1:5"))
    folder.log(1, log.build().data)
    assert between(stream, first, stream.latestOffset()) == [(1, 5)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, tmp_path / "cluster", overrides={**SMALL, "flushInterval": "100"}) as running:
        yield running


class Query:
    """A query with a checkpoint that writes what it gets to Parquet files."""

    def __init__(self, spark: SparkSession, source: Path, folder: Path) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = folder / "checkpoint"
        self._out = folder / "out"

    def start(self) -> StreamingQuery:
        data = (
            self._spark.readStream.format("bookkeeper")
            .option("table", "entries")
            .option("payload", "true")
            .option("maxBytesPerTrigger", "200k")
            .load(str(self._source))
        )
        writer = data.select("ledger", "entry", "payload").writeStream.format("parquet")
        return (
            writer.option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start(str(self._out))
        )

    def delivered(self) -> Counter[tuple[int, int, bytes]]:
        rows = self._spark.read.parquet(str(self._out)).collect()
        return Counter((row.ledger, row.entry, bytes(row.payload)) for row in rows)


def test_every_entry_comes_once_while_a_bookie_writes_and_over_a_restart(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    expected: Counter[tuple[int, int, bytes]] = Counter()
    bookie = cluster.directory / "bookie0"
    torn = Folder(bookie / "torn")
    tail = log_of(900, range(30)).build().data
    torn.log(1, tail[:-7])
    query = Query(spark, bookie, tmp_path)
    with BookKeeperSync(cluster.metadata_uri) as client:

        def write(count: int) -> None:
            with client.create(1, 1, 1) as ledger:
                payloads = [f"{ledger.ledger}-{entry}-".encode() * 20 for entry in range(count)]
                ledger.append_all(payloads)
            expected.update((ledger.ledger, entry, data) for entry, data in enumerate(payloads))

        write(400)
        running = query.start()
        writer = threading.Thread(target=lambda: [write(300) for _ in range(4)])
        writer.start()
        writer.join(60)
        assert not writer.is_alive()
        running.processAllAvailable()
        running.stop()
        write(500)
        torn.log(1, tail)
        running = query.start()
        write(200)
        cluster.stop()  # flushes what is in its caches
        running.processAllAvailable()
        running.stop()
    expected.update((900, entry, f"900:{entry}".encode()) for entry in range(30))
    assert query.delivered() == expected
    assert len(list((bookie / "ledgers/current").glob("*.log"))) > 3, "logs were rolled meanwhile"
    shutil.rmtree(bookie)
