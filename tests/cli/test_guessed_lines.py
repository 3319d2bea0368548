"""Lines as somebody types them who has not read the help: the answer says what to type instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[1] / "data" / "demo"

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("entrylog scan 0", "--log 0"),
        ("entrylog verify 0x1c.log", "--log 0x1c.log"),
        ("journal scan 1a1fe14808f", "--journal 1a1fe14808f"),
        ("journal verify 1a1fe14808f.txn", "--journal 1a1fe14808f.txn"),
    ],
)
def test_an_id_where_a_path_belongs_is_told_its_option(run_cli: Run, line: str, option: str) -> None:
    done = run_cli(*line.split(), DEMO / "bookie1")
    assert done.exit_code == 6
    assert f"no such file or directory; an id goes behind {option.split()[0]}: {option}\n" in done.stderr


@pytest.mark.parametrize("line", ["ledger list", "ledger show 1", "bookies list", "metadata show"])
def test_a_dump_in_place_of_a_store_is_said_to_be_a_file(run_cli: Run, line: str) -> None:
    done = run_cli(*line.split(), "--metadata", DEMO / "zk.json")
    assert done.exit_code == 2
    assert "zk.json: is a file, and this command asks the metadata store itself" in done.stderr


def test_words_of_a_list_are_taken_in_any_case(run_cli: Run, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/cluster.db"
    assert run_cli("cluster", "init", "--metadata", uri).exit_code == 0
    done = run_cli(
        "ledger", "list", "--state", "open", "--state", "In_Recovery", "--metadata", uri, "-o", "CSV"
    )
    assert (done.exit_code, done.stdout[:13]) == (0, "ledger,state,"), done.stderr


def test_a_bookie_in_place_of_a_plan_is_told_how_to_make_one(run_cli: Run) -> None:
    done = run_cli("repair", "run", DEMO / "bookie1", "--yes")
    assert done.exit_code == 2
    assert f"'bkctl repair plan {DEMO}/bookie1 --out plan.json' writes one" in done.stderr


@pytest.mark.parametrize(
    ("line", "option", "values"),
    [
        ("entrylog scan DIR", "--payload", ", one of none, sha256, hex, base64, text"),
        ("journal verify DIR", "--digest", ", one of auto, off, crc32c, crc32, mac, dummy"),
        ("entrylog scan DIR", "--log", ""),
    ],
)
def test_an_option_without_its_value_names_those_that_there_are(
    run_cli: Run, line: str, option: str, values: str
) -> None:
    done = run_cli(*line.split(), option)
    assert done.exit_code == 2
    assert f"error: option '{option}' requires an argument{values}\n" in done.stderr


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("recover 42", "here it is 'bookies recover' or 'ledger recover'"),
        ("underreplicated", "Did you mean 'autorecovery list'?"),
        ("under-replicated", "Did you mean 'autorecovery list'?"),
        ("decommission bookie-3:3181", "Did you mean 'bookies drain'?"),
        ("ledgers list", "Did you mean 'ledger list'?"),
        ("journal replay", "Did you mean 'lastmark set'?"),
        ("index fix", "Did you mean 'index repair'?"),
    ],
)
def test_a_word_of_the_job_is_answered_with_the_command(run_cli: Run, line: str, meant: str) -> None:
    done = run_cli(*line.split())
    assert done.exit_code == 2
    assert meant in done.stderr


@pytest.mark.parametrize(
    "line", ["stop", "restart", "shutdown", "kill", "help stop", "bookie stop", "bookie restart"]
)
def test_who_looks_for_a_stop_is_told_that_it_is_a_signal(run_cli: Run, line: str) -> None:
    """'top' and 'start' are near to these words, and neither is what is looked for."""
    done = run_cli(*line.split())
    assert done.exit_code == 2
    assert "Ctrl-C or SIGTERM" in done.stderr
    assert "'bkctl maintenance begin'" in done.stderr
    assert "Did you mean" not in done.stderr


@pytest.mark.parametrize("line", ["autorecovery stop", "top stop"])
def test_a_stop_of_something_else_is_not_that_of_a_bookie(run_cli: Run, line: str) -> None:
    done = run_cli(*line.split())
    assert done.exit_code == 2
    assert "maintenance begin" not in done.stderr


def test_help_is_found_behind_the_noun_as_well(run_cli: Run) -> None:
    assert run_cli("ledger", "help").stdout == run_cli("ledger", "--help").stdout
    assert run_cli("ledger", "help", "read").stdout == run_cli("ledger", "read", "--help").stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("entrylog list --limt 3", "no such option: --limt. Did you mean '--limit'?\n"),
        ("cluster info --columns uri", "no such option: --columns\n"),
        ("entrylog list --nothing-like-it", "no such option: --nothing-like-it\n"),
        ("bookie stat", "no such command 'stat'. Did you mean 'start' or 'status'?\n"),
    ],
)
def test_every_word_with_a_slip_is_answered_in_one_form(run_cli: Run, line: str, says: str) -> None:
    done = run_cli(*line.split())
    assert done.exit_code == 2
    assert f"bkctl: error: {says}" in done.stderr


def test_many_places_of_a_verb_are_a_list(run_cli: Run) -> None:
    assert "Did you mean 'entrylog list', 'journal list', " in run_cli("list").stderr


@pytest.mark.parametrize("line", ["bookie status", "bookie gc", "bookie compact --minor"])
def test_without_a_bookie_it_is_asked_which(
    run_cli: Run, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BKCTL_METADATA_URI", raising=False)
    done = run_cli(*line.split())
    assert done.exit_code == 5
    assert done.stderr.startswith("bkctl: error: which bookie? Give --url http://bookie-3:8080")
    assert "there is no ./bkctl-data here" in done.stderr


@pytest.mark.parametrize("text", ["5", "0", "1.5"])
def test_a_duration_without_a_unit_is_said_to_lack_it(run_cli: Run, text: str) -> None:
    done = run_cli("autorecovery", "status", "--watch", text)
    assert done.exit_code == 2
    assert f"'{text}' has no unit (examples: 90s, 15m, 1h, 7d)" in done.stderr


def test_what_a_cluster_does_not_have_is_said_with_the_next_step(run_cli: Run, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/cluster.db"
    assert run_cli("cluster", "init", "--metadata", uri).exit_code == 0
    for line, says in {
        "autorecovery auditor": "error: no auditor is elected: no autorecovery runs in this cluster; "
        "'bkctl autorecovery start' runs one\n",
        "bookies drain bookie-3 --dry-run": "names it; 'bkctl bookies list' shows the ids of bookies\n",
        "ledger repair 1 --bookie bookie-3": "'bkctl bookies list' shows the ids of bookies\n",
    }.items():
        done = run_cli(*line.split(), "--metadata", uri)
        assert (done.exit_code, done.stderr.endswith(says)) == (6, True), done.stderr


def test_who_names_no_cluster_hears_of_contexts(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BKCTL_METADATA_URI", raising=False)
    done = run_cli("ledger", "list")
    assert done.exit_code == 2
    assert "'bkctl context add' names a cluster once" in done.stderr


def test_one_bookie_is_not_bookies(run_cli: Run, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/cluster.db"
    assert run_cli("cluster", "init", "--metadata", uri).exit_code == 0
    done = run_cli("ledger", "create", "-e", "1", "--metadata", uri)
    assert (done.exit_code, "needs 1 writable bookie, 0 can be chosen" in done.stderr) == (5, True), (
        done.stderr
    )


def test_an_index_that_is_elsewhere_is_said_to_be_there(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "0.log").write_bytes((DEMO / "bookie1/ledgers/current/0.log").read_bytes())
    for line in (
        "index scan",
        "index ledgers",
        "index stats",
        "index compact --dry-run",
        "index limbo 1 --yes",
    ):
        done = run_cli(*line.split(), tmp_path)
        assert done.exit_code == 6
        assert "no index in it" in done.stderr
        assert "indexDirectories" in done.stderr, line


def test_an_entry_that_no_index_has_is_looked_for_elsewhere(run_cli: Run) -> None:
    done = run_cli("index", "get", "99", "7", DEMO / "bookie1")
    assert done.exit_code == 6
    assert "'bkctl journal scan PATH --ledger 99' shows" in done.stderr
    assert "'bkctl ledger show 99' names" in done.stderr


def test_the_page_of_bookie_says_how_one_is_stopped(run_cli: Run) -> None:
    assert "SIGTERM stops it" in " ".join(run_cli("bookie", "--help").stdout.split())
