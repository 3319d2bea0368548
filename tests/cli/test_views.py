"""What people see on a terminal, and what of its rows a command shows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.frame.human_values import heading, human, human_age, human_bytes
from bkctl.commands.frame.output import Format, Key, write_rows
from bkctl.commands.frame.view_options import ViewOptions, showing
from bkctl.errors import UsageError
from tests.support.transcript import DATA

DEMO = DATA / "demo"
HOUR_MS = 3_600_000
KEYS = (Key("name", "string", "n"), Key("free_bytes", "int", "b"), Key("detail", "string", "d", wide=True))
SHARES = (Key("name", "string", "n"), Key("share", "number", "s"))
ROWS = [
    {"name": "b", "free_bytes": 70_000_000_000, "detail": "x"},
    {"name": "a", "free_bytes": 5, "detail": "y"},
    {"name": "c", "free_bytes": 2048, "detail": "z"},
]


@dataclass(frozen=True, slots=True)
class Room:
    name: str
    free_bytes: int


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_570, "1.0 MiB"), (70_212_345_678, "65.4 GiB"),
     (2**63 - 1, "8.0 EiB"), (-2048, "-2.0 KiB")],
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert human_bytes(count) == text
    assert human("free_bytes", count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (0.0, "0%"), (0.00004, "<0.1%"), (0.0005, "0.1%"), (0.7084, "70.8%"), (0.9971, "99.7%"),
     (0.99996, "99.9%"), (1.0, "100%")],
)  # fmt: skip
def test_shares(share: float, text: str) -> None:
    for key in ("share", "share_not_judged", "live_ratio", "disk_fullness", "read_cache_hit_rate"):
        assert human(key, share) == text
    assert human("threshold", share) == human("seconds", share) == str(share)


@pytest.mark.parametrize(
    ("ago_ms", "text"),
    [
        (0, "now"),
        (1000, "1 s ago"),
        (2 * HOUR_MS, "2 h ago"),
        (49 * HOUR_MS, "2 d ago"),
        (-600_000, "in 10 min"),
    ],
)
def test_times(ago_ms: int, text: str) -> None:
    now_ms = 1_795_363_325_231
    assert human_age(now_ms - ago_ms, now_ms) == text
    assert human("ctime_ms", now_ms - ago_ms, now_ms=now_ms) == text


def test_a_duration_is_no_time_and_a_time_of_one_thing_has_its_date() -> None:
    assert human("p99_ms", 12) == "12"
    assert human("ctime_ms", None) == "-"
    assert human("ctime_ms", 1_795_363_325_231, whole=True).startswith("2026-11-22 16:02:05 UTC (")
    assert human("ctime_ms", 2**62, whole=True)
    assert (heading("ctime_ms", 1_795_363_325_231), heading("p99_ms", 12)) == ("ctime", "p99_ms")
    assert (heading("free_bytes", 1), heading("free_bytes", None)) == ("free", "free_bytes")


def test_custom_metadata_are_text_for_people() -> None:
    pairs = {"application": "cHVsc2Fy", "odd": "/w==", "bell": "Bw==", "none": ""}
    shown = "application=pulsar, odd=base64:/w==, bell=base64:Bw==, none="
    assert human("custom_metadata", pairs) == shown


def test_dataclasses_are_phrases_like_objects() -> None:
    room = Room("a", 2048)
    assert human("x", room) == "name a, free_bytes 2.0 KiB"
    assert human("x", (room, room)) == "name a, free_bytes 2.0 KiB; name a, free_bytes 2.0 KiB"


def test_lists_and_objects_are_phrases() -> None:
    assert human("ids", ["a", "b"]) == "a, b"
    assert (
        human("x", [{"id": "bookie", "port": 3181, "auth": None}, {"id": "http"}])
        == "id bookie, port 3181; id http"
    )
    assert human("x", {"first_entry": 0, "bookies": ["a", "b"], "free_bytes": 2048}) == (
        "first_entry 0, bookies [a, b], free_bytes 2.0 KiB"
    )


def shown(view: ViewOptions, form: Format, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is written of the rows."""
    with showing(view):
        assert write_rows(ROWS, KEYS, form) == 3, "the count is that of all rows"
    return capsys.readouterr().out


