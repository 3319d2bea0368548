"""``bkctl pipeline`` as people type it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.jobs.index_rebuild import REBUILD
from bkctl.pipeline.out_directory import claimed
from bkctl.scan.metadata_dump import DumpKind
from tests.support import cluster_dumps
from tests.support.cluster_dumps import marked_copy
from tests.support.manifest import index_rows

DEMO = Path(__file__).parents[1] / "data" / "demo"

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def demo() -> Path:
    assert DEMO.is_dir()
    return DEMO


def test_the_list_names_every_job_and_what_it_needs(run_cli: Run) -> None:
    result = run_cli("pipeline", "list", "-o", "json")
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert result.exit_code == 0
    assert list(rows) == [*JOBS, "index-rebuild"]
    assert rows["replication-audit"]["metadata"] == "needed"
    assert rows["replication-audit"]["options"] == ["complete", "bookies_gone"]
    assert "missing" in rows["replication-audit"]["writes"]
    assert rows["garbage"]["options"] == ["threshold", "budget"]


def test_every_job_that_finds_something_says_how_to_go_on(run_cli: Run) -> None:
    """With commands and jobs that there are."""
    for job in (*JOBS.values(), REBUILD):
        assert bool(job.found) == bool(job.advice), job.name
        commands = re.findall(r"'bkctl ((?:[a-z]+ ?)+)", job.advice)
        jobs = re.findall(r"\bjob ([a-z-]+)", job.advice)
        assert commands or jobs or not job.found
        assert set(jobs) <= {*JOBS, "index-rebuild"}
        for command in commands:
            told = run_cli(*command.split(), "--help")
            assert told.exit_code == 0
            assert f"bkctl {command.strip()} [OPTIONS]" in told.stdout


def test_a_run_writes_tables_and_a_summary_and_says_the_same(
    run_cli: Run, demo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = run_cli("pipeline", "run", "inventory", demo, "--out", out, "--jobs", "1", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    told, kept = json.loads(result.stdout), json.loads((out / "summary.json").read_text())
    assert told == kept
    assert told["counts"]["entries"] > 0
    for table in told["tables"]:
        assert list(Path(table["path"]).glob("*.parquet"))
    assert not (out / ".work").exists()
    again = run_cli("pipeline", "run", "inventory", demo, "--out", out, "--jobs", "1", "-o", "json")
    assert json.loads(again.stdout)["counts"] == told["counts"]


def test_tables_of_one_run_are_what_the_next_reads(run_cli: Run, demo: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    run_cli("pipeline", "run", "inventory", demo, "--out", tables, "--jobs", "1")
    dump = tmp_path / "zk.json"
    dump.write_text('{"/ledgers": {"data": "", "version": 0, "ephemeral": false}}')
    for job in ("orphans", "garbage", "replication-audit"):
        direct = run_cli(
            "pipeline", "run", job, demo, "--metadata", dump, "--out", tmp_path / "a", "-o", "json"
        )
        by_tables = run_cli(
            "pipeline", "run", job, tables, "--metadata", dump, "--out", tmp_path / "b", "-o", "json"
        )
        assert json.loads(direct.stdout)["counts"] == json.loads(by_tables.stdout)["counts"]
        assert direct.exit_code == by_tables.exit_code
    lacking = run_cli("pipeline", "run", "verify", tables, "--out", tmp_path / "c")
    assert lacking.exit_code == 6
    assert "not table verification" in lacking.stderr


def test_a_table_for_people_shows_counts_in_words_and_what_was_found(
    run_cli: Run, demo: Path, tmp_path: Path
) -> None:
    result = run_cli("pipeline", "run", "verify", demo, "--out", tmp_path / "o", "-o", "table")
    assert "verdict" in result.stdout
    assert "digest fails" in result.stdout
    assert "note: digest types that no metadata tell" in result.stderr


class _Page(HTMLParser):
    """Checks that elements are closed in order, and collects what they are."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "job", ["inventory", "verify", "index-audit", "journal-forensics", "replica-compare"]
)
def test_the_report_is_one_page_that_needs_nothing_else(
    run_cli: Run, demo: Path, tmp_path: Path, job: str
) -> None:
    report = tmp_path / "pages" / "report.html"
    run_cli("pipeline", "run", job, demo, "--out", tmp_path / "o", "--report", report)
    page = _Page()
    page.feed(report.read_text())
    page.close()
    assert page.open == []
    assert page.links
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links), "within the page"
    assert page.elements.count("script") == 1, "with its text in it"
    empty = report.read_text().count("Nothing to draw: ")
    assert page.elements.count("svg") + empty == len(JOBS[job].plots)
    for column in JOBS[job].result("summary").columns:
        assert f"<td>{column.name}</td>" in report.read_text()


