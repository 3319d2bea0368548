"""``bkctl index repair | limbo | stats | compact`` from the command line, on copies of real indexes."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store

DATA = Path(__file__).parents[1] / "data"
METADATA = DATA / "metadata" / "zk-sample.json"

Run = Callable[..., Any]


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(DATA / "index" / name, tmp_path / name))

    return copy


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def content(path: Path) -> dict[str, str]:
    """Every file's digest: what a refusal or a dry run must not change."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


def ledgers(run_cli: Run, path: Path) -> list[tuple[int, int, bool]]:
    rows = rows_of(run_cli("index", "ledgers", path, "--every-row").stdout)
    return [(row["ledger"], row["key_bytes"], row["limbo"]) for row in rows]


WRITES = [
    ("b", ["index", "repair", "{}"]),
    ("b", ["index", "limbo", "5", "{}"]),
    ("b", ["index", "compact", "{}"]),
]


@pytest.mark.parametrize(("name", "line"), WRITES)
def test_a_script_must_say_yes(
    run_cli: Run, sample: Callable[[str], Path], name: str, line: list[str]
) -> None:
    path = sample(name)
    before = content(path)
    done = run_cli(*(word.format(path) for word in line))
    assert done.exit_code == 4
    assert "--yes" in done.stderr
    assert done.stdout == ""
    assert content(path) == before
    dry = run_cli(*(word.format(path) for word in line), "--dry-run")
    assert dry.exit_code == 0
    assert rows_of(dry.stdout)
    assert content(path) == before


@pytest.mark.parametrize(("name", "line"), WRITES)
def test_refuses_what_is_in_use(
    run_cli: Run, sample: Callable[[str], Path], name: str, line: list[str]
) -> None:
    """Held by this very process, as an embedded bookie would: the databases refuse a second open."""
    path = sample(name)
    with open_store(str(path / "l/current/ledgers"), LEDGERS_PROFILE, create=False):
        done = run_cli(*(word.format(path) for word in line), "--yes")
    assert done.exit_code == 4
    assert "in use by" in done.stderr
    assert run_cli(*(word.format(path) for word in line), "--yes").exit_code == 0


