"""What a report says: the verdict in words, values and labels as people read them."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import StorageError
from bkctl.pipeline import results
from bkctl.pipeline.job import Column, Job, Parameters, Plot, ResultTable
from bkctl.pipeline.jobs.replication_audit import audit_sentence
from bkctl.pipeline.jobs.verify import verify_sentence
from bkctl.pipeline.plots import amount
from bkctl.pipeline.report import page, write_report
from bkctl.pipeline.results import Outcome, WrittenTable, judged

JOB = Job(
    name="look",
    summary="Looks & tells.",
    inputs=(),
    sql="",
    results=(
        ResultTable(
            "things",
            "what there is",
            (
                Column("dir", "STRING", "place"),
                Column("log_id", "BIGINT", "log"),
                Column("whole", "BOOLEAN", "whether"),
                Column("share", "DOUBLE", "of all"),
                Column("bytes", "BIGINT", "size"),
            ),
            order="dir, log_id",
        ),
        ResultTable(
            "summary",
            "counts",
            (Column("bad", "BIGINT", "bad ones"), Column("left", "BIGINT", "not seen")),
            "",
        ),
    ),
    sentence=lambda counts: f"{counts['bad']:,} things are < bad.",
    found=("bad",),
    unexamined=("left",),
    advice="'bkctl doctor DIR' <says> more",
    parameters=("budget_bytes", "bookies_gone", "now_ms"),
    plots=(Plot("Sizes", "things", ("dir", "log_id"), ("bytes",), "dir, log_id", bytes_axis=True),),
)
ROWS = (
    {"dir": "/a", "log_id": 1234567, "whole": True, "share": 1 / 3, "bytes": 1536},
    {"dir": "/b", "log_id": 1234567, "whole": False, "share": 123456.75, "bytes": 0},
    {"dir": None, "log_id": 1, "whole": None, "share": None, "bytes": 3 << 20},
)


def outcome_of(folder: Path, **counts: int) -> Outcome:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "things").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(ROWS)), folder / "things" / "part-00000.parquet")
    table = WrittenTable.of("things", "result", str(folder / "things"))
    parameters = Parameters(budget_bytes=7, bookies_gone=("a:1", "b:2"))
    made: Any = dict.fromkeys(("metadata", "metadata_after"))
    whole = Outcome(
        job="look",
        engine="local",
        out=str(folder),
        paths=("/a", "/b"),
        started_ms=0,
        seconds=1.25,
        parameters=parameters,
        counts=counts,
        tables=(table,),
        guards=("taken & given",),
        **made,
    )
    return judged(whole, JOB)


@pytest.mark.parametrize(
    ("bad", "left", "words", "code"),
    [
        (0, 0, "<p>Exit code 0.</p>", 0),
        (2, 0, "Found: bad. Exit code 1.", 1),
        (0, 3, "<p>A part could not be judged: left. Exit code 3.</p>", 3),
        (2, 3, "Found: bad. A part could not be judged: left. Exit code 3.", 3),
    ],
)
def test_what_was_found_and_what_could_not_be_judged_are_told_apart(
    tmp_path: Path, bad: int, left: int, words: str, code: int
) -> None:
    outcome = outcome_of(tmp_path, bad=bad, left=left)
    text = page(outcome, JOB)
    assert outcome.exit_code == code
    assert words in text
    assert ("Next: &#x27;bkctl doctor DIR&#x27; &lt;says&gt; more." in text) == bool(bad)
    assert "Next:" not in page(outcome, replace(JOB, advice=""))


def test_values_and_bars_read_as_in_other_tools(tmp_path: Path) -> None:
    text = page(outcome_of(tmp_path, bad=0, left=0), JOB)
    for cell in ("<td>true</td>", "<td>false</td>", ">1234567</td>", ">0.3333</td>", ">123456.75</td>"):
        assert cell in text
    assert '<td class="null">-</td>' in text
    for label in ("/a 1234567", "/b 1234567", "- 1"):
        assert f">{label}<title>{label}</title>" in text
    assert ">1.5 KiB</text>" in text
    assert "<li>taken &amp; given</li>" in text
    assert "<code>budget 7, bookies_gone a:1 b:2</code>" in text


def test_bytes_have_their_unit_and_sort_by_their_number(tmp_path: Path) -> None:
    text = page(outcome_of(tmp_path, bad=12345, left=0), JOB)
    assert '<td class="number" data-sort="1536" title="1536 bytes">1.5 KiB</td>' in text
    assert '<td class="number">12,345</td>' in text
    assert '<h2 id="things">Things</h2>' in text


def test_the_verdict_is_a_sentence(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, bad=12345, left=0)
    assert '<span class="said">12,345 things are &lt; bad.</span>' in page(outcome, JOB)


def test_a_chart_of_nothing_is_not_drawn_and_a_histogram_begins_where_something_is(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, bad=0, left=0)
    (plot,) = JOB.plots
    empty = replace(plot, values=("log_id",), order="dir")
    text = page(outcome, replace(JOB, plots=(empty,)))
    assert "<svg" in text
    nothing = replace(JOB, plots=(replace(plot, table="none"),), results=(*JOB.results, NOTHING))
    assert "Nothing to draw: every value is 0." in page(with_rows(outcome, tmp_path, "none", [0, 0]), nothing)
    ranks = (replace(plot, table="none", labels=("log_id",), order="rank"),)
    found = page(
        with_rows(outcome, tmp_path, "none", [0, 5, 0, 7, 0, 0]), replace(nothing, plots=ranks)
    ).partition("</svg>")[0]
    assert [f">{label}<title>" in found for label in range(6)] == [False, True, True, True, False, False]


NOTHING = ResultTable(
    "none",
    "a histogram",
    (
        Column("dir", "STRING", ""),
        Column("rank", "BIGINT", ""),
        Column("log_id", "BIGINT", ""),
        Column("bytes", "BIGINT", ""),
    ),
    "rank",
)


def with_rows(outcome: Outcome, folder: Path, name: str, values: list[int]) -> Outcome:
    """The outcome with one more table, of a value for each rank."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / name).mkdir(exist_ok=True)
    rows = [{"dir": "", "rank": rank, "log_id": rank, "bytes": value} for rank, value in enumerate(values)]
    pq.write_table(pa.Table.from_pylist(rows), folder / name / "part-00000.parquet")
    table = WrittenTable.of(name, "result", str(folder / name))
    return replace(outcome, tables=(*(each for each in outcome.tables if each.name != name), table))


