"""``bkctl lastmark show``: every mark, and the one that counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkctl.codec.last_mark import LastMark, encode_last_mark
from tests.support.rows import from_csv, from_ndjson, same_in_every_format

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
MARK = DEMO / "bookie1/ledgers/current/lastMark"

Run = Callable[..., Any]


def test_one_mark(run_cli: Run) -> None:
    for path in (DEMO, MARK):
        assert same_in_every_format(run_cli, "lastmark", "show", path) == [
            {
                "path": str(MARK),
                "journal_id": 0x1A1FE14808F,
                "journal": "1a1fe14808f.txn",
                "offset": 341_504,
                "counts": True,
                "error": None,
                "doubt": None,
            }
        ]


def test_one_mark_for_each_journal_directory(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("lastmark", "show", DATA / "samples/m").stdout)
    shown = [
        (Path(row["path"]).parts[-3], Path(row["path"]).name, row["journal"], row["offset"]) for row in rows
    ]
    assert shown == [
        (folder, f"lastMark.{number}", journal, offset)
        for folder in ("l1", "l2")
        for number, journal, offset in (
            (0, "0.txn", 0),
            (1, "1a1fdfde676.txn", 1536),
            (2, "1a1fdfde677.txn", 1536),
        )
    ]
    assert {row["counts"] for row in rows} == {True}


def test_the_highest_of_several_directories_counts(run_cli: Run, tmp_path: Path) -> None:
    contents = {
        "a": encode_last_mark(LastMark(7, 4096)),
        "b": encode_last_mark(LastMark(8, 512)),
        "c": b"\0" * 9,
        "d": encode_last_mark(LastMark(8, 512)),
    }
    for name, content in contents.items():
        (tmp_path / name / "current").mkdir(parents=True)
        (tmp_path / name / "current/lastMark").write_bytes(content)
    result = run_cli("lastmark", "show", tmp_path)
    rows = from_ndjson(result.stdout)
    assert result.exit_code == 0
    assert [row["counts"] for row in rows] == [False, True, False, True]
    assert [row["journal_id"] for row in rows] == [7, 8, None, 8]
    assert [row["error"] for row in rows if row["error"]] == [
        "last mark at offset 9: expected 16 bytes, found 9 bytes"
    ]


def test_sixteen_bytes_of_anything_are_doubted(run_cli: Run, tmp_path: Path) -> None:
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie")
    file = bookie / "ledgers/current/lastMark"
    for content, text in (
        (b"sixteen letters.", "there is no 7369787465656e20.txn, but 1 journals from 1a1fe14808f.txn"),
        (encode_last_mark(LastMark(0x1A1FE14808F, 1 << 30)), "1a1fe14808f.txn has 458752 bytes"),
    ):
        file.write_bytes(content)
        (row,) = from_ndjson(run_cli("lastmark", "show", bookie).stdout)
        assert (row["counts"], row["error"]) == (True, None), "a bookie takes it for a mark"
        assert row["doubt"].startswith(text)
    # Where no journal is found nothing is said.
    (row,) = from_ndjson(run_cli("lastmark", "show", file).stdout)
    assert row["doubt"] is None


def test_a_table(run_cli: Run) -> None:
    table = run_cli("lastmark", "show", DEMO, "-o", "table").stdout.splitlines()
    assert table[0].split() == ["path", "journal_id", "journal", "offset", "counts", "error", "doubt"]
    assert table[2].split() == [str(MARK), "1795264118927", "1a1fe14808f.txn", "341504", "true"]


def test_exit_codes(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for path, code, word in (
        (tmp_path / "none", 6, "none: no such file"),
        (DATA / "samples/jr", 6, "jr: no lastMark in it"),
        (tmp_path / "empty", 2, "empty: no journal, entry log, index or cookie"),
        (tmp_path / "loop", 7, "loop: Too many levels"),
    ):
        result = run_cli("lastmark", "show", path)
        assert (result.exit_code, result.stdout) == (code, ""), path
        assert word in result.stderr
    assert run_cli("lastmark", "show").exit_code == 2


def test_schema(run_cli: Run) -> None:
    keys = [row["key"] for row in from_csv(run_cli("lastmark", "show", "--schema", "-o", "csv").stdout)]
    assert keys == ["path", "journal_id", "journal", "offset", "counts", "error", "doubt"]
