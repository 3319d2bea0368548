"""``repair undo`` does not believe its kept files: it looks at them first, and at what it has put back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.repairs import repair_undo
from tests.support.rows import from_ndjson

Run = Callable[..., Any]
DEMO = Path(__file__).parents[1] / "data" / "demo"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "bookie"
    shutil.copytree(DEMO / "bookie1", root)
    log = root / "ledgers/current/0.log"
    with log.open("r+b") as stream:
        stream.seek(15259)
        stream.write(b"\x7f\xff\xff\xff")
    return root


@pytest.fixture
def bookie(
    request: pytest.FixtureRequest, run_cli: Run, damaged: Path, tmp_path: Path
) -> tuple[Path, dict[str, bytes]]:
    """A bookie behind a salvage, and its files in front of that; its databases may have tables, or logs."""
    root = tmp_path / "bookie"
    shutil.copytree(damaged, root)
    if getattr(request, "param", "logs") == "tables":
        assert run_cli("index", "compact", root, "--yes").exit_code == 0
    before = content(root)
    log = root / "ledgers/current/0.log"
    assert run_cli("entrylog", "salvage", log, "--metadata", DEMO / "zk.json", "--yes").exit_code in (0, 1)
    return root, before


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def kept(root: Path, what: str) -> Path:
    """The kept file that a pattern names; ``lastId`` is kept under a number."""
    (record,) = root.rglob("repair.json")
    if what == "lastId":
        changes = json.loads(record.read_bytes())["changes"]
        (name,) = [change["kept"] for change in changes if change["path"] == "lastId"]
        return record.parents[2] / str(name)
    return sorted(record.parent.rglob(what))[0]


def truncate(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.truncate(3)


def change(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def extend(path: Path) -> None:
    path.with_name("000099.log").write_bytes(b"")


def forget_facts(root: Path) -> None:
    """Make the record one of an earlier version."""
    (record,) = root.rglob("repair.json")
    document = json.loads(record.read_bytes())
    assert document.pop("kept")
    record.write_text(json.dumps(document))


def refused(run_cli: Run, root: Path, named: str) -> None:
    files = content(root)
    (row,) = from_ndjson(run_cli("repair", "log", root, "-o", "ndjson").stdout)
    assert named in row["why_not"]
    for words in (("--dry-run",), ("--yes",)):
        done = run_cli("repair", "undo", root, *words)
        assert done.exit_code == 4, done.stderr
        assert named in done.stderr
    assert content(root) == files


@pytest.mark.parametrize(
    ("bookie", "what", "spoil"),
    [
        ("logs", "*.log", truncate),
        ("logs", "*.log", change),
        ("logs", "MANIFEST-*", Path.unlink),
        ("logs", "MANIFEST-*", change),
        ("tables", "*.sst", Path.unlink),
        ("logs", "lastId", truncate),
        ("logs", "lastId", change),
    ],
    indirect=["bookie"],
)
def test_a_kept_file_that_is_not_as_it_was_is_named_and_nothing_is_undone(
    run_cli: Run, bookie: tuple[Path, dict[str, bytes]], what: str, spoil: Callable[[Path], None]
) -> None:
    root, before = bookie
    path = kept(root, what)
    data = path.read_bytes()
    spoil(path)
    refused(run_cli, root, str(path))
    path.write_bytes(data)
    assert run_cli("repair", "undo", root, "--yes").exit_code == 0
    assert content(root) == before


def test_a_kept_database_with_one_more_file_is_not_put_back(
    run_cli: Run, bookie: tuple[Path, dict[str, bytes]]
) -> None:
    root, _ = bookie
    extend(kept(root, "CURRENT"))
    refused(run_cli, root, "000099.log is new")


@pytest.mark.parametrize(
    ("what", "spoil"), [("*.log", truncate), ("MANIFEST-*", Path.unlink), ("lastId", truncate)]
)
def test_a_record_of_an_earlier_version_is_checked_by_what_it_says(
    run_cli: Run, bookie: tuple[Path, dict[str, bytes]], what: str, spoil: Callable[[Path], None]
) -> None:
    root, before = bookie
    forget_facts(root)
    path = kept(root, what)
    data = path.read_bytes()
    spoil(path)
    refused(run_cli, root, str(path))
    path.write_bytes(data)
    assert run_cli("repair", "undo", root, "--yes").exit_code == 0
    assert content(root) == before


def test_what_is_not_back_keeps_the_record(
    run_cli: Run, bookie: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, before = bookie
    with monkeypatch.context() as patch:
        patch.setattr(repair_undo, "put_back_database", lambda *_: None)
        done = run_cli("repair", "undo", root, "--yes")
    assert done.exit_code == 4, done.stderr
    assert "could not be undone" in done.stderr
    assert list(root.rglob("repair.json"))
    assert run_cli("repair", "undo", root, "--yes").exit_code == 0
    assert content(root) == before