def test_a_table_rounds_and_everything_else_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(ViewOptions(), Format.TABLE, capsys)
    assert "65.2 GiB" in table
    assert "detail" not in table
    assert "detail" in shown(ViewOptions(), Format.WIDE, capsys)
    rows = [json.loads(line) for line in shown(ViewOptions(), Format.NDJSON, capsys).splitlines()]
    assert rows == ROWS
    assert shown(ViewOptions(), Format.CSV, capsys).splitlines()[1] == "b,70000000000,x"


def test_a_share_is_exact_but_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "share": 0.9971}]
    write_rows(rows, SHARES, Format.TABLE)
    assert "99.7%" in capsys.readouterr().out
    for form, line in ((Format.NDJSON, '{"name":"a","share":0.9971}'), (Format.CSV, "a,0.9971")):
        write_rows(rows, SHARES, form)
        assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        (ViewOptions(columns="detail,name"), ["detail,name", "x,b", "y,a", "z,c"]),
        (ViewOptions(columns="name", sort="free_bytes"), ["name", "a", "c", "b"]),
        (ViewOptions(columns="name", sort="-free_bytes", limit=2), ["name", "b", "c"]),
        (ViewOptions(columns="name", sort="name", limit=1), ["name", "a"]),
        (ViewOptions(columns="name", limit=1), ["name", "b"]),
        (ViewOptions(columns="name", limit=0), ["name"]),
        (ViewOptions(columns="name", no_headers=True), ["b", "a", "c"]),
    ],
)
def test_columns_order_and_number_of_rows(
    view: ViewOptions, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(view, Format.CSV, capsys).splitlines() == lines


def test_rows_that_are_not_shown_are_examined(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit codes are those of all rows: --limit must not hide the damage behind it."""
    taken = []

    def rows() -> Any:
        for row in ROWS:
            taken.append(row)
            yield row

    with showing(ViewOptions(limit=1)):
        write_rows(rows(), KEYS, Format.JSON)
    assert len(taken) == 3
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_values_of_several_kinds_are_sorted() -> None:
    view = ViewOptions(sort="x")
    rows = [{"x": "b"}, {"x": None}, {"x": 3}, {}, {"x": True}, {"x": [1]}]
    assert [row.get("x") for row in view.rows(iter(rows))] == [None, None, True, 3, [1], "b"]


def test_a_key_that_does_not_exist_is_refused(run_cli: Any) -> None:
    for option in ("--columns", "--sort"):
        done = run_cli("entrylog", "list", DEMO, option, "byts")
        assert done.exit_code == 2
        assert done.stderr.startswith(f"bkctl: error: {option}: no key 'byts'; did you mean bytes?")
    with pytest.raises(UsageError, match="there are name, free_bytes, detail"):
        ViewOptions(sort="zzz").check([key.key for key in KEYS])


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("table", "offset  26059\nlog_id  0\n"),
        ("json", '{\n  "offset": 26059,\n  "log_id": 0\n}\n'),
        ("ndjson", '{"offset":26059,"log_id":0}\n'),
        ("csv", "offset,log_id\n26059,0\n"),
    ],
)
def test_columns_are_those_of_a_single_row_as_well(run_cli: Any, form: str, shown: str) -> None:
    line = ("index", "get", "1", "4", DEMO / "bookie1", "--columns", "offset,log_id", "-o", form)
    assert run_cli(*line) == (0, shown, "")


def test_lines_of_bulk_rows_heed_the_view(run_cli: Any) -> None:
    words = ("entrylog", "scan", DEMO, "--digest", "off", "-o", "ndjson")
    every = run_cli(*words).stdout.splitlines()
    some = run_cli(*words, "--limit", "3", "--sort=-entry", "--columns", "ledger,entry").stdout.splitlines()
    assert len(every) > 100
    assert [list(json.loads(line)) for line in some] == [["ledger", "entry"]] * 3
    highest = max(json.loads(line)["entry"] for line in every)
    assert json.loads(some[0])["entry"] == highest


@pytest.mark.parametrize("value", [None, "", [], (), {}, {"auth": None}])
def test_nothing_is_a_dash(value: object) -> None:
    assert human("x", value) == human("free_bytes", value) == "-"


def test_a_column_that_begins_with_nothing_is_one_of_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "free_bytes": None}, {"name": "b", "free_bytes": 70_000_000_000}, {"name": "c"}]
    write_rows(rows, KEYS, Format.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "free"]
    assert lines[2:] == ["a             -", "b      65.2 GiB", "c             -"]
    write_rows(rows, KEYS, Format.CSV)
    assert capsys.readouterr().out.splitlines()[1:] == ["a,", "b,70000000000", "c,"]


def test_nothing_is_said_to_be_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_rows([], KEYS, Format.TABLE, nothing="no bookies") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "(no bookies)\n")
    assert write_rows([], KEYS, Format.NDJSON) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("form", "stdout"), [("table", ""), ("ndjson", ""), ("json", "[]\n")])
def test_a_check_that_found_nothing_says_what_was_checked(
    form: str, stdout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows([], KEYS, Format(form), clean=lambda: "2 rooms, nothing found")
    assert capsys.readouterr() == (stdout, "bkctl: 2 rooms, nothing found\n")
    with showing(ViewOptions(limit=0)):
        write_rows(ROWS, KEYS, Format(form), nothing="no rooms", clean=lambda: "2 rooms, nothing found")
    shown = "(nothing to show)\n" if form == "table" else ""
    assert capsys.readouterr() == (stdout, shown)


def on_terminal(*words: str, columns: int = 80, **variables: str) -> str:
    """Return what a command writes to a terminal of a width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **variables}
    environment = {name: value for name, value in environment.items() if value or name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "bkctl", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:  # the end of a terminal
            pass
        finally:
            os.close(ours)
        assert process.wait(60) in (0, 1, 3)
    return seen.decode().replace("\r\n", "\n")


def test_eighty_columns_and_colours(tmp_path: Path) -> None:
    verify = ("entrylog", "verify", str(DEMO / "bookie1"), "--metadata", str(DEMO / "zk.json"))
    seen = on_terminal(*verify)
    plain = on_terminal(*verify, NO_COLOR="1")
    assert "\x1b[3" in seen
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)
    listed = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("journal", "list", str(DEMO), NO_COLOR="1"))
    assert all(len(line) <= 80 for line in listed.splitlines()), listed
    assert "KiB" in listed


