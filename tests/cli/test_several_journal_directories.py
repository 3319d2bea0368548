"""Repairs of one of several journal directories, whose journals may have the same names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.scan.journal import JournalScan
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.vfs import PosixFileSystem
from tests.support.grades import one_kept
from tests.support.rows import from_ndjson

Run = Callable[..., Any]


def fill(uri: str) -> None:
    async def write() -> None:
        async with await BookKeeper.connect(uri) as client:
            for _ in range(4):
                ledger = await client.create(1, 1, 1)
                for number in range(20):
                    await ledger.append(b"%d" % number * 50)
                await ledger.close()

    asyncio.run(write())


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """A bookie with two journal directories, whose journals have the same names."""
    root = tmp_path / "bookie"
    keys = {
        "journalDirectories": f"{root}/j0,{root}/j1",
        "ledgerDirectories": f"{root}/l0,{root}/l1",
        "metadataServiceUri": f"embedded://{tmp_path}/metadata.db",
        "allowLoopback": "true",
    }
    with EmbeddedBookie(root, metadata_uri=keys["metadataServiceUri"], overrides=keys):
        fill(keys["metadataServiceUri"])
    names = sorted(path.name for path in (root / "j0" / "current").glob("*.txn"))
    ours = sorted((root / "j1" / "current").glob("*.txn"))
    for number, path in enumerate(ours):
        path.rename(path.with_name(names[number] + ".moved"))
    for path in (root / "j1" / "current").glob("*.moved"):
        path.rename(path.with_suffix(""))
    for path in root.glob("l*/current/lastMark.1"):
        mark = decode_last_mark(path.read_bytes())
        path.write_bytes(encode_last_mark(LastMark(int(names[-1][:-4], 16), mark.offset)))
    return root


def damaged(bookie: Path, journal_dir: str) -> Path:
    """Damage a record of the newest journal; the journal."""
    (journal,) = sorted((bookie / journal_dir / "current").glob("*.txn"))[-1:]
    with JournalScan(PosixFileSystem(), str(journal)) as scan:
        offset = [batch.offset(index) for batch in scan.batches() for index in range(len(batch))][3]
    content = bytearray(journal.read_bytes())
    content[offset : offset + 60] = b"\x7f" * 60
    journal.write_bytes(content)
    return journal


def test_the_directory_is_named_where_two_have_the_journal(run_cli: Run, bookie: Path) -> None:
    journal = damaged(bookie, "j1")
    other = bookie / "j0" / "current" / journal.name
    before = (journal.read_bytes(), other.read_bytes())
    words = ("journal", "salvage", bookie, "--in-place", "--yes")
    refused = run_cli(*words, "--journal", journal.name)
    assert refused.exit_code == 2
    assert "is in several directories" in refused.stderr
    assert "--journal-dir" in refused.stderr
    assert run_cli(*words, "--journal-dir", bookie / "j2").exit_code == 6
    assert (journal.read_bytes(), other.read_bytes()) == before
    done = run_cli(*words, "--journal-dir", bookie / "j1")
    assert done.exit_code in (0, 1), done.stderr
    assert journal.read_bytes() != before[0]
    assert other.read_bytes() == before[1]
    assert run_cli("journal", "verify", bookie / "j1").exit_code == 0
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert journal.read_bytes() == before[0]


def test_the_mark_of_one_directory_is_set_back(run_cli: Run, bookie: Path) -> None:
    marks = {path: path.read_bytes() for path in bookie.glob("l*/current/lastMark.*")}
    words = ("lastmark", "set", bookie, "--journal", "0", "--offset", "0", "--yes")
    refused = run_cli(*words)
    assert refused.exit_code == 2
    assert "--journal-dir" in refused.stderr
    done = run_cli(*words, "--journal-dir", bookie / "j1" / "current")
    assert done.exit_code == 0, done.stderr
    for path, content in marks.items():
        first = min(int(each.stem, 16) for each in (bookie / "j1/current").glob("*.txn"))
        is_set = path.name == "lastMark.1"
        assert (decode_last_mark(path.read_bytes()) == LastMark(first, 0)) is is_set
        assert is_set or path.read_bytes() == content


@pytest.mark.parametrize("by_configuration", one_kept("the same directories", True, False))
def test_a_plan_names_the_directory(
    run_cli: Run, bookie: Path, tmp_path: Path, by_configuration: bool
) -> None:
    run_cli(
        "lastmark", "set", bookie, "--journal", "0", "--offset", "0", "--journal-dir", bookie / "j1", "--yes"
    )
    damaged(bookie, "j1")
    conf = tmp_path / "bk.conf"
    conf.write_text(
        f"journalDirectories={bookie}/j0,{bookie}/j1\nledgerDirectories={bookie}/l0,{bookie}/l1\n"
        f"metadataServiceUri=embedded://{tmp_path}/metadata.db\nallowLoopback=true\n"
    )
    place = ("--conf", conf) if by_configuration else (bookie,)
    made = run_cli("repair", "plan", *place, "--out", tmp_path / "plan.json")
    words = [row["command"] or [] for row in from_ndjson(made.stdout)]
    (salvage,) = [each for each in words if each[1:3] == ["journal", "salvage"]]
    assert salvage[salvage.index("--journal-dir") + 1] == str(bookie / "j1" / "current")
    done = run_cli("repair", "run", tmp_path / "plan.json", "--yes")
    ends = {row["number"]: row["exit_code"] for row in from_ndjson(done.stdout)}
    assert ends[1] in (0, 1), done.stderr
    assert run_cli("journal", "verify", bookie / "j1").exit_code == 0


def test_an_index_is_rebuilt_with_the_metadata_of_a_store(run_cli: Run, bookie: Path, tmp_path: Path) -> None:
    """Both ledger directories have a log 0."""
    assert len(list(bookie.glob("l*/current/0.log"))) == 2
    uri = f"embedded://{tmp_path}/metadata.db"
    done = run_cli("index", "rebuild", bookie, "--metadata", uri, "--yes")
    assert done.exit_code == 0, done.stderr
    assert run_cli("index", "check", bookie, "--metadata", uri).exit_code == 0