def refused(run_cli: Run, *arguments: object) -> tuple[int, str]:
    result = run_cli("pipeline", "run", *arguments)
    assert result.stdout == ""
    return result.exit_code, result.stderr


def test_wrong_calls_are_refused_with_a_reason(run_cli: Run, demo: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "o")
    code, text = refused(run_cli, "replication-audit", demo, *out)
    assert (code, "give --metadata" in text) == (2, True)
    code, text = refused(run_cli, "audit", demo, *out)
    assert (code, "no job 'audit'" in text) == (2, True)
    code, text = refused(run_cli, "inventory", tmp_path / "nowhere", *out)
    assert (code, "no such file" in text) == (6, True)
    code, text = refused(run_cli, "inventory", demo, *out, "--threshold", "0.5")
    assert (code, "does not heed --threshold" in text) == (2, True)
    code, text = refused(run_cli, "garbage", demo, *out, "--threshold", "7")
    assert (code, "above 0 and at most 1" in text) == (2, True)
    code, text = refused(run_cli, "inventory", demo, *out, "--master", "local", "--engine", "local")
    assert (code, "--master is Spark's" in text) == (2, True)
    code, text = refused(run_cli, "verify", demo, *out, "--digest", "md5")
    assert (code, "digest" in text) == (2, True)
    code, text = refused(run_cli, "inventory", demo, *out, "--report", tmp_path)
    assert (code, "name a file for the page" in text) == (2, True)
    (tmp_path / "file").touch()
    code, text = refused(run_cli, "inventory", demo, *out, "--report", tmp_path / "file" / "r.html")
    assert (code, "file: File exists" in text) == (2, True)
    code, text = refused(run_cli, "inventory", demo, "--out", tmp_path / "file")
    assert (code, "file: is a file; name a directory" in text) == (2, True)
    code, text = refused(run_cli, "replication-audit", demo, *out, "--metadata", "x", "--bookies-gone", "a'b")
    assert (code, "no id of a bookie" in text) == (2, True)
    assert not (tmp_path / "o").exists()


