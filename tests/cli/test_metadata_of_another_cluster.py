"""Metadata of another cluster: ids count from 0 in each, so they seem to fit, and must not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.uri import open_metadata_store
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> DoctoredBookie:
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


@pytest.fixture
def other(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> str:
    """A cluster whose ledgers have the ids of the bookie's, and other digests."""
    uri = f"embedded://{tmp_path}/other.db"
    assert run_cli("cluster", "init", "--metadata", uri).exit_code == 0
    with open_metadata_store(bookie.uri) as ours, open_metadata_store(uri) as theirs:
        for ledger, twin in ((0, 2), (1, 3), (2, 0), (3, 1)):
            stored = ours.ledgers.read_ledger(twin)
            assert stored is not None
            theirs.ledgers.create_ledger(ledger, stored.metadata)
    return uri


def test_a_store_of_another_cluster_is_named_and_no_entry_is_called_damaged(
    run_cli: Run, bookie: DoctoredBookie, other: str
) -> None:
    done = run_cli("doctor", bookie.root, "--deep", "--metadata", other, "-o", "ndjson")
    rows = from_ndjson(done.stdout)
    errors = {(row["check"], row["kind"]) for row in rows if row["severity"] in ("error", "warning")}
    assert errors == {("cookies", "different_cookie"), ("cookies", "cookie_not_stored")}, rows


@pytest.mark.parametrize("words", ["doctor", "doctor --deep"])
def test_a_dump_of_another_cluster_is_refused(
    run_cli: Run, bookie: DoctoredBookie, other: str, tmp_path: Path, words: str
) -> None:
    """As by the other commands: its ledgers have these ids, and sound entries would look damaged."""
    dump = tmp_path / "dump.json"
    assert run_cli("metadata", "dump", "--metadata", other, "--out", dump).exit_code == 0
    done = run_cli(*words.split(), bookie.root, "--metadata", dump)
    assert (done.exit_code, done.stdout) == (4, "")
    assert f"{dump}: is of cluster" in done.stderr
    assert "Name the store of this bookie's cluster" in done.stderr


def test_a_refusal_names_the_store_that_a_context_brought_in_and_none_leaves_it_out(
    run_cli: Run, bookie: DoctoredBookie, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BKCTL_METADATA_URI", raising=False)
    assert run_cli("context", "add", "prod", "--metadata", other).exit_code == 0
    done = run_cli("index", "check", bookie.root)
    assert done.exit_code == 4
    assert f"{other}: is of cluster" in done.stderr
    assert "'-c none' ignores the context" in done.stderr
    for words, variables in ((["-c", "none"], {}), ([], {"BKCTL_CONTEXT": "none"})):
        done = run_cli(*words, "index", "check", bookie.root, env=variables)
        assert done.exit_code in (0, 3), done.stderr
        assert "is of cluster" not in done.stderr


def test_no_context_can_be_called_none(run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = run_cli("context", "add", "none", "--metadata", f"embedded://{tmp_path}/other.db")
    assert (done.exit_code, "choose another name" in done.stderr) == (2, True)


@pytest.mark.parametrize("source", ["dump", "store"])
@pytest.mark.parametrize(
    "words",
    [
        "entrylog verify",
        "entrylog scan",
        "journal verify",
        "journal scan",
        "entrylog salvage 0",
        "journal salvage",
    ],
)
def test_commands_over_files_refuse_it_by_the_cookie_beside_the_files(
    run_cli: Run, bookie: DoctoredBookie, other: str, tmp_path: Path, words: str, source: str
) -> None:
    """Sound entries would be called damaged, and a salvage would leave them out."""
    named = other
    if source == "dump":
        named = str(tmp_path / "dump.json")
        assert run_cli("metadata", "dump", "--metadata", other, "--out", named).exit_code == 0
    more = {"entrylog salvage 0": ["--dry-run"], "journal salvage": ["--dry-run", "--in-place"]}
    done = run_cli(*words.split(), bookie.root, "--metadata", named, *more.get(words, []))
    assert (done.exit_code, done.stdout) == (4, ""), done
    assert "is of cluster" in done.stderr
    # A file that was copied away, where no cookie is, is checked as it was asked for.
    copy = tmp_path / "0.log"
    copy.write_bytes(next(bookie.root.rglob("current/0.log")).read_bytes())
    assert run_cli("entrylog", "verify", copy, "--metadata", named).exit_code in (1, 3)
