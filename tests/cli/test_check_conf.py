"""``bkctl bookie check-conf``: keys and directories of a configuration, without a start."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.configuration.directory_fates import DirectoryFate, directory_fates
from bkctl.admin.doctor.doctor import this_system
from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Severity
from bkctl.admin.doctor.subject import configured_subject
from bkctl.config.loader import load
from bkctl.vfs import PosixFileSystem
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson
from tests.support.stock_configurations import STOCK_CONFIGURATIONS, stock_ids

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> DoctoredBookie:
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


def checked(run_cli: Run, conf: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    words = ("bookie", "check-conf", "--conf", str(conf), *words, "-o", "ndjson")
    result = run_cli(*words, env={"BKCTL_METADATA_URI": None})
    return result.exit_code, from_ndjson(result.stdout)


def directories(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {Path(row["name"]).name: row for row in rows if row["about"] == "directory"}


def tree(root: Path) -> dict[str, float]:
    return {str(path): path.lstat().st_mtime for path in root.rglob("*")}


@pytest.mark.parametrize("words", [(), ("--ask-metadata",)])
def test_of_a_sound_bookie_there_is_nothing_to_mend(run_cli: Run, bookie: DoctoredBookie, words: Any) -> None:
    before = tree(bookie.root)
    code, rows = checked(run_cli, bookie.conf, *words)
    assert (
        code,
        {(row["about"], row["severity"]) for row in rows} - {("key", "note"), ("bookie", "note")},
    ) == (0, set())
    code, rows = checked(run_cli, bookie.conf, "--all", *words)
    assert code == 0
    found = directories(rows)
    table = run_cli("bookie", "check-conf", "--conf", bookie.conf, "--all", "-o", "csv").stdout
    (line,) = (row for row in csv.DictReader(table.splitlines()) if row["name"].endswith("/ledgers"))
    assert (line["about"], line["writable"], line["storage"]) == ("directory", "true", "DbLedgerStorage")
    assert {name: row["holds"] for name, row in found.items()} == {
        "journal": ["journal"],
        "ledgers": ["ledgers", "index"],
    }
    assert {(row["fate"], row["exists"], row["writable"], row["bookie"]) for row in found.values()} == {
        ("ok", True, True, bookie.cookie.bookie_host)
    }
    assert found["ledgers"]["storage"] == "DbLedgerStorage"
    assert found["ledgers"]["free_bytes"] <= found["ledgers"]["total_bytes"]
    assert {name: mtime for name, mtime in tree(bookie.root).items() if "metadata.db" not in name} == {
        name: mtime for name, mtime in before.items() if "metadata.db" not in name
    }


def test_directories_that_a_first_start_makes(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    more = f"journalDirectories={tmp_path}/a/j", f"ledgerDirectories={tmp_path}/a/l"
    code, rows = checked(run_cli, bookie.conf, *(word for one in more for word in ("-X", one)))
    assert code == 0
    assert {row["fate"] for row in directories(rows).values()} == {"new"}
    assert not (tmp_path / "a").exists()


def test_a_directory_that_is_gone(run_cli: Run, bookie: DoctoredBookie) -> None:
    shutil.rmtree(bookie.journal)
    code, rows = checked(run_cli, bookie.conf)
    row = directories(rows)["journal"]
    assert (code, row["fate"], row["severity"], row["exists"]) == (1, "missing_directory", "error", False)


def test_the_cookie_of_another_bookie(run_cli: Run, bookie: DoctoredBookie) -> None:
    bookie.stamp("ledgers", replace(bookie.cookie, bookie_host="other:3181"))
    code, rows = checked(run_cli, bookie.conf)
    row = directories(rows)["ledgers"]
    assert (code, row["fate"], row["bookie"]) == (1, "different_cookie", "other:3181")


def test_a_renamed_bookie_is_found_without_the_metadata_store(run_cli: Run, bookie: DoctoredBookie) -> None:
    code, rows = checked(run_cli, bookie.conf, "-X", "bookieId=renamed")
    assert code == 1
    assert {row["fate"] for row in rows if row["severity"] == "error"} == {"renamed_bookie"}


def test_the_index_of_another_storage(run_cli: Run, bookie: DoctoredBookie) -> None:
    kind = "ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage"
    code, rows = checked(run_cli, bookie.conf, "-X", kind)
    row = directories(rows)["ledgers"]
    assert (code, row["fate"], row["severity"], row["storage"]) == (
        1,
        "other_storage",
        "error",
        "DbLedgerStorage",
    )


def test_a_process_that_uses_a_directory(run_cli: Run, bookie: DoctoredBookie) -> None:
    program = "import sys; f = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    words = (sys.executable, "-c", program, str(bookie.ledgers / "0.log"))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        code, rows = checked(run_cli, bookie.conf)
        holder.stdin.close()
    row = directories(rows)["ledgers"]
    assert (code, row["fate"]) == (0, "in_use"), "which is a note: it says why a start would be refused"
    assert str(holder.pid) in row["held_by"]


def test_the_metadata_store_is_asked_only_when_told_to(run_cli: Run, bookie: DoctoredBookie) -> None:
    bookie.change_store(lambda _cookie: None)
    assert checked(run_cli, bookie.conf)[0] == 0
    code, rows = checked(run_cli, bookie.conf, "--ask-metadata")
    assert code == 1
    assert [row for row in rows if row["severity"] == "error"]


def test_no_configuration_can_be_made(run_cli: Run, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("ledgerDirectories=/l\nbookiePrt=3181\n")
    code, rows = checked(run_cli, conf)
    assert code == 1
    assert [row["fate"] for row in rows if row["severity"] == "error"] == ["invalid", "invalid"]
    assert ["did you mean bookiePort?" in row["says"] for row in rows if row["fate"] == "unknown"] == [True]
    assert run_cli("bookie", "check-conf").exit_code == 2
    assert run_cli("bookie", "check-conf", "--conf", str(tmp_path / "none")).exit_code == 6


@pytest.mark.parametrize("path", STOCK_CONFIGURATIONS[-2:], ids=stock_ids)
def test_a_shipped_file_is_checked_whole(run_cli: Run, path: Path, tmp_path: Path) -> None:
    own = (
        f"journalDirectories={tmp_path}/j",
        f"ledgerDirectories={tmp_path}/l",
        "advertisedAddress=bookie-1",
    )
    code, rows = checked(run_cli, path, *(word for one in own for word in ("-X", one)))
    assert not [row for row in rows if row["severity"] == "error"]
    assert code == 1, "Pulsar ships a journal format that cannot hold explicit LACs"
    assert {row["fate"] for row in directories(rows).values()} == {"new"}


def fates(conf: Path, writable: Callable[[str], bool]) -> list[DirectoryFate]:
    config, _ = load(str(conf), {}, {})
    filesystem = PosixFileSystem()
    subject = configured_subject(filesystem, config.directories)
    return list(
        directory_fates(
            Examination(filesystem, this_system(), subject, config=config), asked=False, writable=writable
        )
    )


def test_a_directory_that_this_user_may_not_write(bookie: DoctoredBookie) -> None:
    found = fates(bookie.conf, lambda path: "journal" in path)
    assert {(Path(one.directory or "").name, one.fate, one.severity) for one in found} == {
        ("journal", "ok", None),
        ("ledgers", "not_writable", Severity.ERROR),
    }
    shutil.rmtree(bookie.root / "ledgers")
    shutil.rmtree(bookie.root / "journal")
    found = fates(bookie.conf, lambda _path: False)
    assert {one.fate for one in found} == {"not_writable"}
    assert all(f"below {os.path.abspath(bookie.root)}" in one.says for one in found)