def test_a_directory_of_somebody_else_is_not_written_to(run_cli: Run, demo: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.txt").write_text("keep")
    code, text = refused(run_cli, "inventory", demo, "--out", tmp_path)
    assert (code, "no run wrote" in text) == (4, True)
    assert (tmp_path / "runs" / "mine.txt").read_text() == "keep"


def test_an_unfinished_run_is_no_table_set_but_may_be_run_again(
    run_cli: Run, demo: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    with claimed(str(half)):
        pass
    code, text = refused(run_cli, "inventory", half, "--out", tmp_path / "o")
    assert (code, "did not finish" in text) == (6, True)
    assert run_cli("pipeline", "run", "inventory", demo, "--out", half).exit_code == 0


def test_a_flipped_byte_ends_with_code_1_and_is_named(run_cli: Run, demo: Path, tmp_path: Path) -> None:
    bookie = tmp_path / "bookie1"
    shutil.copytree(demo / "bookie1", bookie)
    current = bookie / "ledgers" / "current"
    manifest = json.loads((demo / "manifest.json").read_text())
    ledger, entry, log_id, offset = next(
        row
        for row in index_rows(current)
        if manifest["ledgers"][str(row[0])]["digest"].lower() != "dummy"
        and manifest["ledgers"][str(row[0])]["entries"][str(row[1])][0] > 60
    )
    with (current / f"{log_id:x}.log").open("r+b") as file:
        file.seek(offset + 70)
        byte = file.read(1)
        file.seek(offset + 70)
        file.write(bytes([byte[0] ^ 4]))
    command = ("pipeline", "run", "verify", bookie, "--metadata", demo / "zk.json", "--out", tmp_path / "o")
    told = run_cli(*command, "-o", "json")
    assert told.exit_code == 1
    row = json.loads(told.stdout)
    assert (row["verdict"], row["found"], row["counts"]["bad_entries"]) == ("found", ["bad_entries"], 1)
    report = tmp_path / "pages" / "report.html"
    people = run_cli(*command, "-o", "table", "--report", report)
    shown = people.stdout
    page = report.read_text()
    assert "Found: bad entries. Exit code 1." in page
    assert re.search(r">1 of [\d,]+ entries fails its digest\.<", page)
    assert f"<p>Next: {escape(JOBS['verify'].advice)}.</p>" in page
    assert "bad_entries: entries whose digest fails (1)" in shown
    assert f"bkctl: next: {JOBS['verify'].advice}" in people.stderr
    assert re.search(rf"  {ledger}  +{entry}  ", shown), (
        "the row of the entry, before its size and its reason"
    )


def test_rebuilding_indexes_asks_and_then_gives_the_same_rows(
    run_cli: Run, demo: Path, tmp_path: Path
) -> None:
    bookies = [tmp_path / name for name in ("one", "two")]
    for bookie in bookies:
        shutil.copytree(demo, bookie)
    currents = [path.parent for bookie in bookies for path in sorted(bookie.rglob("locations"))]
    assert len(currents) >= 2
    before = [list(index_rows(current)) for current in currents]
    dump = marked_copy(demo / "zk.json", tmp_path / "zk.json")
    command = ("pipeline", "run", "index-rebuild", *bookies, "--out", tmp_path / "o", "--jobs", "1")
    command += ("--metadata", dump)
    unasked = run_cli(*command)
    assert (unasked.exit_code, "add --yes" in unasked.stderr) == (4, True)
    done = run_cli(*command, "--yes", "-o", "json")
    told = json.loads(done.stdout)
    assert done.exit_code == told["exit_code"] == 0
    assert told["counts"]["indexes"] == len(currents)
    assert told["counts"]["rows"] == sum(map(len, before))
    assert [list(index_rows(current)) for current in currents] == before
    (table,) = told["tables"]
    assert (table["name"], table["rows"]) == ("rebuilt_indexes", len(currents))
    shown = run_cli(*command, "--dry-run", "-o", "table").stdout
    assert "locations in them" in shown
    assert f"rebuilt_indexes: indexes that were rebuilt ({len(currents)})" in shown
    assert all(str(current) in shown for current in currents)


def test_a_rebuild_of_many_bookies_leaves_out_no_ledger_without_proof(
    run_cli: Run, demo: Path, tmp_path: Path
) -> None:
    """The demo's dump is of an older tool, without an end marker; an undo file is no dump at all."""
    bookie = Path(shutil.copytree(demo / "bookie1", tmp_path / "bookie"))
    (current,) = (path.parent for path in bookie.rglob("locations"))
    before = list(index_rows(current))
    shutil.rmtree(current / "ledgers")
    command = ("pipeline", "run", "index-rebuild", bookie, "--jobs", "1", "--yes")
    kept = run_cli(*command, "--out", tmp_path / "o", "--metadata", demo / "zk.json", "-o", "json")
    assert (kept.exit_code, json.loads(kept.stdout)["counts"]["alarming"]) == (1, 1)
    assert "no end marker" in kept.stderr
    assert set(before) <= set(index_rows(current))
    undo = cluster_dumps.dump_file(tmp_path / "undo.json", {}, kind=DumpKind.UNDO, next_ledger=0)
    refused = run_cli(*command, "--out", tmp_path / "p", "--metadata", undo)
    assert refused.exit_code == 4
    assert f"{undo}: is an undo file" in refused.stderr


def test_the_help_names_the_jobs_that_read_an_inventory(run_cli: Run) -> None:
    """Those whose tables an inventory writes, and no others."""
    written = {item.name for item in JOBS["inventory"].inputs if item.wanted_by is None}
    reading = {
        name
        for name, job in JOBS.items()
        if name != "inventory"
        and all(item.name in written or item.may_lack or item.snapshot for item in job.inputs)
    }
    text = " ".join(run_cli("pipeline", "run", "--help").stdout.split())
    named = text.partition(" also take the --out of an 'inventory' as PATH.")[0].rpartition(". ")[2]
    assert set(named.replace(" and ", ", ").split(", ")) == reading
