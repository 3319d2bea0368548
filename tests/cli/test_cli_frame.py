"""The frame of the command line: help, nouns, errors and exit codes, completion."""

from __future__ import annotations

import contextlib
import inspect
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from bkctl import __version__, errors
from bkctl.commands.frame.nouns import EXIT_CODES, FIRST_LINES, NOUNS, Noun, top_level_help
from bkctl.commands.frame.options import EntryOption, LogOption, OutputOption, PathsArgument, noun_app
from bkctl.commands.frame.root import describe, load

BKCTL = [sys.executable, "-m", "bkctl"]

KINDS: dict[str, Callable[[], BaseException]] = {
    "usage": lambda: errors.UsageError("give a PATH"),
    "corruption": lambda: errors.CorruptionError("record size", offset=1024, path="0.log"),
    "partial": lambda: errors.PartialError("two of three"),
    "refused": lambda: errors.RefusedError("a bookie holds it"),
    "connection": lambda: errors.ConnectionFailedError("no answer"),
    "missing": lambda: errors.NotFoundError("no ledger 7"),
    "storage": lambda: errors.StorageError("x: Input/output error"),
    "permission": lambda: PermissionError(13, "Permission denied", "0.log"),
    "bug": lambda: KeyError("boom"),
    "interrupt": KeyboardInterrupt,
    "pipe": lambda: BrokenPipeError(32, "Broken pipe"),
    "findings": lambda: typer.Exit(1),
}

