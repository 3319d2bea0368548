"""Values of shared options, and progress."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.frame import progress as progress_module
from bkctl.commands.frame.options import PasswordOptions, parse_entry_range, parse_journal_id, parse_log_id
from bkctl.commands.frame.progress import progress
from bkctl.errors import NotFoundError, StorageError, UsageError

DEMO = Path(__file__).parents[1] / "data/demo/bookie1"


@pytest.mark.parametrize(
    "text", ["28", "0x1c", "0X1C", "1c.log", "1C.LOG", "some/current/1c.log", "001c.log"]
)
def test_a_log_has_several_spellings(text: str) -> None:
    assert parse_log_id(text) == 28


def test_a_journal_too() -> None:
    assert parse_journal_id("19abc.txn") == parse_journal_id("0x19abc") == parse_journal_id("105148")


@pytest.mark.parametrize(
    "text", ["", "1c", "-1", "0x", ".log", "1c.txn", "1_0", "٣", "2147483648", "0x80000000"]
)
def test_what_is_no_log_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"28, 0x1c|largest id"):
        parse_log_id(text)


def test_entry_ranges() -> None:
    assert parse_entry_range("7") == (7, 7)
    assert parse_entry_range("7-12") == (7, 12)
    for text in ("", "-1", "7-", "7-6", "a", "7-8-9"):
        with pytest.raises(ValueError, match=r"neither|ends before"):
            parse_entry_range(text)


def test_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BKCTL_LEDGER_PASSWORD", raising=False)
    file = tmp_path / "password"
    file.write_bytes(b"from file\n\n")
    file.chmod(0o600)
    assert PasswordOptions(None, None, None).read() is None
    assert PasswordOptions("päss", None, None).read() == "päss".encode()
    assert PasswordOptions("", None, None).read() == b""
    assert PasswordOptions(None, str(file), None).read() == b"from file\n"
    assert PasswordOptions(None, None, "00ff").read() == b"\x00\xff"
    monkeypatch.setenv("BKCTL_LEDGER_PASSWORD", "from environment")
    assert PasswordOptions(None, None, None).read() == b"from environment"
    assert PasswordOptions("x", None, None).read() == b"x"


def test_passwords_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only one of"):
        PasswordOptions("a", None, "00").read()
    with pytest.raises(UsageError, match="--password-hex"):
        PasswordOptions(None, None, "xyz").read()
    with pytest.raises(NotFoundError, match="no such file"):
        PasswordOptions(None, str(tmp_path / "none"), None).read()
    with pytest.raises(StorageError, match="directory"):
        PasswordOptions(None, str(tmp_path), None).read()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "QUIET_S", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("scanning", 100) as advance:
        advance(50)
    assert sys.stderr.getvalue() == ""


def test_progress_gives_way_to_rows_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "QUIET_S", 0.0)
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setattr(sys, "stdout", Screen())
    with progress("scanning", 100, streams_rows=True) as advance:
        advance(50)
    assert sys.stderr.getvalue() == ""


def test_short_work_shows_no_bar_and_long_work_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", Screen())
    with progress("scanning", 100) as advance:
        advance(50)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(progress_module, "QUIET_S", 0.0)
    with progress("scanning", 100) as advance:
        advance(50)
        advance(50)
    assert "scanning" in sys.stderr.getvalue()


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("counts", [None, "ledgers"])
def test_progress_is_one_line_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, counts: str | None
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(progress_module, "QUIET_S", 0.0)
    monkeypatch.setattr(sys, "stderr", Screen())
    with progress(f"read {'long/' * 20}0.log", 500 << 30, counts=counts) as advance:
        for _ in range(3):
            advance(100 << 30)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", sys.stderr.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", drawn) if line]
    assert sys.stderr.getvalue().count("\x1b[1A") == 1  # one line up, at the end alone
    assert columns < 60 or "read l" in drawn
    assert max(map(len, lines)) <= columns


def test_progress_restores_the_terminal_on_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(progress_module, "QUIET_S", 0.0)
    monkeypatch.setattr(sys, "stderr", Screen())

    def interrupted() -> None:
        with progress("scanning", 100) as advance:
            advance(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    shown = sys.stderr.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    "words",
    [
        "entrylog scan", "entrylog verify", "journal scan", "journal verify", "index check", "doctor",
        "index repair --dry-run", "index rebuild --dry-run", "gc explain", "gc plan", "gc run --dry-run",
    ],
)  # fmt: skip
def test_a_dump_that_a_script_names_with_an_empty_variable_is_missed(
    run_cli: Callable[..., Any], words: str
) -> None:
    """Without the dump the answer would be another one, and look like the one that was asked for."""
    result = run_cli(*words.split(), DEMO, "--metadata", "")
    assert (result.exit_code, result.stdout) == (6, ""), result.stderr
    assert "no such file" in result.stderr
