"""``bkctl lastmark set``: what a start replays afterwards, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.journal import encode_header
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.codec.losses import decode_losses
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import LedgerLimboError, RefusedError
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.audited_cluster import ledger_metadata
from tests.support.cluster_dump import write_dump
from tests.support.truthful_bookie import HOST, INSTANCE, LIVE, NEXT_LEDGER, TruthfulBookie, started

Run = Callable[..., Any]


def marks(bookie: TruthfulBookie) -> set[LastMark]:
    return {decode_last_mark(path.read_bytes()) for path in bookie.root.glob("l*/current/lastMark")}


def content(bookie: TruthfulBookie) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in bookie.root.rglob("*") if path.is_file()}


def rows(done: Any) -> list[dict[str, Any]]:
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def end_of_journals(bookie: TruthfulBookie) -> LastMark:
    """Behind everything."""
    newest = bookie.journals()[-1]
    return LastMark(int(newest.stem, 16), newest.stat().st_size)


def first_record(bookie: TruthfulBookie) -> tuple[LastMark, int]:
    """Where the oldest journal's first entry begins, and where it ends."""
    oldest = bookie.journals()[0]
    with JournalScan(PosixFileSystem(), str(oldest)) as scan:
        batch = next(scan.batches())
    return LastMark(int(oldest.stem, 16), batch.offset(0)), batch.offset(0) + 4 + batch.sizes[0]


def set_to(run_cli: Run, bookie: TruthfulBookie, mark: LastMark, *words: str) -> Any:
    numbers = ("--journal", hex(mark.journal_id), "--offset", str(mark.offset))
    return run_cli("lastmark", "set", bookie.root, *numbers, *words, "-o", "json")


def test_backwards_every_directory_says_the_same_and_the_old_marks_are_kept(
    run_cli: Run, bookie: TruthfulBookie
) -> None:
    before = {path: path.read_bytes() for path in bookie.root.glob("l*/current/lastMark")}
    oldest = LastMark(int(bookie.journals()[0].stem, 16), 0)
    dry = set_to(run_cli, bookie, oldest, "--dry-run")
    assert {path: path.read_bytes() for path in before} == before
    done = set_to(run_cli, bookie, oldest, "--yes")
    assert (dry.exit_code, done.exit_code) == (0, 0), done.stderr
    assert [row for row in rows(done) if row["kind"] != "kept"] == rows(dry)
    assert marks(bookie) == {oldest}
    for path, content in before.items():
        (copy,) = path.parent.glob("bkctl-repairs/*/[0-9]")
        assert copy.read_bytes() == content
    replayed = next(row["records"] for row in rows(done) if row["kind"] == "replayed")
    assert replayed > len(bookie.truth.journaled)
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if ledger != 3:
                assert running.reads.read(ledger, entry) == body