COUNTS = dict.fromkeys(
    ("entries_short", "entries_below_ack_quorum", "entries_lost", "ledgers_short", "slots_missing"), 0
) | {"slots_not_judged": 0}
CHECKS = {"entries": 1234, "bad_entries": 0, "unchecked": 0, "damages": 0}


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({}, "Every entry has all its copies."),
        ({"slots_not_judged": 1}, "Every entry that was judged has all its copies."),
        (
            {
                "slots_missing": 9,
                "entries_short": 1147,
                "ledgers_short": 23,
                "entries_below_ack_quorum": 1147,
            },
            "1,147 entries lack copies, in 23 ledgers; all of them below the ack quorum; none is lost.",
        ),
        (
            {"slots_missing": 1, "entries_short": 1, "ledgers_short": 1, "slots_not_judged": 1},
            "1 entry lacks copies, in 1 ledger; none that was judged is lost.",
        ),
        (
            {
                "slots_missing": 1,
                "entries_short": 5,
                "ledgers_short": 1,
                "entries_below_ack_quorum": 3,
                "entries_lost": 2,
            },
            "5 entries lack copies, in 1 ledger; 3 of them below the ack quorum; 2 lost.",
        ),
    ],
)
def test_the_sentence_of_an_audit(counts: dict[str, int], sentence: str) -> None:
    assert audit_sentence(COUNTS | counts) == sentence


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({}, "No digest of 1,234 entries fails."),
        ({"bad_entries": 1}, "1 of 1,234 entries fails its digest."),
        (
            {"bad_entries": 2, "unchecked": 3, "damages": 1},
            "2 of 1,234 entries fail their digest; 3 could not be checked; 1 place cannot be read.",
        ),
    ],
)
def test_the_sentence_of_a_verification(counts: dict[str, int], sentence: str) -> None:
    assert verify_sentence(CHECKS | counts) == sentence


def test_a_page_that_cannot_be_written_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("the one of before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    outcome = outcome_of(tmp_path, bad=0, left=0)
    before = set(tmp_path.iterdir())
    monkeypatch.setattr(results.os, "replace", full)
    with pytest.raises(StorageError, match=r"report\.html: No space left"):
        write_report(outcome, JOB, str(path))
    assert path.read_text() == "the one of before"
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("value", "is_bytes", "text"),
    [
        (0, True, "0 B"),
        (1023, True, "1023 B"),
        (1 << 20, True, "1.0 MiB"),
        (1 << 70, True, "1024.0 EiB"),
        (1234567, False, "1,234,567"),
        (0.5, False, "0.5"),
    ],
)
def test_amounts_have_their_unit(value: float, is_bytes: bool, text: str) -> None:
    assert amount(value, is_bytes) == text
