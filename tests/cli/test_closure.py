"""Closure: the next step of every kind of finding ends it, or says why not, and costs no reader anything.

A kind that is new fails here until it has a case.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.cookies.cookie_steps import INSTEAD
from bkctl.admin.doctor.finding import Kind as DoctorKind
from bkctl.admin.doctor.live import LIVE_CHECKS, run_live_checks
from bkctl.admin.index.check.finding import Kind as IndexKind
from bkctl.codec.cookie import Cookie
from bkctl.scan.damage import Verdict
from tests.support.closure import Bench, Case, close
from tests.support.closure_of_doctor import DOCTOR, PLACED, renamed
from tests.support.closure_of_files import COOKIE_DIFF, VERDICTS_OF_JOURNALS, VERDICTS_OF_LOGS
from tests.support.closure_of_index_check import INDEX_CHECK
from tests.support.closure_of_live_bookie import LIVE

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]
#: An entry log has no tail that was never synced: what was not flushed is in the journal.
_NEVER_OF_LOGS = {Verdict.CLEAN, Verdict.UNSYNCED_TAIL}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, monkeypatch)


def kinds(cases: Sequence[Case]) -> set[str]:
    return {case.kind for case in cases}


def each(cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.kind for case in cases])


def kind(row: dict[str, Any]) -> str:
    return str(row["kind"])


def verdict(row: dict[str, Any]) -> str:
    return str(row["verdict"])


def field(row: dict[str, Any]) -> str:
    return f"cookie in {row['source']}" if row["field"] == "cookie" else str(row["field"])


def test_every_kind_has_a_case() -> None:
    apart = {DoctorKind.VANISHED_DIRECTORY.value}  # test_a_folder_that_vanishes_is_a_finding
    assert kinds(DOCTOR) | {found.value for found in LIVE} | apart == {found.value for found in DoctorKind}
    assert kinds(INDEX_CHECK) | kinds(PLACED) == {found.value for found in IndexKind}
    assert kinds(VERDICTS_OF_LOGS) == {found.value for found in Verdict if found not in _NEVER_OF_LOGS}
    assert kinds(VERDICTS_OF_JOURNALS) == {found.value for found in Verdict if found is not Verdict.CLEAN}
    fields = {found.name for found in dataclasses.fields(Cookie)}
    assert set(INSTEAD) == fields
    assert kinds(COOKIE_DIFF) == fields | {"cookie in file", "cookie in znode"}


@each((*DOCTOR, *PLACED))
def test_findings_of_the_doctor(run_cli: Run, bench: Bench, case: Case) -> None:
    close(run_cli, ("doctor",), kind, case, bench)


@each(INDEX_CHECK)
def test_findings_of_index_check(run_cli: Run, bench: Bench, case: Case) -> None:
    close(run_cli, ("index", "check"), kind, case, bench)


@each(VERDICTS_OF_LOGS)
def test_verdicts_of_entry_logs(run_cli: Run, bench: Bench, case: Case) -> None:
    close(run_cli, ("entrylog", "verify"), verdict, case, bench)


@each(VERDICTS_OF_JOURNALS)
def test_verdicts_of_journals(run_cli: Run, bench: Bench, case: Case) -> None:
    close(run_cli, ("journal", "verify"), verdict, case, bench)


@each(COOKIE_DIFF)
def test_differences_of_cookies(run_cli: Run, bench: Bench, case: Case) -> None:
    close(run_cli, ("cookie", "diff"), field, case, bench)


@pytest.mark.parametrize("trouble", LIVE)
def test_findings_of_a_live_bookie(run_cli: Run, trouble: DoctorKind) -> None:
    """What a bookie does by itself needs no command, and a count stays until it is started again."""
    found = list(run_live_checks(LIVE[trouble], frozenset(check.name for check in LIVE_CHECKS)))
    steps = [finding.next for finding in found if finding.kind == trouble]
    assert steps, found
    for step in steps:
        assert step.commands or step.instead
        assert step.line is not None
        assert run_cli(*shlex.split(step.line)[1:], "--help").exit_code == 0
    ended = trouble is DoctorKind.SUSPENDED_COMPACTION
    assert all(bool(step.commands) == ended for step in steps)


def test_the_commands_that_rename_a_bookie_are_taken_in_their_order(run_cli: Run, bench: Bench) -> None:
    """They are told and not offered to scripts: no client finds the ledgers under another id."""
    renamed(bench)
    words = ("doctor", "--conf", bench.bookie.conf, "-o", "json", "--only", "cookies")
    (row,) = json_rows(run_cli(*words).stdout)
    assert (row["kind"], row["commands"]) == ("renamed_bookie", [])
    commands = row["instead"].partition(" nevertheless: ")[2].partition("; then start it")[0]
    flow = commands.split(" && ")
    assert [line.split()[2] for line in flow] == ["generate", "update", "create", "delete"]
    for line in flow:
        more = [] if "generate" in line else ["--yes"]
        result = run_cli(*shlex.split(line)[1:], *more)
        assert result.exit_code == 0, (line, result.stderr)
    assert json_rows(run_cli(*words).stdout) == []


def test_a_folder_that_vanishes_is_a_finding(
    run_cli: Run, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else works in the folder that is examined; the bookie in it is examined all the same."""
    from bkctl.vfs import PosixFileSystem

    work = bench.bookie.root / "work"
    work.mkdir()
    names = PosixFileSystem.names

    def vanishing(self: PosixFileSystem, path: str) -> list[str]:
        if Path(path) == work and work.exists():
            work.rmdir()
        return names(self, path)

    monkeypatch.setattr(PosixFileSystem, "names", vanishing)
    result = run_cli("doctor", bench.root, "--skip", "journals,entry_logs,index", "-o", "json")
    (row,) = json_rows(result.stdout)
    assert (result.exit_code, row["kind"], row["dir"]) == (1, "vanished_directory", str(work))
    assert row["instead"].startswith("nothing to do where somebody has removed it")


def json_rows(text: str) -> list[dict[str, Any]]:
    rows = json.loads(text)
    assert isinstance(rows, list)
    return rows
