"""A file of another kind than it was given as is wrong usage, whichever command it is given to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DEMO = Path(__file__).parent.parent / "data/demo"

#: What ends with 2; BOOKIE, OTHER and STORE stand for paths and a store.
LINES = {
    "a metadata dump": (
        "entrylog verify BOOKIE --metadata OTHER",
        "journal verify BOOKIE --metadata OTHER",
        "index check BOOKIE --metadata OTHER",
        "index rebuild BOOKIE --metadata OTHER --yes",
        "gc plan BOOKIE --metadata OTHER",
        "doctor BOOKIE --metadata OTHER",
        "repair plan BOOKIE --metadata OTHER",
        "space BOOKIE --metadata OTHER",
        "ledger restore OTHER --yes --metadata STORE",
    ),
    "a cookie": (
        "cookie get OTHER",
        "cookie diff BOOKIE OTHER",
        "cookie create b:3181 --file OTHER --metadata STORE --yes",
    ),
    "a list of losses": ("ledger repair --from OTHER --metadata STORE",),
    "a plan": ("repair run OTHER --yes",),
    "a lastMark": ("lastmark show OTHER",),
    "an entry log": ("entrylog scan OTHER",),
    "a journal": ("journal scan OTHER",),
    "a directory": (
        "pipeline trend OTHER",
        "pipeline collect BOOKIE --to OTHER",
    ),
}


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """A copy of a stopped bookie."""
    return Path(shutil.copytree(DEMO / "bookie1", tmp_path / "bookie"))


@pytest.mark.parametrize(("kind", "line"), [(kind, line) for kind, lines in LINES.items() for line in lines])
def test_a_text_is_wrong_usage(
    run_cli: Run, capfd: pytest.CaptureFixture[str], bookie: Path, tmp_path: Path, kind: str, line: str
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("This is a note for the operator.\n")
    named = {"BOOKIE": bookie, "OTHER": other, "STORE": f"embedded://{tmp_path}/metadata.db"}
    done = run_cli(*(named.get(word, word) for word in line.split()))
    said = done.stderr + capfd.readouterr().err  # a plan's doctor is a process of its own
    assert (done.exit_code, str(other) in said, kind in said) == (2, True, True), said


def test_json_of_another_kind_is_wrong_usage(run_cli: Run, bookie: Path, tmp_path: Path) -> None:
    other = tmp_path / "losses.json"
    other.write_text('{"kind": "bkctl losses", "version": 1}')
    done = run_cli("entrylog", "verify", bookie, "--metadata", other)
    assert (done.exit_code, f"{other}: is not a metadata dump" in done.stderr) == (2, True)


def test_a_dump_that_is_cut_is_damage(run_cli: Run, bookie: Path, tmp_path: Path) -> None:
    dump = tmp_path / "zk.json"
    dump.write_bytes((DEMO / "zk.json").read_bytes()[:500])
    assert run_cli("entrylog", "verify", bookie, "--metadata", dump).exit_code == 1
    assert run_cli("index", "rebuild", bookie, "--metadata", dump, "--yes").exit_code == 7


def test_what_has_the_name_of_a_cookie_is_a_damaged_one(run_cli: Run, bookie: Path) -> None:
    (bookie / "ledgers/current/VERSION").write_text("This is a note for the operator.\n")
    assert run_cli("cookie", "get", bookie / "ledgers/current/VERSION").exit_code == 1
