"""``gc explain`` on real bookies: live bytes are those of the manifest, whoever is asked what lives."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.admin.gc.explain import LogRow, explain
from bkctl.admin.gc.plan import plan
from bkctl.admin.gc.run import RunOptions, perform, prepare
from bkctl.admin.ledgers.known_ledgers import Cluster, DumpedCluster, NoCluster
from bkctl.clock import SystemClock
from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.scan.files.paths import directories
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.types import DigestType
from tests.support.checked_bookie import check, damage
from tests.support.grades import every_value, one_kept
from tests.support.java_bookies import BookieFolders, JavaBookies
from tests.support.java_bookkeeper import copy_directory, require_jars
from tests.support.manifest import CORPORA, FILES, Image, index_rows

pytestmark = pytest.mark.corpora

CLOCK = SystemClock()


def explained(folder: Path, cluster: Cluster, **options: bool) -> list[LogRow]:
    spaces = index_spaces(FILES, directories(FILES, [str(folder)]))
    return list(explain(FILES, spaces, cluster, CLOCK, **options))


def image_of(root: Path) -> Image:
    return Image.load(root / "clean", root / "manifest.json", root / "zk-clean.json", root / "zk-crash.json")


def truth(image: Image, bookie: str, live: set[int]) -> Counter[int]:
    """Bytes of a ledger's records on a bookie: size word, header, digest and payload of each entry, once."""
    sizes: Counter[int] = Counter()
    for ledger, entry in image.held_by(bookie):
        if ledger in live:
            digest_bytes = DIGEST_BYTES[DigestType(image.manifest.digests[ledger])]
            payload_bytes = image.manifest.entries[ledger, entry][0]
            sizes[ledger] += 4 + HEADER_BYTES + digest_bytes + payload_bytes
    return sizes


@every_value("the same corpus with or without a dump", with_dump=(False, True), corpus=CORPORA)
def test_live_bytes_are_those_of_the_manifest(
    corpora: Callable[[str], Path], corpus: str, with_dump: bool
) -> None:
    root = corpora(corpus)
    image = image_of(root)
    dump = load_metadata_dump(FILES, str(root / "zk-clean.json"))
    live = set(dump.ledgers)
    for bookie, folder in image.bookies().items():
        rows = explained(folder, DumpedCluster(dump, trusted=True) if with_dump else NoCluster())
        found: Counter[int] = Counter()
        for row in rows:
            assert not row.alarming, row.why
            assert row.live_bytes == sum(size for _, size in row.live_ledgers)
            found.update(dict(row.live_ledgers))
        assert found == truth(image, bookie, live)
        assert not live & image.manifest.deleted


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_quick_look_counts_what_a_bookie_counts(corpora: Callable[[str], Path], corpus: str) -> None:
    for folder in image_of(corpora(corpus)).bookies().values():
        looks = explained(folder, NoCluster()), explained(folder, NoCluster(), quick=True)
        for exact, quick in zip(*looks, strict=True):
            assert quick.counted_bytes == exact.counted_bytes
            assert quick.source in ("walk", "map")
            assert quick.live_bytes == (exact.live_bytes if quick.source == "walk" else exact.counted_bytes)


def test_copies_that_a_bookie_never_gives_back_are_seen(
    corpora: Callable[[str], Path], tmp_path: Path
) -> None:
    """After its replay the bookie has everything twice, and counts both copies as live."""
    # A copy: another test that reads the same files meanwhile would pass for the bookie that writes them.
    folder = Path(shutil.copytree(corpora("interleaved") / "clean" / "bookie1", tmp_path / "bookie1"))
    first = explained(folder, NoCluster())[0]
    assert (first.live_bytes, first.eligible) == (0, "minor")
    assert first.counted_bytes is not None
    assert first.counted_bytes > 2_000_000
    assert "a running bookie counts 91.9%" in first.why


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_plan_never_promises_what_is_alive(corpora: Callable[[str], Path], corpus: str) -> None:
    for folder in image_of(corpora(corpus)).bookies().values():
        rows = explained(folder, NoCluster())
        live_bytes = sum(row.live_bytes or 0 for row in rows)
        file_bytes = sum(row.bytes for row in rows)
        spaces = index_spaces(FILES, directories(FILES, [str(folder)]))
        (sorted_out,) = plan(FILES, spaces, NoCluster(), CLOCK)
        curve = sorted_out.curve()
        assert [row.threshold for row in curve] == [tenths / 10 for tenths in range(1, 10)]
        for row in curve:
            assert 0 <= row.reclaimed_bytes <= file_bytes - live_bytes
        reclaimed = [row.reclaimed_bytes for row in curve]
        assert reclaimed == sorted(reclaimed)


