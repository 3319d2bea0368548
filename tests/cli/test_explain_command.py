"""``bkctl explain``: every code of BookKeeper's, by number and by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load
from bkctl.protocol.codes import V2_NUMBERS, V3_NUMBERS
from tests.support.rows import from_ndjson, same_in_every_format

Run = Callable[..., Any]


def places(run_cli: Run, *codes: str) -> dict[tuple[str, int], str]:
    """What is said, by place and number."""
    rows = from_ndjson(run_cli("explain", *codes, "-o", "ndjson").stdout)
    return {(row["place"], row["code"]): row["name"] for row in rows}


def test_without_a_code_everything_the_wire_knows_is_there(run_cli: Run) -> None:
    told = places(run_cli)
    for place, numbers in (("wire_v2", V2_NUMBERS), ("wire_v3", V3_NUMBERS)):
        assert {code: name for (where, code), name in told.items() if where == place} == {
            number: code.value for number, code in numbers.items()
        }


def test_nothing_is_left_without_an_explanation(run_cli: Run) -> None:
    for row in same_in_every_format(run_cli, "explain"):
        assert row["meaning"].endswith("."), row
        assert row["next"].endswith("."), row


#: Words of ARCHITECTURE.md that only readers of the code meet.
OF_THE_CODE = {"grant", "machine", "room", "run"}


def words_of_architecture() -> set[str]:
    """Return the words of the table "Words", each of a row of several."""
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    table = page.partition("## Words")[2].partition("##")[0]
    rows = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    return {word for row in rows for word in row.split(", ")} - {"word", "---"}


@pytest.mark.parametrize("word", sorted(words_of_architecture() - OF_THE_CODE))
def test_words_of_bookkeeper_and_of_ours_are_explained(run_cli: Run, word: str) -> None:
    done = run_cli("explain", *word.split(), "-o", "ndjson")
    assert done.exit_code == 0, done.stderr
    assert [(row["place"], row["code"]) for row in from_ndjson(done.stdout)] == [("word", None)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("limbo", "limbo"),
        ("Limbo", "limbo"),
        ("fenced", "fence"),
        ("ensembles", "ensemble"),
        ("last add confirmed", "LAC"),
        ("in_recovery", "IN_RECOVERY"),
        ("under-replicated", "under-replicated"),
        ("underreplicated", "under-replicated"),
        ("torn_tail", "torn tail"),
        ("lastMark", "last mark"),
    ],
)
def test_a_word_is_found_however_it_is_written(run_cli: Run, line: str, name: str) -> None:
    for words in (line.split(), [line]):
        rows = from_ndjson(run_cli("explain", *words, "-o", "ndjson").stdout)
        assert [row["name"] for row in rows] == [name]


def test_codes_and_words_stand_on_one_line(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("explain", "-108", "limbo", "ack", "quorum", "-o", "ndjson").stdout)
    assert [row["name"] for row in rows] == [
        "DataUnknownException",
        "OperationRejectedException",
        "limbo",
        "ack quorum",
    ]


def test_a_word_has_no_number_in_a_table(run_cli: Run) -> None:
    shown = run_cli("explain", "limbo", "-o", "table").stdout
    assert shown.startswith("place    word\nname     limbo\nmeaning  ")


def test_words_lists_all_of_them_and_codes_are_not_among_them(run_cli: Run) -> None:
    rows = from_ndjson(run_cli("explain", "words", "-o", "ndjson").stdout)
    assert {row["place"] for row in rows} == {"word"}
    assert all(row["meaning"].endswith(".") and row["next"].endswith(".") for row in rows)
    names = [row["name"] for row in rows]
    assert names == sorted(names, key=str.lower)
    assert "word" not in {place for place, _ in places(run_cli)}, "without a word it is what it was"


def test_what_is_explained_names_commands_that_are_there(run_cli: Run) -> None:
    for line in ("explain", "explain words"):
        for row in from_ndjson(run_cli(*line.split(), "-o", "ndjson").stdout):
            for noun, verb in re.findall(
                r"\bbkctl ([a-z]+)(?: ([a-z-]+))?", f"{row['meaning']} {row['next']}"
            ):
                assert noun in NOUNS, row
                if NOUNS[noun].verbs and verb:
                    assert verb in load(NOUNS[noun]).commands, row  # type: ignore[attr-defined]


def test_what_is_no_word_is_answered_with_those_that_are_alike(run_cli: Run) -> None:
    done = run_cli("explain", "limbp")
    assert (done.exit_code, "did you mean limbo?" in done.stderr) == (6, True), done.stderr
    assert "'bkctl explain words'" in run_cli("explain", "xyzzy").stderr
