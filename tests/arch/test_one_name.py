"""One thing has one name in all commands, and one name means one thing; exceptions have their reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from bkctl.commands.frame.durations import parse_duration_ms, parse_duration_or_seconds_ms
from bkctl.commands.frame.nouns import NOUNS, Noun
from bkctl.commands.frame.old_names import OLD_NAMES
from bkctl.commands.frame.root import load
from bkctl.commands.frame.shell_commands import ADVICE, GUESSED_COMMANDS, SHELL_COMMANDS
from tests.arch.test_shell_page import rows as rows_of_shell_page
from tests.support.transcript import DATA

#: Options that mean one thing in one command and another in the next, and why they may.
TWO_MEANINGS = {
    "--all": "all of what the command is about",
    "--bookie": "a filter of ledgers, and who the owner of directories is",
    "--by": "who, and by what",
    "--conf": "a configuration of BookKeeper's, and a setting of Spark's, as spark-submit names it",
    "--custom": "a filter may leave the value away",
    "--digest": "a reader also takes auto and off, a writer a type",
    "--entries": "a number to read, a number to begin at, and whether there is a row for each",
    "--from": "an entry to begin at, and the losses that a repair goes by",
    "--journal": "a filter, and where the mark is to stand",
    "--journal-dir": "the one that is meant, and all that a bookie has in their order",
    "--ledger": "a filter, and the id of a ledger that is made",
    "--ledgers": "a number of ledgers, and what an index holds of ledgers",
    "--major": "a compaction, and the share below which it takes a log",
    "--minor": "a compaction, and the share below which it takes a log",
    "--number": "an undo is of one repair, and several are forgotten at once",
    "--out": "a directory or a file, as the command makes one or the other",
    "--rate": "requests a second, and bytes a second",
    "--to": "bookies that get what another had, and where sets are published",
    "--wait": "whether the end is waited for, and how long something is",
    "--metadata": "a command about a live cluster takes no dump",
}

#: A line of a noun's help: the name, two blanks, the summary; no line of it may be longer.
LINE_MAX = 80


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that is shown, with its words."""
    for noun in NOUNS.values():
        command = load(noun)
        for name, verb in getattr(command, "commands", {"": command}).items():
            if not verb.hidden:
                yield f"{noun.name} {name}".strip(), verb


def options() -> Iterator[tuple[str, Any]]:
    """Yield every option that is shown, with the words of its command."""
    for words, command in commands():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                yield words, option


def test_an_option_takes_the_same_kind_of_value_everywhere() -> None:
    kinds: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, option in options():
        kind = (option.metavar, option.is_flag, option.multiple)
        kinds[max(option.opts, key=len)][kind].append(words)
    several = {name: dict(ways) for name, ways in kinds.items() if len(ways) > 1}
    unknown = {name: ways for name, ways in several.items() if name not in TWO_MEANINGS}
    assert unknown.pop("--url", None), "top looks at several bookies, and is the only one"
    assert not unknown


def test_every_value_has_a_name_of_its_own() -> None:
    """Help says what a value is, and not of which type of Python's it is."""
    for words, command in commands():
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                continue
            assert parameter.metavar, f"{words}: {parameter.opts}"


def test_every_time_on_the_command_line_has_its_unit() -> None:
    """What takes TIME takes 90s; what takes SECONDS does not exist."""
    named = [(words, option) for words, option in options() if option.metavar in ("TIME", "SECONDS", "S")]
    assert len(named) > 8
    for words, option in named:
        assert option.metavar == "TIME", f"{words} {option.opts}"
        for text, wanted in (("90s", 90_000), ("15m", 900_000)):
            assert convert(option, text) == wanted, f"{words} {option.opts}"
    assert parse_duration_or_seconds_ms("90") == 90_000
    with pytest.raises(ValueError, match="examples: 90s"):
        parse_duration_ms("90")


def convert(option: Any, text: str) -> Any:
    """Return what an option makes of one value."""
    made = option.process_value(None, [text] if option.multiple else text)
    return made[0] if option.multiple else made


def test_what_has_a_variable_has_it_everywhere() -> None:
    variables = {"--metadata": "BKCTL_METADATA_URI", "--url": "BKCTL_URL", "--tls-ca": "BKCTL_TLS_CA"}
    digests_only = {
        "entrylog scan",
        "entrylog verify",
        "journal scan",
        "journal verify",
        "journal salvage",
        "lastmark set",
        "entrylog salvage",
    }
    for words, option in options():
        name = max(option.opts, key=len)
        by_line_alone = name == "--metadata" and (words in digests_only or words.startswith("pipeline"))
        # What is drained is the bookie that the line names: a variable may be another one's address.
        by_line_alone |= words == "context add"  # it keeps what other commands are to use
        by_line_alone |= (words, name) == ("bookies drain", "--url")
        if name in variables and not by_line_alone:
            assert option.envvar == variables[name], f"{words} {name}"