def test_forwards_needs_a_word_lists_what_is_skipped_and_readers_are_told_unknown(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    end, before = end_of_journals(bookie), content(bookie)
    refused = set_to(run_cli, bookie, end, "--yes")
    assert refused.exit_code == 4
    assert "--accept-loss" in refused.stderr
    dry = set_to(run_cli, bookie, end, "--dry-run")
    assert dry.exit_code == 1
    assert content(bookie) == before
    losses = tmp_path / "losses.json"
    done = set_to(run_cli, bookie, end, "--yes", "--accept-loss", "--losses", str(losses))
    assert done.exit_code == 1, done.stderr
    listed = decode_losses(losses.read_bytes())
    lost = {
        (loss.ledger, entry)
        for loss in listed.losses
        for first, last in loss.entries
        for entry in range(first, last + 1)
    }
    assert lost >= bookie.truth.journaled
    assert [row["ledger"] for row in rows(done) if row["kind"] == "lost"] == [
        loss.ledger for loss in listed.losses
    ]
    with started(bookie.root, bookie.directories) as running:
        for ledger, entry in bookie.truth.journaled:
            with pytest.raises(LedgerLimboError):
                running.reads.read(ledger, entry)
        # The fence was behind the mark that was passed over, too.
        row = running.storages[5 % len(running.storages)].ledgers.get(5)
        assert row is not None
        assert row.fenced


def test_an_offset_within_a_record_is_wrong_usage(run_cli: Run, bookie: TruthfulBookie) -> None:
    begins, ends = first_record(bookie)
    done = set_to(run_cli, bookie, LastMark(begins.journal_id, begins.offset + 3), "--dry-run")
    assert done.exit_code == 2
    assert f"the next ones are {begins.offset} and {ends}" in done.stderr
    assert set_to(run_cli, bookie, LastMark(5, 0), "--dry-run").exit_code == 6


def test_a_directory_that_is_missing_or_in_use_is_refused(run_cli: Run, bookie: TruthfulBookie) -> None:
    oldest = LastMark(int(bookie.journals()[0].stem, 16), 0)
    for held in (bookie.journal, bookie.current(1)):
        with DirectoryLock(str(held)):
            assert set_to(run_cli, bookie, oldest, "--yes").exit_code == 4
    shutil.rmtree(bookie.root / "l1")
    done = set_to(run_cli, bookie, oldest, "--yes")
    assert done.exit_code == 4
    assert "1 of the bookie's 2 ledger directories is found" in done.stderr


def test_a_mark_that_cannot_be_read_is_replaced(run_cli: Run, bookie: TruthfulBookie) -> None:
    wanted = min(marks(bookie))
    (bookie.current(0) / "lastMark").write_bytes(b"short")
    (bookie.current(1) / "lastMark").write_bytes(encode_last_mark(LastMark(2**62, 0)))
    done = set_to(run_cli, bookie, wanted, "--yes")
    assert done.exit_code == 0, done.stderr
    assert marks(bookie) == {wanted}


def test_journal_0_hides_no_journal_that_is_lost_before_or_afterwards(
    run_cli: Run, bookie: TruthfulBookie
) -> None:
    """It means all journals; written as it is, it says that there were none."""
    first, named = bookie.journals()[0], max(marks(bookie))
    zero = LastMark(0, 0)
    done = set_to(run_cli, bookie, zero, "--yes")
    assert (done.exit_code, marks(bookie)) == (0, {LastMark(int(first.stem, 16), 0)})
    for path in bookie.journals():
        path.unlink()
    with pytest.raises(RefusedError, match="is gone"), started(bookie.root, bookie.directories):
        pass
    newer = first.with_name(f"{named.journal_id + 1:x}.txn")
    newer.write_bytes(encode_header(6))
    for path in bookie.root.glob("l*/current/lastMark"):
        path.write_bytes(encode_last_mark(named))
    refused = set_to(run_cli, bookie, zero, "--yes")
    assert (refused.exit_code, "--accept-loss" in refused.stderr) == (4, True), refused.stderr
    assert set_to(run_cli, bookie, zero, "--yes", "--accept-loss").exit_code == 1


def test_a_step_backwards_hides_no_marked_journal_that_is_gone(run_cli: Run, bookie: TruthfulBookie) -> None:
    """Older journals are there, from which a start would go on without a word."""
    named = max(marks(bookie)).journal_id
    for path in bookie.journals():
        if int(path.stem, 16) >= named:
            path.unlink()
    oldest = LastMark(int(bookie.journals()[0].stem, 16), 0)
    before = content(bookie)
    for mark in (oldest, LastMark(0, 0)):
        refused = set_to(run_cli, bookie, mark, "--yes")
        assert (refused.exit_code, content(bookie)) == (4, before)
        assert f"{named:x}.txn, which the last mark names, is gone" in refused.stderr
    done = set_to(run_cli, bookie, oldest, "--yes", "--accept-loss")
    assert done.exit_code == 1, done.stderr
    assert {1, 5, 6} <= {row["ledger"] for row in rows(done) if row["kind"] == "lost"}


@pytest.mark.parametrize("verb", ["lastmark set", "journal salvage"])
def test_rows_in_limbo_hide_no_index_that_is_lost(run_cli: Run, tmp_path: Path, verb: str) -> None:
    """A start was killed that had made an empty database: the next one would take it for the bookie's."""
    bookie = TruthfulBookie.make(tmp_path / "bookie", "db", 2)
    for number in range(bookie.directories):
        path = bookie.current(number) / "ledgers"
        shutil.rmtree(path)
        open_store(str(path), LEDGERS_PROFILE, create=True).close()
    if verb == "lastmark set":
        mark = end_of_journals(bookie)
        words = ["--journal", hex(mark.journal_id), "--offset", str(mark.offset), "--accept-loss"]
    else:
        words = ["--in-place"]
        body = bookie.truth.bodies[max(bookie.truth.journaled)]
        (journal,) = [path for path in bookie.journals() if body in path.read_bytes()]
        data = journal.read_bytes()
        at = data.index(body)
        journal.write_bytes(data[: at - 4] + b"\xa5" * 30 + data[at + 26 :])
    before = content(bookie)
    refused = run_cli(*verb.split(), bookie.root, *words, "--yes")
    assert (refused.exit_code, content(bookie)) == (4, before), refused.stdout
    assert "ledgers is empty" in refused.stderr
    assert "index rebuild" in refused.stderr


@pytest.mark.parametrize("named", [False, True])
def test_a_ledger_that_began_in_a_lost_journal_is_in_limbo_when_the_metadata_name_it(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, *, named: bool
) -> None:
    """Ledger 7 has no row, for it was never flushed: it would be "no such ledger" afterwards."""
    dump = tmp_path / "zk.json"
    write_dump(dump, LIVE, bookie=HOST, instance_id=INSTANCE, next_ledger=NEXT_LEDGER)
    newest = bookie.journals()[-1]
    header = newest.read_bytes()[:512]
    for path in bookie.journals():
        path.unlink()
    if named:
        # Forwards, over journals that are gone, to one without a record.
        newest = newest.with_name(f"{int(newest.stem, 16) + 1:x}.txn")
        newest.write_bytes(header)
    mark = LastMark(int(newest.stem, 16), 512) if named else LastMark(0, 0)
    words = ("--accept-loss", "--yes")
    told = set_to(run_cli, bookie, mark, *words, "--dry-run")
    assert "--metadata" in told.stderr
    other = tmp_path / "other.json"
    write_dump(other, LIVE, bookie=HOST, instance_id=INSTANCE[::-1], next_ledger=NEXT_LEDGER)
    assert set_to(run_cli, bookie, mark, *words, "--metadata", str(other)).exit_code == 4
    done = set_to(run_cli, bookie, mark, *words, "--metadata", str(dump))
    assert done.exit_code == 1, done.stderr
    assert 7 in {row["ledger"] for row in rows(done) if row["kind"] == "lost"}
    with started(bookie.root, bookie.directories) as running, pytest.raises(LedgerLimboError):
        running.reads.read(7, 36)


def test_a_ledger_whose_metadata_do_not_decode_may_have_begun_in_a_lost_journal(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    """A start behind a loss counts it as placed here, and so does this."""
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        assert isinstance(store, TreeMetadataStore)
        store.layout.initialise_cluster()
        store._tree.set(f"{store.root}/INSTANCEID", INSTANCE.encode(), 0)
        for ledger in (76, 77):
            store.ledgers.create_ledger(ledger, ledger_metadata(("elsewhere:3181",)))
        store._tree.set(f"{store.root}/00/0000/L0077", b"garbage", 0)
    for path in bookie.journals():
        path.unlink()
    words = ("--accept-loss", "--yes", "--metadata", uri)
    done = set_to(run_cli, bookie, LastMark(0, 0), *words)
    assert done.exit_code == 1, done.stderr
    assert "ledger 77" in done.stderr
    assert "may be placed on this bookie and counts as such" in done.stderr
    assert {76, 77} & {row["ledger"] for row in rows(done) if row["kind"] == "lost"} == {77}
    with started(bookie.root, bookie.directories) as running, pytest.raises(LedgerLimboError):
        running.reads.read(77, 0)