@pytest.mark.parametrize("bookie", one_kept("as another bookie", "bookie1", "bookie2", "bookie3"))
def test_a_run_keeps_every_entry(corpora: Callable[[str], Path], tmp_path: Path, bookie: str) -> None:
    """Compact everything that is not wholly alive: what is left is exactly what the index had, and sound."""
    source = corpora("db") / "clean" / bookie
    folder = Path(shutil.copytree(source, tmp_path / bookie))
    current = folder / "ledgers" / "current"
    before = {(ledger, entry) for ledger, entry, _, _ in index_rows(current)}
    (space,) = index_spaces(FILES, directories(FILES, [str(folder)]))
    options = RunOptions(threshold=1.0)
    with DirectoryLock(str(current)) as lock:
        work = prepare(FILES, space, NoCluster(), CLOCK, options)
        rows = list(perform(FILES, work, CLOCK, lock))
    assert all(row.done for row in rows)
    freed = sum(row.freed_bytes for row in rows)
    assert freed == sum(step.freed_bytes for step in work.steps) > 0
    after = explained(folder, NoCluster())
    assert sum(row.live_bytes or 0 for row in after) == sum(row.counted_bytes or 0 for row in after)
    assert {(ledger, entry) for ledger, entry, _, _ in index_rows(current)} == before
    assert check([folder]) == []
    with DirectoryLock(str(current)):
        assert prepare(FILES, space_of(folder), NoCluster(), CLOCK, options).is_empty


def space_of(folder: Path) -> IndexSpace:
    (space,) = index_spaces(FILES, directories(FILES, [str(folder)]))
    return space


@pytest.fixture(scope="module")
def java() -> Iterator[JavaBookies]:
    with JavaBookies(require_jars()) as bookies:
        yield bookies


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("state", one_kept("as after a crash", "crash", "clean"))
def test_a_java_bookie_serves_what_a_run_has_moved(
    corpora: Callable[[str], Path], tmp_path: Path, java: JavaBookies, state: str
) -> None:
    """The dump's deleted ledgers deleted, everything compacted; after a kill too, with a replay to come."""
    root = corpora("db")
    image = Image.load(root / state, root / "manifest.json", root / "zk-crash.json", root / "zk-clean.json")
    dump = load_metadata_dump(FILES, str(root / "zk-clean.json"))
    for bookie, source in image.bookies().items():
        folder = copy_directory(source, tmp_path / source.name)
        with DirectoryLock(str(folder / "ledgers/current")) as lock:
            options = RunOptions(threshold=1.0, delete_ledgers=True)
            work = prepare(FILES, space_of(folder), DumpedCluster(dump, trusted=True), CLOCK, options)
            assert all(
                row.done for row in perform(FILES, work, CLOCK, lock) if row.action in ("remove", "compact")
            )
        keys = [key for key in image.held_by(bookie) if key[0] in dump.ledgers]
        served = java.serve(BookieFolders.of("db", folder), keys)
        assert served.keys() == set(keys)
        assert all(len(body) == 64 for body in served.values()), served
        assert not damage(check([folder]))
    for found in dataclasses.replace(image, path=tmp_path).in_logs().values():
        assert found.wrong == []