def test_old_names_are_taken_and_not_shown() -> None:
    shown = {name for _, option in options() for name in option.opts}
    ledger_doctor = load(NOUNS["ledger"]).commands["doctor"]  # type: ignore[attr-defined]
    assert "--watch" not in {name for option in ledger_doctor.params for name in option.opts}
    assert not shown & (OLD_NAMES.keys() - {"--watch"})
    assert set(OLD_NAMES.values()) <= shown


@pytest.mark.parametrize(
    "line",
    [
        "ledger list --metadata-uri no-scheme",
        "index check . --ledger-metadata none.json",
        "entrylog verify . --ledger-metadata none.json",
        "entrylog verify . --metadata-uri zk",
        "bench add nowhere --seconds 1 --warmup 0.5",
        "ledger doctor 1 --watch 1s --metadata no-scheme",
    ],
)
def test_a_line_with_old_names_is_understood(run_cli: Any, line: str) -> None:
    done = run_cli(*line.split())
    assert "no such option" not in done.stderr.lower(), done.stderr
    assert done.exit_code in (2, 6), done.stderr


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("ledger list --metadata-uri no-scheme", "error: --metadata-uri "),
        ("ledger list --metadata-uri=no-scheme", "error: --metadata-uri "),
        ("ledger list --metadata no-scheme", "error: --metadata "),
        ("bench add nowhere --seconds abc", "'--seconds'"),
        ("ledger doctor 1 --watch abc", "'--watch'"),
        ("ledger doctor 1 --look abc", "'--look'"),
    ],
)
def test_a_message_names_the_option_as_it_was_typed(run_cli: Any, line: str, named: str) -> None:
    assert named in run_cli(*line.split()).stderr


def test_a_dump_and_a_store_have_one_option(run_cli: Any, tmp_path: Any) -> None:
    log = DATA / "demo/bookie1"
    done = run_cli("entrylog", "verify", log, "--metadata", "host:2181")
    assert (done.exit_code, "not a URI such as zk://" in done.stderr) == (2, True)
    done = run_cli("index", "check", tmp_path, "--metadata", tmp_path / "none.json", "--ledger-metadata", "x")
    assert done.exit_code in (2, 6)


def test_summaries_of_verbs_are_whole(run_cli: Any) -> None:
    for noun in NOUNS.values():
        if not noun.verbs:
            continue
        text = run_cli(noun.name, "--help").stdout
        assert "..." not in text.partition("Commands:")[2], text
        assert "[reads]" not in text.partition("Commands:")[2]
        assert all(len(line) <= LINE_MAX for line in text.splitlines()), text


def test_commands_of_the_shell_are_answered_as_the_page_says(run_cli: Any) -> None:
    import re

    page = {
        theirs: tuple(re.findall(r"`([^`]+)`", cell))
        for theirs, cell, _ in rows_of_shell_page()
        if " " not in theirs
    }
    page.pop("help", None)
    assert page == SHELL_COMMANDS
    done = run_cli("listledgers")
    assert done.exit_code == 2
    assert "here it is 'ledger list'" in done.stderr


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("entrlog list", "'entrylog'"),
        ("verify", "'entrylog verify' or 'journal verify'"),
        ("ledger lst", "'list'"),
    ],
)
def test_near_names_are_offered(run_cli: Any, line: str, meant: str) -> None:
    done = run_cli(*line.split())
    assert done.exit_code == 2
    assert f"Did you mean {meant}?" in done.stderr
    assert done.stderr.startswith("bkctl: error: no such command"), "one style for every error"


def test_guessed_verbs_are_no_commands_and_what_is_meant_is_one(run_cli: Any) -> None:
    verbs = {f"{noun.name} {verb}" for noun in NOUNS.values() if noun.verbs for verb in _verbs_of(noun)}
    assert not verbs & (GUESSED_COMMANDS.keys() | ADVICE.keys())
    assert not GUESSED_COMMANDS.keys() & ADVICE.keys()
    assert set(GUESSED_COMMANDS.values()) <= verbs
    done = run_cli("bookie", "list")
    assert done.exit_code == 2
    assert "error: no such command 'list'. Did you mean 'bookies list'?" in done.stderr


def _verbs_of(noun: Noun) -> Collection[str]:
    return getattr(load(noun), "commands", {})
