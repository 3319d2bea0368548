"""``bkctl journal salvage``: a start replays the copy, and what is lost is listed and in limbo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.entry import frame
from bkctl.codec.journal import RecordKind, encode_record, journal_name, master_key_record
from bkctl.codec.last_mark import decode_last_mark
from bkctl.codec.losses import decode_losses
from bkctl.engine.add_run import SingleAdd
from bkctl.errors import LedgerLimboError, RefusedError
from bkctl.scan.journal import JournalScan
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.damaged_journal import body_of
from tests.support.engine_rig import KEY, Answers, entry_body
from tests.support.truthful_bookie import DELETED, LIVE, Entry, TruthfulBookie, started

Run = Callable[..., Any]


def damaged(bookie: TruthfulBookie, chosen: Callable[[list[Entry]], Entry]) -> Entry:
    """Overwrite the start of the record of an entry that only a journal has; the entry."""
    places: dict[Entry, tuple[Path, int]] = {}
    for path in bookie.journals():
        with JournalScan(PosixFileSystem(), str(path)) as scan:
            for batch in scan.batches():
                for index, entry in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
                    places[entry] = path, batch.offset(index)
    entry = chosen(sorted(bookie.truth.journaled, key=lambda each: places[each]))
    path, offset = places[entry]
    content = bytearray(path.read_bytes())
    content[offset : offset + 40] = b"\xee" * 40
    path.write_bytes(content)
    return entry


def swap(bookie: TruthfulBookie, fresh: Path) -> None:
    (bookie.root / "j").rename(bookie.root.parent / "old-journal")
    fresh.rename(bookie.root / "j")


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("which", [0, 10, -1])
def test_a_start_replays_all_but_what_is_listed(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, which: int
) -> None:
    lost, before = damaged(bookie, lambda entries: entries[which]), content(bookie.root)
    fresh, losses = tmp_path / "fresh", tmp_path / "losses.json"
    words = ("journal", "salvage", bookie.root, "--out", fresh)
    dry = run_cli(*words, "--dry-run", "-o", "json")
    assert content(bookie.root) == before
    assert not fresh.exists()
    with pytest.raises(RefusedError), started(bookie.root, bookie.directories):
        pass
    done = run_cli(*words, "--losses", losses, "--yes", "-o", "json")
    assert (dry.exit_code, done.exit_code) == (1, 1), done.stderr
    assert json.loads(done.stdout) == json.loads(dry.stdout)
    assert content(bookie.root / "j") == {
        path: data for path, data in before.items() if path.startswith(str(bookie.root / "j"))
    }
    listed = {loss.ledger: loss for loss in decode_losses(losses.read_bytes()).losses}
    assert listed[lost[0]].maybe_more
    assert set(listed) >= {ledger for ledger, _ in bookie.truth.bodies} - {DELETED}
    swap(bookie, fresh)
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if (ledger, entry) == lost:
                with pytest.raises(LedgerLimboError):
                    running.reads.read(ledger, entry)
            elif ledger != DELETED:
                assert running.reads.read(ledger, entry) == body
        for ledger in bookie.truth.fenced:
            row = running.storages[ledger % len(running.storages)].ledgers.get(ledger)
            assert row is not None
            assert row.fenced


def test_in_place_only_the_damaged_journal_changes_and_undo_brings_it_back(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    lost, before = damaged(bookie, lambda entries: entries[10]), content(bookie.root)
    words = ("journal", "salvage", bookie.root, "--in-place")
    dry = run_cli(*words, "--dry-run", "-o", "json")
    assert content(bookie.root) == before
    done = run_cli(*words, "--losses", tmp_path / "losses.json", "--yes", "-o", "json")
    assert (dry.exit_code, done.exit_code) == (1, 1), done.stderr
    (kept,) = [row["path"] for row in json.loads(done.stdout) if row["kind"] == "kept"]
    after = content(bookie.journal)
    (changed,) = [path for path in after if "bkctl-repairs" not in path and after[path] != before[path]]
    assert Path(kept).read_bytes() == before[changed]
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if (ledger, entry) != lost and ledger != DELETED:
                assert running.reads.read(ledger, entry) == body
        with pytest.raises(LedgerLimboError):
            running.reads.read(*lost)


def test_in_place_is_taken_back_byte_for_byte(run_cli: Run, bookie: TruthfulBookie) -> None:
    damaged(bookie, lambda entries: entries[0])
    before = content(bookie.root)
    assert run_cli("journal", "salvage", bookie.root, "--in-place", "--yes").exit_code == 1
    assert content(bookie.root) != before
    # A second one finds nothing to replace.
    again = run_cli("journal", "salvage", bookie.root, "--in-place", "--yes", "-o", "json")
    assert again.exit_code == 0, again.stderr
    assert {row["kind"] for row in json.loads(again.stdout)} == {"journal"}
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert content(bookie.root) == before


@pytest.mark.parametrize("words", [(), ("--in-place", "--out", "x")])
def test_where_the_copies_go_has_to_be_said(
    run_cli: Run, bookie: TruthfulBookie, words: tuple[str, ...]
) -> None:
    refused = run_cli("journal", "salvage", bookie.root, *words)
    assert refused.exit_code == 2
    assert "--out DIR, or --in-place" in refused.stderr


@pytest.mark.parametrize("more", ["--dry-run", "--yes"])
def test_a_copy_makes_no_directory_that_was_not_named(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, more: str
) -> None:
    """A name with a slip of the pen would put the copy, and its parents, anywhere."""
    before = content(bookie.root)
    refused = run_cli("journal", "salvage", bookie.root, "--out", tmp_path / "slip/journal", more)
    assert refused.exit_code == 6
    assert f"{tmp_path / 'slip'}: no such directory" in refused.stderr
    assert not (tmp_path / "slip").exists()
    assert content(bookie.root) == before


def test_no_padding_goes_across_the_last_mark(run_cli: Run, bookie: TruthfulBookie, tmp_path: Path) -> None:
    """Damage from in front of the mark to behind it: a replay begins within what becomes padding."""
    mark = max(decode_last_mark(path.read_bytes()) for path in bookie.root.glob("l*/current/lastMark"))
    path = bookie.journal / journal_name(mark.journal_id)
    data = bytearray(path.read_bytes())
    data[mark.offset - 700 : mark.offset + 40] = b"\xee" * 740
    path.write_bytes(data)
    fresh = tmp_path / "fresh"
    done = run_cli("journal", "salvage", bookie.root, "--out", fresh, "--yes")
    assert done.exit_code == 1, done.stderr
    swap(bookie, fresh)
    with started(bookie.root, bookie.directories) as running:
        unknown = 0
        for ledger, entry in bookie.truth.journaled:
            try:
                assert running.reads.read(ledger, entry) == bookie.truth.bodies[ledger, entry]
            except LedgerLimboError:
                unknown += 1
    assert unknown <= 2


def test_whole_journals_are_copied_as_they_are(run_cli: Run, bookie: TruthfulBookie, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    done = run_cli("journal", "salvage", bookie.root, "--out", fresh, "--yes", "-o", "json")
    assert done.exit_code == 0, done.stderr
    for path in (*bookie.journals(), bookie.journal / "VERSION"):
        assert (fresh / "current" / path.name).read_bytes() == path.read_bytes()
    assert run_cli("journal", "salvage", bookie.root, "--out", fresh, "--yes").exit_code == 4


def without_journals(bookie: TruthfulBookie) -> int:
    """Delete every journal; return the id of the one that the last mark names."""
    mark = max(decode_last_mark(path.read_bytes()) for path in bookie.root.glob("l*/current/lastMark"))
    for path in bookie.journals():
        path.unlink()
    return mark.journal_id


def test_without_any_journal_the_mark_is_set_to_none_once_all_ledgers_are_in_limbo(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    named, losses = without_journals(bookie), tmp_path / "losses.json"
    words = ("journal", "salvage", bookie.root, "--in-place", "--losses", losses, "--yes", "-o", "json")
    with pytest.raises(RefusedError), started(bookie.root, bookie.directories):
        pass
    done = run_cli(*words)
    assert done.exit_code == 1, done.stderr
    rows = json.loads(done.stdout)
    assert f"{journal_name(named)}, which the last mark names, is gone" in [row["detail"] for row in rows]
    listed = {loss.ledger for loss in decode_losses(losses.read_bytes()).losses}
    journaled = bookie.truth.journaled
    flushed = {ledger for ledger, entry in bookie.truth.bodies if (ledger, entry) not in journaled} - {
        DELETED
    }
    assert listed >= flushed
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if (ledger, entry) not in journaled and ledger != DELETED:
                assert running.reads.read(ledger, entry) == body
            elif ledger in listed and ledger != DELETED:
                with pytest.raises(LedgerLimboError):
                    running.reads.read(ledger, entry)


def test_without_any_journal_it_is_taken_back_byte_for_byte(run_cli: Run, bookie: TruthfulBookie) -> None:
    named = without_journals(bookie)
    before = content(bookie.root)
    words = ("journal", "salvage", bookie.root, "--in-place", "--journal", hex(named), "--yes")
    assert run_cli(*words).exit_code == 1
    assert content(bookie.root) != before
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert content(bookie.root) == before


def test_a_mark_whose_journal_is_gone_is_not_set_back_without_a_word(
    run_cli: Run, bookie: TruthfulBookie
) -> None:
    """A start would go on, and nobody would know that the entries of that journal are missing."""
    named, before = without_journals(bookie), content(bookie.root)
    words = ("lastmark", "set", bookie.root, "--journal", "0", "--offset", "0", "--yes", "-o", "json")
    refused = run_cli(*words)
    assert (refused.exit_code, content(bookie.root)) == (4, before)
    assert f"{journal_name(named)}, which the last mark names, is gone" in refused.stderr
    done = run_cli(*words, "--accept-loss")
    assert done.exit_code == 1, done.stderr
    lost = {row["ledger"] for row in json.loads(done.stdout) if row["kind"] == "lost"}
    with started(bookie.root, bookie.directories) as running:
        rows = [running.storages[ledger % len(running.storages)].ledgers.get(ledger) for ledger in lost]
        assert lost
        assert all(row is not None and row.limbo for row in rows)


def test_without_journals_and_marks_no_repair_hides_what_is_lost(
    run_cli: Run, bookie: TruthfulBookie
) -> None:
    """Entries in logs say that there was a mark, and a journal behind it."""
    without_journals(bookie)
    for path in bookie.root.glob("l*/current/lastMark"):
        path.unlink()
    with pytest.raises(RefusedError, match="no journal is there"), started(bookie.root, bookie.directories):
        pass
    found = run_cli("doctor", bookie.root, bookie.root / "j", "-o", "json")
    assert "missing_journal" in [row["kind"] for row in json.loads(found.stdout)]
    paths = ("--journal", "0", "--yes", "-o", "json")
    refused = run_cli("lastmark", "set", bookie.root, "--offset", "0", *paths)
    assert (refused.exit_code, "no journal is there" in refused.stderr) == (4, True), refused.stderr
    done = run_cli("journal", "salvage", bookie.root, "--in-place", *paths)
    assert done.exit_code == 1, done.stderr
    with started(bookie.root, bookie.directories) as running:
        for ledger, entry in bookie.truth.journaled:
            if ledger in LIVE[:-1]:
                with pytest.raises(LedgerLimboError):
                    running.reads.read(ledger, entry)


def cut_a_key(bookie: TruthfulBookie) -> int:
    """Zero the end of the last master key in the journals, and what follows it; return its ledger."""
    keys = []
    for path in bookie.journals():
        with JournalScan(PosixFileSystem(), str(path)) as scan:
            keys += [(path, item) for item in scan if getattr(item, "kind", None) is RecordKind.MASTER_KEY]
    path, record = keys[-1]
    assert record.ledger not in bookie.truth.fenced | {DELETED}
    content = bytearray(path.read_bytes())
    content[record.end - 9 : record.end + 50] = bytes(59)
    path.write_bytes(content)
    return int(record.ledger)


def test_a_key_that_zeros_cut_does_not_become_the_ledgers(run_cli: Run, bookie: TruthfulBookie) -> None:
    ledger = cut_a_key(bookie)
    done = run_cli("journal", "salvage", bookie.root, "--in-place", "--yes", "-o", "json")
    assert done.exit_code == 1, done.stderr
    with started(bookie.root, bookie.directories) as running:
        answers = Answers()
        copy = SingleAdd(entry_body(ledger, 1000), KEY, answers, 1000, recovery=True)
        running.writes.add(copy)
        answers.wait(1)
        assert answers.good == [1000]


def test_where_a_digest_that_needs_a_key_may_hide_a_loss_the_exit_code_is_3(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    """Of the last entry that a bookie wrote the length is changed: it takes those behind it for its own data,
    and ends in the zeros that the journal was made with."""
    path = bookie.journals()[-1]
    written = path.read_bytes().rstrip(b"\0")
    written += bytes(-len(written) % 512)
    written += b"".join(encode_record(master_key_record(ledger, KEY)) for ledger in (77, 78))
    written += frame(body_of(77, 0, b"d" * 100, DigestType.MAC))
    body = body_of(77, 1, b"d" * 100, DigestType.MAC)
    behind = b"".join(frame(body_of(78, entry)) for entry in range(3))
    words = ("journal", "salvage", bookie.root, "--out", tmp_path / "fresh", "--dry-run")
    for more in (0, 2048):
        path.write_bytes(written + (len(body) + more).to_bytes(4, "big") + body + behind + bytes(8192))
        done = run_cli(*words)
        assert done.exit_code == 3, done.stdout
        assert "could not be checked (ledger 77): their digest types are not known" in done.stderr
        proved = run_cli(*words, "--password", "secret")
        assert (
            (proved.exit_code != 0)
            == ("record size; the record in it is copied" in proved.stdout)
            == bool(more)
        )