def test_inspect_breaks_no_path_on_eighty_columns() -> None:
    bookie = DEMO / "bookie1"
    seen = on_terminal("inspect", str(bookie), NO_COLOR="1")
    for name in ("ledgers/current/VERSION", "journal/current/VERSION", "ledgers/current/lastMark"):
        assert f"path   {bookie / name}\n" in seen
    assert "\n       journal_dirs /data/bookkeeper/bookie1/journal\n" in seen


def test_quiet_leaves_rows_and_errors(run_cli: Any, tmp_path: Path) -> None:
    words = ("entrylog", "verify", DEMO / "bookie1", "-o", "csv")
    loud, quiet = run_cli(*words), run_cli("--quiet", *words)
    assert "unchecked" in loud.stderr
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (loud.exit_code, loud.stdout, "")
    failed = run_cli("entrylog", "verify", tmp_path / "none", "--quiet")
    assert (failed.exit_code, failed.stderr.startswith("bkctl: error: ")) == (6, True)


def test_watch_shows_it_again_until_it_is_interrupted(tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/store.db"
    bkctl = [sys.executable, "-m", "bkctl"]
    subprocess.run(
        [*bkctl, "cluster", "init", "--metadata", uri], check=True, capture_output=True, timeout=60
    )
    watch = [*bkctl, "cluster", "info", "--metadata", uri, "-o", "ndjson", "--watch", "100ms"]
    with subprocess.Popen(watch, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            rows = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(2)
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert {row["uri"] for row in rows} == {uri}


def test_arguments_are_named_as_commands_name_them(run_cli: Any) -> None:
    shown = run_cli("gc", "plan", "--help").stdout
    assert "Usage: bkctl gc plan [OPTIONS] [PATH...]\n" in shown
    assert "<" not in shown
    shown = run_cli("pipeline", "collect", "--help").stdout
    assert "Usage: bkctl pipeline collect [OPTIONS] PATH...\n" in shown