CODES = {
    "usage": 2, "corruption": 1, "partial": 3, "refused": 4, "connection": 5, "missing": 6, "storage": 7,
    "permission": 7, "bug": 7, "interrupt": 130, "pipe": 141, "findings": 1,
}  # fmt: skip


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A noun ``probe`` whose verbs fail, or show what their options became."""
    app = noun_app("Probe.")

    @app.command()
    def fail(kind: str) -> None:
        raise KINDS[kind]()

    @app.command()
    def mend(kind: str) -> None:
        """[offline] [writes] Mend a thing."""
        raise KINDS[kind]()

    @app.command()
    def options(
        paths: PathsArgument, log: LogOption = None, entry: EntryOption = None, output: OutputOption = None,
        flag: Annotated[bool, typer.Option("--flag")] = False, number: int = 3,
    ) -> None:  # fmt: skip
        typer.echo(repr((paths, log, entry and tuple(entry), output and output.value, flag, number)))

    module: Any = types.ModuleType("tests_probe_noun")
    module.app = app
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(NOUNS, "probe", Noun("probe", module.__name__, "[offline] [reads]", "Probe."))


def test_a_command_that_writes_and_meets_damage_has_failed(probe: None, run_cli: Any) -> None:
    """With 1 it would say that it has done what it was asked to: a plan of repairs would go on behind it."""
    assert run_cli("probe", "mend", "corruption").exit_code == 7
    assert run_cli("probe", "mend", "findings").exit_code == 1
    assert run_cli("probe", "mend", "refused").exit_code == 4


@pytest.mark.parametrize("kind", KINDS)
def test_errors_become_one_line_and_an_exit_code(probe: None, run_cli: Any, kind: str) -> None:
    done = run_cli("probe", "fail", kind)
    assert done.exit_code == CODES[kind]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if kind in ("pipe", "findings"):
        assert done.stderr == ""
    elif kind == "interrupt":
        assert done.stderr == "bkctl: interrupted\n"
    else:
        assert done.stderr.startswith("bkctl: error: ")
        assert done.stderr.count("\n") == 1


def test_messages_name_file_offset_and_next_step(probe: None, run_cli: Any) -> None:
    assert "0.log: record size at offset 1024" in run_cli("probe", "fail", "corruption").stderr
    assert "0.log: Permission denied" in run_cli("probe", "fail", "permission").stderr
    assert "KeyError: 'boom'" in run_cli("probe", "fail", "bug").stderr
    assert "--debug" in run_cli("probe", "fail", "bug").stderr


@pytest.mark.parametrize("line", [["--debug", "probe", "fail", "bug"], ["probe", "fail", "bug", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(probe: None, run_cli: Any, line: list[str]) -> None:
    done = run_cli(*line)
    assert done.exit_code == 7
    assert "Traceback" in done.stderr
    assert "bkctl: error: unexpected KeyError" in done.stderr


def test_debug_after_two_dashes_is_an_argument(probe: None, run_cli: Any) -> None:
    assert run_cli("probe", "options", "--", "--debug").stdout.startswith("(['--debug'], ")


def test_every_error_class_ends_with_a_documented_code() -> None:
    documented = {code for code, _ in EXIT_CODES}
    classes = [errors.BkctlError, *errors.BkctlError.__subclasses__()]
    assert {kind.exit_code for kind in classes} <= documented
    assert set(CODES.values()) <= documented


def test_option_values_are_converted(probe: None, run_cli: Any) -> None:
    words = ["a", "b", "--log", "1c.log", "--entry", "3-5", "-o", "csv", "--flag", "--number", "7"]
    assert run_cli("probe", "options", *words).stdout == "(['a', 'b'], 28, (3, 5), 'csv', True, 7)\n"
    assert run_cli("probe", "options", "a").stdout == "(['a'], None, None, None, False, 3)\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["probe"], "Usage: bkctl probe"),
        (["probe", "options"], "name a PATH"),
        (["probe", "options", "a", "-o", "xml"], "'xml' is not one of table, json, ndjson, csv"),
        (["probe", "options", "a", "--log", "zz"], "'zz' is none of 28, 0x1c, 1c.log"),
        (["probe", "options", "a", "--entry", "5-3"], "ends before it begins"),
        (["probe", "options", "a", "--number", "x"], "not a whole number"),
        (["probe", "nonsense"], "no such command 'nonsense'"),
        (["nonsense"], "no such command 'nonsense'"),
        (["versoin"], "Did you mean 'version'?"),
        (["--nonsense"], "no such option: --nonsense"),
        ([], "Usage: bkctl"),
        (["--show-completion", "tcsh"], "'tcsh' is not one of bash, zsh, fish"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(
    probe: None, run_cli: Any, words: list[str], reason: str
) -> None:
    done = run_cli(*words)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version(run_cli: Any) -> None:
    assert run_cli("--version") == (0, f"bkctl {__version__}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_is_the_same_with_and_without_typer(run_cli: Any, words: list[str]) -> None:
    at_once = subprocess.run([*BKCTL, *words], capture_output=True, text=True, check=True)
    through_typer = run_cli(*words)
    assert through_typer.exit_code == 0
    assert at_once.stdout == through_typer.stdout == top_level_help() + "\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_help_fits_into_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    whole = top_level_help()
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    fitted = top_level_help()
    assert fitted.split() == whole.split(), "it is broken at blanks, and nothing is lost"
    assert [line for line in fitted.splitlines() if len(line) > columns] == []


def test_help_says_what_it_is_not_and_how_it_ends() -> None:
    text = top_level_help()
    assert "not the bkctl that Apache BookKeeper ships" in text
    assert all(f"  {code} " in text for code, _ in EXIT_CODES)
    assert all(len(line) <= 100 for line in text.splitlines())


def test_every_line_to_begin_with_is_of_a_command_with_such_options(run_cli: Any) -> None:
    lines = [line for _, both in FIRST_LINES for line in re.findall(r"bkctl [^,]+", both)]
    assert len(lines) >= len(FIRST_LINES)
    for line in lines:
        _, noun, *rest = line.split()
        words = [noun, rest[0]] if NOUNS[noun].verbs else [noun]
        page = run_cli(*words, "--help").stdout
        assert page.startswith(f"Usage: bkctl {' '.join(words)} "), line
        unknown = [word for word in rest if word.startswith("--") and f" {word} " not in page]
        assert unknown == [], line


@pytest.mark.parametrize("noun", NOUNS)
def test_help_of_a_noun_and_its_verbs(run_cli: Any, noun: str) -> None:
    done = run_cli("help", noun)
    assert done.exit_code == 0
    assert done.stdout == run_cli(noun, "--help").stdout
    assert "[reads]" in done.stdout or "[writes]" in done.stdout


@pytest.mark.parametrize("columns", ["40", "80"])
def test_an_example_can_be_copied_out_of_a_help_page(
    run_cli: Any, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """A line that goes on ends with a backslash; no option and no quoted text is torn in two."""
    monkeypatch.setenv("COLUMNS", columns)
    for words, verb in _verbs():
        shown = run_cli(*words, "--help").stdout.partition("Examples:\n")[2]
        shown = re.split(r"\n\n(?=[A-Z])", shown)[0]
        copied = [shlex.split(each) for each in shown.replace("\\\n", "").split("\n\n") if each.strip()]
        written = inspect.cleandoc(verb.help).partition("Examples:")[2].strip()
        assert copied == [shlex.split(each) for each in written.split("\n\n")], words


def _verbs() -> Iterator[tuple[list[str], Any]]:
    for noun in NOUNS.values():
        command: Any = load(noun)
        if not noun.verbs:
            yield [noun.name], command
        for name, verb in getattr(command, "commands", {}).items():
            yield [noun.name, name], verb


def test_options_in_help_are_not_torn_at_their_hyphens(run_cli: Any) -> None:
    for words, _ in _verbs():
        torn = [line for line in run_cli(*words, "--help").stdout.splitlines() if re.search(r"\w-$", line)]
        assert not torn, words


def test_the_page_of_a_noun_opens_with_the_class_that_the_top_level_help_shows() -> None:
    for noun in NOUNS.values():
        opening = load(noun).help or ""
        assert opening.startswith(f"{noun.safety} "), noun.name
        assert not opening.removeprefix(f"{noun.safety} ").startswith("["), noun.name


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("autorecovery", "a change counts for all of the cluster."),
        ("context", "With '-c none' a line runs in no context."),
        ("maintenance", "Java's tools do not."),
        ("repair", "No bookie reads it."),
    ],
)
def test_the_page_of_a_noun_shows_all_of_its_text(run_cli: Any, noun: str, said: str) -> None:
    shown = " ".join(run_cli(noun, "--help").stdout.partition("Options:")[0].split())
    assert shown.endswith(said)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_shown(run_cli: Any, shell: str) -> None:
    named = run_cli("--show-completion", shell)
    assert named.exit_code == 0
    assert "_BKCTL_COMPLETE" in named.stdout
    assert run_cli("--show-completion", env={"SHELL": f"/bin/{shell}"}) == named


def test_completion_offers_nouns_and_verbs() -> None:
    assert complete("bkctl ver") == ["version"]
    assert set(complete("bkctl ")) >= set(NOUNS)
    assert complete("bkctl version --sch") == ["--schema"]


def test_completion_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ./bkctl-data a command without a PATH is refused, but not before it is whole."""
    monkeypatch.chdir(tmp_path)
    assert complete("bkctl entrylog scan --lim") == ["--limit"]
    assert set(complete("bkctl entrylog scan -o ")) == {"table", "wide", "json", "ndjson", "csv"}
    assert "--journal" in complete("bkctl lastmark set --jou")


