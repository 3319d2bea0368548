"""``bkctl cookie get``: of directories, of VERSION files, of a metadata dump."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.rows import from_csv, from_ndjson, same_in_every_format

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"

Run = Callable[..., Any]

FIELDS = {
    "layout_version": 5,
    "bookie_host": "127.0.0.1:4100",
    "journal_dirs": ["/data/bookkeeper/bookie1/journal"],
    "ledger_dirs": ["/data/bookkeeper/bookie1/ledgers"],
    "index_dirs": None,
    "instance_id": "ba45accd-2a1d-45cb-8e37-5e1d86cbc89d",
}


def test_cookies_of_a_bookie(run_cli: Run) -> None:
    assert same_in_every_format(run_cli, "cookie", "get", DEMO / "bookie1") == [
        {"path": str(DEMO / f"bookie1/{folder}/current/VERSION"), "source": "file", **FIELDS}
        for folder in ("journal", "ledgers")
    ]


def test_the_cookie_of_one_file(run_cli: Run) -> None:
    path = DEMO / "bookie1/ledgers/current/VERSION"
    result = run_cli("cookie", "get", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert from_ndjson(result.stdout) == [{"path": str(path), "source": "file", **FIELDS}]


def test_cookies_of_a_dump(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("cookie", "get", DEMO / "zk.json").stdout)
    assert rows[0] == {"path": "/ledgers/cookies/127.0.0.1:4100", "source": "znode", **FIELDS}
    assert [row["bookie_host"] for row in rows] == [f"127.0.0.1:{port}" for port in (4100, 4101, 4102)]


def test_several_directories_and_a_layout_of_old(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text(
        '5\nbookieHost: "b:3181"\njournalDir: "/j1,/j2"\n'
        'ledgerDirs: "2\\t/l1\\t/l2"\nindexDirs: "2\\t/i1\\t/i2"\n'
    )
    (row,) = from_ndjson(run_cli("cookie", "get", tmp_path / "VERSION").stdout)
    assert (row["journal_dirs"], row["ledger_dirs"]) == (["/j1", "/j2"], ["/l1", "/l2"])
    assert (row["index_dirs"], row["instance_id"]) == (["/i1", "/i2"], None)
    (tmp_path / "VERSION").write_text("3\nb:3181\n/j\n1\t/l\n")
    (row,) = from_ndjson(run_cli("cookie", "get", tmp_path).stdout)
    assert (row["layout_version"], row["bookie_host"], row["ledger_dirs"]) == (3, "b:3181", ["/l"])


def test_a_table(run_cli: Run) -> None:
    table = run_cli("cookie", "get", DEMO, "-o", "table").stdout
    assert "127.0.0.1:4100" in table
    assert len(table.splitlines()) == 4


def test_exit_codes(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/VERSION").write_text("five\n")
    (tmp_path / "dump.json").write_text(json.dumps({"/ledgers": {"data": ""}}))
    (tmp_path / "loop").symlink_to("loop")
    for path, code, word in (
        (tmp_path / "none", 6, "none: no such file"),
        ("bookie-3:3181", 6, "where it is a bookie's id name the metadata store (--metadata-uri, --conf)"),
        (DATA / "samples/a", 6, "a: no cookie (VERSION) in it"),
        (tmp_path / "dump.json", 6, "dump.json: no cookie in the dump"),
        (tmp_path / "bad", 1, "bad/VERSION: "),
        (tmp_path / "loop", 7, "loop: Too many levels"),
    ):
        result = run_cli("cookie", "get", path)
        assert (result.exit_code, result.stdout) == (code, ""), path
        assert word in result.stderr
    assert run_cli("cookie", "get").exit_code == 2


def test_schema(run_cli: Run) -> None:
    keys = [row["key"] for row in from_csv(run_cli("cookie", "get", "--schema", "-o", "csv").stdout)]
    assert keys == ["path", "source", *FIELDS]
