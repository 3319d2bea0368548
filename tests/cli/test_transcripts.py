"""``tests/transcripts``: command lines, their output and their exit codes, compared to the letter.

``pytest tests/cli/test_transcripts.py --rewrite`` writes what the commands say now; review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.transcript import TRANSCRIPTS, Case, parse, play

Run = Callable[..., Any]

FILES = sorted(TRANSCRIPTS.glob("*.txt"))
CASES = [
    pytest.param(path, number, id=f"{path.stem}: {case.title}")
    for path in FILES
    for number, case in enumerate(parse(path.read_text()))
]


@pytest.mark.parametrize(("path", "number"), CASES)
def test_a_command_says_what_it_said(
    run_cli: Run, path: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    cases = parse(path.read_text())
    played = play(cases[number], tmp_path, run_cli)
    if request.config.getoption("--rewrite") and played != cases[number]:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "--rewrite goes without -n"
        cases[number] = played
        path.write_text("\n".join(case.text() for case in cases))
        return
    assert played.text() == cases[number].text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_stands_as_a_rewrite_would_leave_it(path: Path) -> None:
    cases = parse(path.read_text())
    assert "\n".join(case.text() for case in cases) == path.read_text()
    titles = [case.title for case in cases]
    assert len(set(titles)) == len(titles)
    assert all(case.steps for case in cases)


def of(text: str, folder: Path, run: Run) -> Case:
    (case,) = parse(text)
    return play(case, folder, run)


def test_another_output_or_exit_code_is_seen(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "## A case\n\n# A remark.\n$ echo one; echo two >&2; exit 3\none\n! two\n[3]\n"
    assert of(text, tmp_path, run_cli).text() == text
    for changed in (
        text.replace("one\n! ", "one \n! "),
        text.replace("! two", "! too"),
        text.replace("[3]\n", ""),
    ):
        (tmp_path / "data").unlink()
        assert of(changed, tmp_path, run_cli).text() == text != changed


def test_bkctl_runs_here_with_its_variables_and_through_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BKCTL_LEDGER_PASSWORD", "of the machine")
    seen: list[tuple[tuple[str, ...], str | None]] = []

    class Done:
        exit_code, stdout, stderr = 4, f"{tmp_path}/a\nb\n", ""

    def run(*words: str, env: dict[str, str | None]) -> Done:
        seen.append((words, env["BKCTL_LEDGER_PASSWORD"]))
        return Done()

    played = of("## A\n$ BKCTL_LEDGER_PASSWORD='x y' bkctl a 'b c' | head -1\n$ bkctl d\n", tmp_path, run)
    assert seen == [(("a", "b c"), "x y"), (("d",), None)]
    assert [step.output for step in played.steps] == [["$PWD/a", "[4]"], ["$PWD/a", "b", "[4]"]]


@pytest.mark.parametrize(
    "text", ["$ true\n", "words\n", "## A\nwords\n", "## A\n$ true\n# A remark.\nwords\n"]
)
def test_a_line_that_belongs_to_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="belongs to no command"):
        parse(text)