def complete(line: str) -> list[str]:
    """What bash would offer at the end of the line."""
    words = line.split(" ")
    variables = {"_BKCTL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(BKCTL, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_completion_is_installed_for_a_named_shell(run_cli: Any, tmp_path: Path) -> None:
    done = run_cli("--install-completion", "fish", env={"HOME": str(tmp_path)})
    assert done.exit_code == 0
    assert "_BKCTL_COMPLETE" in (tmp_path / ".config/fish/completions/bkctl.fish").read_text()


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    script = f"set -o pipefail; '{sys.executable}' -m bkctl --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout in ("0\n", "141\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("line", ["--help", "--version", "help", "version", "explain", "ledger --help"])
def test_output_that_cannot_be_written_is_one_line_and_7(line: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*BKCTL, *line.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (7, "bkctl: error: the output: No space left on device\n")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_stream_that_came_closed_is_like_dev_null(closed: str) -> None:
    """No traceback, and no file of the command's gets the number of a standard stream."""
    for line in ("--version", "explain -101 -o table", "lastmark show /no/such/place"):
        script = f"'{sys.executable}' -m bkctl {line} {closed}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == (6 if "lastmark" in line else 0), done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert ("1>&-" in closed or "lastmark" in line) == (done.stdout == "")
        assert ("2>&-" in closed or "lastmark" not in line) == (done.stderr == "")


@pytest.mark.parametrize("how", ["ctrl-c", "ctrl-d", "no"])
def test_a_question_that_is_not_agreed_to_changes_nothing(how: str) -> None:
    """Ctrl-C ends with 130 here too: 1 would say that it was done, and something found."""
    ours, theirs = pty.openpty()
    words = ["gc", "run", "--url", "http://127.0.0.1:1"]
    with subprocess.Popen([*BKCTL, *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as asked:
        os.close(theirs)
        seen = b""
        try:
            while b"[y/N]" not in seen:
                seen += os.read(ours, 4096)
            if how == "ctrl-c":
                asked.send_signal(signal.SIGINT)
            else:
                os.write(ours, b"\x04" if how == "ctrl-d" else b"n\n")
            with contextlib.suppress(OSError):  # the end of a terminal is an error
                while more := os.read(ours, 4096):
                    seen += more
            assert asked.wait(30) == (4 if how == "no" else 130)
        finally:
            asked.kill()
            os.close(ours)
    last = seen.decode().splitlines()[-1]
    assert last == ("bkctl: error: nothing was changed" if how == "no" else "bkctl: interrupted")


#: Ctrl-C whose signal interrupts no system call of the main thread, as when it arrives just before the call
#: that reads: another thread gets it here, because that moment cannot be met from outside.
INTERRUPTED_BESIDE_THE_READ = """
import os, signal, sys, threading
from bkctl.commands.frame.confirmation import ask

def interrupt():
    os.read(int(sys.argv[1]), 1)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    ask("change 3 rows", yes=False)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_is_not_lost_when_it_comes_before_the_read() -> None:
    ours, theirs = pty.openpty()
    go, send = os.pipe()
    words = [sys.executable, "-c", INTERRUPTED_BESIDE_THE_READ, str(go)]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, pass_fds=[go]) as asked:
        os.close(theirs)
        os.close(go)
        try:
            seen = b""
            while b"[y/N]" not in seen:
                seen += os.read(ours, 4096)
            until_asleep(asked.pid)
            os.write(send, b"!")
            assert asked.wait(20) == 130
        finally:
            asked.kill()
            os.close(ours)
            os.close(send)


def until_asleep(pid: int) -> None:
    """Wait until the main thread of a process has waited for something half a second long."""
    asleep = 0
    for _ in range(2000):
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        if asleep == 25:
            return
        time.sleep(0.02)
    raise AssertionError("the main thread never waits")


def test_an_answer_may_come_in_pieces_and_a_wrong_one_is_asked_for_again() -> None:
    ours, theirs = pty.openpty()
    words = [
        sys.executable,
        "-c",
        "from bkctl.commands.frame.confirmation import ask; ask('go', yes=False); print('gone')",
    ]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as asked:
        os.close(theirs)
        seen = b""
        try:
            for answer, end in ((b"maybe\n", b"[y/N]"), (b"Y\x04es \n", b"invalid input\r\nGo? [y/N]")):
                while end not in seen:
                    seen += os.read(ours, 4096)
                os.write(ours, answer)
            assert asked.wait(20) == 0
            assert asked.stdout is not None
            assert asked.stdout.read() == b"gone\n"
        finally:
            asked.kill()
            os.close(ours)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_what_the_system_does_not_give_is_no_bug(error: Exception) -> None:
    line = describe(error)
    assert "a bug" not in line
    assert line.startswith("error: the system gives no more memory or threads")
    assert "ulimit -v" in line
    assert "a bug" in describe(RuntimeError("dictionary changed size during iteration"))
