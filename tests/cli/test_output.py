"""Formats of output: bytes that scripts rely on."""

from __future__ import annotations

import enum
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bkctl.commands.frame import output
from bkctl.commands.frame.output import Format, Key, write_lines, write_one, write_rows, write_schema


class Verdict(enum.Enum):
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Damage:
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    path: str
    verdict: Verdict
    first_bad_offset: int | None
    ok: bool
    damage: tuple[Damage, ...]


KEYS = (
    Key("path", "string", "the file"),
    Key("verdict", "string", "what was found"),
    Key("first_bad_offset", "int or null", "where"),
    Key("ok", "bool", "nothing found"),
    Key("damage", "list", "each place"),
    Key("payload", "string", "only when asked for"),
)
ROWS = [
    Checked("a,b.log", Verdict.CLEAN, None, True, ()),
    Checked("\x1b[31m[bold]é", Verdict.CLEAN, 7, False, (Damage(7, "zeros"),)),
]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_ndjson(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_rows(ROWS, KEYS, Format.NDJSON) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == '{"path":"a,b.log","verdict":"clean","first_bad_offset":null,"ok":true,"damage":[]}'
    assert json.loads(second)["damage"] == [{"offset": 7, "reason": "zeros"}]


def test_json_is_one_array(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(ROWS, KEYS, Format.JSON)
    assert [row["ok"] for row in json.loads(capsys.readouterr().out)] == [True, False]
    write_rows([], KEYS, Format.JSON)
    assert capsys.readouterr().out == "[]\n"


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(ROWS, KEYS, Format.CSV)
    assert capsys.readouterr().out == (
        "path,verdict,first_bad_offset,ok,damage\n"
        '"a,b.log",clean,,true,[]\n'
        # As in a table: CSV is looked at on a terminal, too. JSON has the very characters.
        '\\x1b[31m[bold]é,clean,7,false,"[{""offset"":7,""reason"":""zeros""}]"\n'
    )
    write_rows([], KEYS, Format.CSV)
    assert capsys.readouterr().out == "path,verdict,first_bad_offset,ok,damage,payload\n"


def test_table_in_a_file_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([*ROWS, {"path": "x" * 300}], KEYS, Format.TABLE)
    out = capsys.readouterr().out
    assert "x" * 300 in out
    assert "\\x1b[31m[bold]é" in out
    assert "\x1b" not in out
    assert "payload" not in out


def test_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    write_one(ROWS[0], KEYS)
    assert json.loads(capsys.readouterr().out)["path"] == "a,b.log"
    write_one(ROWS[0], KEYS, Format.NDJSON)
    assert capsys.readouterr().out.count("\n") == 1
    write_one(ROWS[0], KEYS, Format.TABLE)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "path", "verdict", "first_bad_offset", "ok", "damage",
    ]  # fmt: skip


def test_the_default_follows_where_stdout_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert output.chosen_format(None) is Format.NDJSON
    assert output.chosen_format(None, one=True) is Format.JSON
    monkeypatch.setattr(sys, "stdout", Screen())
    assert output.chosen_format(None) is output.chosen_format(None, one=True) is Format.TABLE
    assert output.chosen_format(Format.CSV) is Format.CSV


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[1m" in drawn(monkeypatch, Screen())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in drawn(monkeypatch, io.StringIO())


def drawn(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    write_rows(ROWS, KEYS, Format.TABLE)
    return stream.getvalue()


def on_a_screen(
    monkeypatch: pytest.MonkeyPatch, columns: int, rows: list[dict[str, object]], *, folds: bool = True
) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    keys = tuple(Key(name, "", "") for name in rows[0])
    write_rows(rows, keys, Format.TABLE, folds=folds)
    return re.sub(r"\x1b\[\d*m", "", screen.getvalue())


def test_a_narrow_terminal_gets_every_value_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose columns do not fit would cut numbers and lose columns without a word."""
    rows: list[dict[str, object]] = [
        {"ledger": n, "state": "OPEN", "made_at_milliseconds": 1795303760399 + n, "length_in_bytes": 7,
         "bookies": ["a:3181", "b:3181"], "last_entry_of_it": None}
        for n in (1, 2)
    ]  # fmt: skip
    assert on_a_screen(monkeypatch, 80, rows).split("\n\n") == [
        "ledger                1\n"
        "state                 OPEN\n"
        "made_at_milliseconds  1795303760400\n"
        "length_in             7 B\n"
        "bookies               a:3181\n"
        "                      b:3181\n"
        "last_entry_of_it      -",
        "ledger                2\n"
        "state                 OPEN\n"
        "made_at_milliseconds  1795303760401\n"
        "length_in             7 B\n"
        "bookies               a:3181\n"
        "                      b:3181\n"
        "last_entry_of_it      -\n",
    ]
    wide = on_a_screen(monkeypatch, 120, rows)
    assert "1795303760400" in wide
    assert "OPEN" in wide
    assert wide.splitlines()[0].split() == [name.removesuffix("_bytes") for name in rows[0]]


def test_a_table_that_does_not_fold_is_drawn_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, object]] = [{"path": "/data/" + "x" * 40, "facts": ["version 1", "ledgers 4"]}]
    wide = on_a_screen(monkeypatch, 80, rows, folds=False)
    assert wide.split()[:2] == ["path", "facts"]
    assert on_a_screen(monkeypatch, 60, rows).split()[:2] == ["path", "facts"]
    assert on_a_screen(monkeypatch, 60, rows, folds=False) == (
        f"path   /data/{'x' * 40}\nfacts  version 1\n       ledgers 4\n"
    )


def test_a_row_has_no_line_for_what_only_rows_of_another_kind_say(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, object]] = [
        {
            "kind": kind,
            "a_path_of_a_log": path,
            "records_of_the_copy": records,
            "what_else_there_is_to_say": None,
        }
        for kind, path, records in (("log", "/data/1.log", None), ("copy", "/data/2.log", 7))
    ]
    assert on_a_screen(monkeypatch, 40, rows).split("\n\n") == [
        "kind                       log\n"
        "a_path_of_a_log            /data/1.log\n"
        "what_else_there_is_to_say  -",
        "kind                       copy\n"
        "a_path_of_a_log            /data/2.log\n"
        "records_of_the_copy        7\n"
        "what_else_there_is_to_say  -\n",
    ]


def test_a_long_text_is_folded_into_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_screen(monkeypatch, 80, [{"path": "x" * 200, "bytes": 123456789}])
    assert shown.splitlines()[0].split() == ["path", "bytes"]
    assert "117.7 MiB" in shown
    assert shown.count("x") == 200
    assert max(map(len, shown.splitlines())) == 80


def test_a_command_in_one_thing_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    command = "bkctl bookies probe " + " ".join(f"bookie-{n}.example:3181" for n in range(5))
    write_one(
        {"verdict": "needs_bookies", "findings": ("one", "two"), "next": command, "replicas": ()},
        tuple(Key(name, "", "") for name in ("verdict", "findings", "next", "replicas")),
    )
    assert screen.getvalue() == (
        f"verdict   needs_bookies\nfindings  one\n          two\nnext      {command}\nreplicas  -\n"
    )


def test_a_table_holds_back_one_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "PAGE_ROWS", 2)
    seen: list[str] = []

    def rows() -> Iterator[dict[str, object]]:
        for number in range(5):
            if number == 2:
                seen.append(capsys.readouterr().out)
            yield {"path": str(number)}

    assert write_rows(rows(), KEYS, Format.TABLE) == 5
    assert seen[0].startswith("path")
    assert capsys.readouterr().out.count("path") == 2


@pytest.mark.parametrize("form", [Format.NDJSON, Format.CSV, Format.JSON])
def test_other_formats_stream(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[dict[str, object]]:
        yield {"path": "first"}
        assert "first" in capsys.readouterr().out
        yield {"path": "second"}

    assert write_rows(rows(), KEYS, form) == 2


def test_a_key_outside_the_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="not in the schema: surprise"):
        write_rows([{"surprise": 1}], KEYS, Format.NDJSON)


def test_bytes_have_no_json_form_of_their_own() -> None:
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        write_rows([{"path": b"x"}], KEYS, Format.NDJSON)


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    write_schema(KEYS, Format.CSV)
    assert capsys.readouterr().out.splitlines()[3] == "first_bad_offset,int or null,where"


def test_ready_made_lines_keep_their_order(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sys.stdout.write("before\n")
    write_lines([b'{"a":1}\n{"a":2}\n', '{"a":3}\n'])
    assert capfdbinary.readouterr().out == b'before\n{"a":1}\n{"a":2}\n{"a":3}\n'


@pytest.mark.parametrize("form", ["ndjson", "csv", "table", "wide"])
def test_rows_to_a_reader_that_goes_away(tmp_path: Path, form: str) -> None:
    """The whole way: the writer fails in the middle, the program ends with 141 and says nothing."""
    program = tmp_path / "endless.py"
    program.write_text(
        "import itertools, sys, types\n"
        "from bkctl import cli\n"
        "from bkctl.commands.frame.nouns import NOUNS, Noun\n"
        "from bkctl.commands.frame.options import noun_app\n"
        "from bkctl.commands.frame.output import Format, Key, write_rows\n"
        "module = types.ModuleType('endless')\n"
        "module.app = noun_app('Endless.')\n"
        "@module.app.command()\n"
        "def rows() -> None:\n"
        "    rows = ({'n': n} for n in itertools.count())\n"
        f"    write_rows(rows, (Key('n', 'int', ''),), Format.{form.upper()})\n"
        "sys.modules['endless'] = module\n"
        "NOUNS['endless'] = Noun('endless', 'endless', '[offline] [reads]', 'Endless.')\n"
        "sys.argv = ['bkctl', 'endless', 'rows']\n"
        "cli.main()\n"
    )
    script = f"'{sys.executable}' '{program}' | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    first = {"ndjson": '{"n":0}\n', "csv": "n\n"}.get(form, "")
    assert done.stdout.startswith(first)
    assert (done.stdout[-5:], done.stderr) == ("\n141\n", "")