def test_repair(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("b")
    assert ledgers(run_cli, path) == [(5, 16, False), (6, 16, False), (7, 8, False)]
    done = run_cli("index", "repair", path, "--yes")
    assert done.exit_code == 0
    assert [(row["kind"], row["ledger"]) for row in rows_of(done.stdout)] == [
        ("converted", 5),
        ("converted", 6),
    ]
    assert ledgers(run_cli, path) == [(5, 8, False), (6, 8, False), (7, 8, False)]
    again = run_cli("index", "repair", path)  # nothing to do, nothing to ask
    assert (again.exit_code, again.stdout) == (0, "")


def test_repair_with_ledger_metadata(run_cli: Run, sample: Callable[[str], Path], tmp_path: Path) -> None:
    """Ledger 6 exists no more, 5 does; the dump is made of the sample's own metadata."""
    path = sample("b")
    znodes = json.loads(METADATA.read_text())
    some = next(node for node in znodes.values() if base64.b64decode(node["data"] or "")[:4] == b"Book")
    names = ["/ledgers", "/ledgers/00/0000/L0005", "/ledgers/00/0000/L0007"]
    dump = {name: {**some, "data": some["data"] if "L0" in name else ""} for name in names}
    file = tmp_path / "zk.json"
    file.write_text(json.dumps(dump))
    cookie = Cookie(5, "bookie:3181", "/data/j", f"1\t{path}", None)
    (path / "l" / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    before = rows_of(run_cli("index", "scan", path).stdout)
    assert {row["ledger"] for row in before} >= {5, 6}
    planned = run_cli("index", "repair", path, "--metadata", file, "--dry-run")
    assert [row["kind"] for row in rows_of(planned.stdout)] == ["converted", "converted"], "no end marker"
    done = run_cli("index", "repair", path, "--metadata", file, "--trust-dump", "--yes")
    assert done.exit_code == 0
    assert [(row["kind"], row["ledger"]) for row in rows_of(done.stdout)] == [
        ("converted", 5),
        ("deleted", 6),
    ]
    assert ledgers(run_cli, path) == [(5, 8, False), (7, 8, False)]
    left = rows_of(run_cli("index", "scan", path).stdout)
    assert left == [row for row in before if row["ledger"] != 6]


def test_repair_tells_damage(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("a")
    from bkctl.kvstore.base import Put

    with open_store(str(path / "l/current/ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Put(b"odd", b"row")], sync=True)
    done = run_cli("index", "repair", path)
    assert done.exit_code == 1
    assert [row["kind"] for row in rows_of(done.stdout)] == ["damaged"]


def test_limbo(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("s")
    assert ledgers(run_cli, path) == [(5, 8, True), (2**63 - 1, 8, False)]
    done = run_cli("index", "limbo", 5, 2**63 - 1, path, "--clear", "--yes")
    assert [(row["ledger"], row["limbo"], row["changed"]) for row in rows_of(done.stdout)] == [
        (5, False, True),
        (2**63 - 1, False, False),
    ]
    assert ledgers(run_cli, path) == [(5, 8, False), (2**63 - 1, 8, False)]
    assert run_cli("index", "limbo", 5, path, "--yes").exit_code == 0
    assert ledgers(run_cli, path)[0] == (5, 8, True)


def test_limbo_of_what_has_none(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("a")
    before = content(path)
    assert run_cli("index", "limbo", 5, 77, path, "--yes").exit_code == 6
    assert content(path) == before
    assert run_cli("index", "limbo", path).exit_code == 2


def test_stats(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("g")
    before = content(path)
    rows = rows_of(run_cli("index", "stats", path).stdout)
    assert [row["database"] for row in rows] == ["locations", "ledgers", "metadata-cache"]
    assert all(row["files"] == sum(row["files_per_level"]) for row in rows)
    by_ledger = rows_of(run_cli("index", "stats", path, "--ledgers").stdout)
    assert [(row["ledger"], row["entries"]) for row in by_ledger] == [(6, 2), (7, 1)]
    top = rows_of(run_cli("index", "stats", path, "--ledgers", "--top", 1).stdout)
    assert top == by_ledger[:1]
    assert content(path) == before
    demo = DATA / "demo/bookie1/ledgers"
    by_ledger = rows_of(run_cli("index", "stats", demo, "--ledgers").stdout)
    top = rows_of(run_cli("index", "stats", demo, "--ledgers", "--top", 2, "--by", "data").stdout)
    assert top == sorted(by_ledger, key=lambda row: -row["data_bytes"])[:2]
    assert run_cli("index", "stats", demo, "--ledgers", "--by", "size").exit_code == 2
    assert run_cli("index", "stats", path, "--top", 1).exit_code == 2
    assert run_cli("index", "stats", sample("i")).exit_code == 2
    assert rows_of(run_cli("index", "stats", path / "l", "--ledgers", "-o", "ndjson").stdout) != []


def test_compact(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("g")
    before = run_cli("index", "scan", path).stdout
    done = run_cli("index", "compact", path, "--yes")
    assert done.exit_code == 0
    rows = rows_of(done.stdout)
    assert {row["database"] for row in rows} == {"locations", "ledgers", "metadata-cache"}
    assert all(row["tombstones_after"] == 0 for row in rows)
    assert run_cli("index", "scan", path).stdout == before


def test_a_dirty_mark_is_told_and_does_not_refuse(run_cli: Run, sample: Callable[[str], Path]) -> None:
    path = sample("b")
    (path / "l/current/DIRTY").touch()
    done = run_cli("index", "repair", path, "--yes")
    assert done.exit_code == 0
    assert "marked DIRTY" in done.stderr


@pytest.mark.parametrize("verb", ["repair", "limbo", "stats", "compact"])
def test_schema(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in rows_of(run_cli("index", verb, "--schema").stdout)]
    assert keys[0] == "dir"
    assert len(keys) == len(set(keys))
    assert all(key == key.lower() for key in keys)


def test_limbo_without_ledgers_says_how_to_see_them(run_cli: Run, tmp_path: Path) -> None:
    done = run_cli("index", "limbo", tmp_path)
    assert (done.exit_code, "bkctl index ledgers PATH" in done.stderr) == (2, True), done.stderr
