"""A metric is declared once, in `metrics.catalogue` or `metrics.bookie_catalogue`."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from bkctl.admin.top.sample import BookieSample, GcState, JournalState, LedgerDirState, Queue, ReadCacheState
from bkctl.metrics import catalogue
from bkctl.metrics.bookie_catalogue import EACH, STAGES, WHOLE
from bkctl.metrics.catalogue import TABLES
from bkctl.metrics.metric import Metric

PACKAGE = Path(__file__).resolve().parents[2] / "bkctl"
ROWS = [metric for table in (*TABLES, *WHOLE, *EACH) for metric in table]
NAMES = {metric.name for metric in ROWS if metric.name}
#: Methods of ``Scrape`` that put a metric into it.
ADDING = {"counter", "gauge", "times", "sizes", "total"}
#: The tables of each class of ``top``.
SHOWN = {
    JournalState: (catalogue.JOURNAL,),
    ReadCacheState: (catalogue.CACHES,),
    LedgerDirState: (catalogue.LEDGERS, catalogue.READS, catalogue.FLUSHES, catalogue.ACTIVE_LOGS),
    GcState: (catalogue.GC,),
    Queue: (STAGES,),
    BookieSample: WHOLE,
}


def repeated(words: Iterator[str]) -> list[str]:
    return [word for word, times in Counter(words).items() if times > 1]


def given_out(tree: ast.Module) -> list[str]:
    """Return the names that a module puts into a scrape by itself."""
    return [
        call.args[0].value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ADDING
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


def fields_written(tree: ast.Module) -> list[tuple[str, str]]:
    """Return the class of ``top`` and the field of every keyword that makes one."""
    classes = {kind.__name__ for kind in SHOWN}
    return [
        (call.func.id, word.arg)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in classes
        for word in call.keywords
        if word.arg is not None
    ]


def test_every_name_and_every_key_stands_once() -> None:
    assert repeated(f"{metric.name} {sorted(metric.labels.items())}" for metric in ROWS if metric.name) == []
    storage = (*catalogue.CACHES, *catalogue.LEDGERS, *catalogue.READS, *catalogue.FLUSHES)
    for part in (
        catalogue.JOURNAL,
        storage,
        (*catalogue.ACTIVE_LOGS, *catalogue.GC),
        STAGES,
        [*chain(*WHOLE)],
    ):
        assert repeated(metric.key for metric in part if metric.key) == []


def test_a_row_that_stands_twice_is_found() -> None:
    twice = [*catalogue.GC, Metric("meters.passes", "bookie_THREAD_RUNTIME")]
    assert repeated(metric.name for metric in twice if metric.name) == ["bookie_THREAD_RUNTIME"]


def test_no_module_gives_a_declared_metric_out_by_itself() -> None:
    found = {
        path.name: sorted(NAMES & set(given_out(ast.parse(path.read_text()))))
        for path in sorted((PACKAGE / "server").rglob("*.py"))
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_a_metric_given_out_beside_its_declaration_is_found() -> None:
    text = 'scrape.counter("bookie_DELETED_LEDGER_TOTAL", meters.deleted_ledgers, **labels)'
    assert NAMES & set(given_out(ast.parse(text))) == {"bookie_DELETED_LEDGER_TOTAL"}


def test_every_field_of_top_is_one_and_is_made_in_one_place() -> None:
    for kind, tables in SHOWN.items():
        shown = [(metric, name) for table in tables for metric in table for name in metric.top]
        assert repeated(name for _, name in shown) == []
        assert {name for _, name in shown} <= {field.name for field in dataclasses.fields(kind)}
        # What a row cannot make of the one kind of bookie is made of several values there.
        ours = {name for metric, name in shown if metric.key}
        of_java = {name for metric, name in shown if metric.java_name}
        for reader, declared in (("bkctl_bookie.py", ours), ("java_bookie.py", of_java)):
            written = fields_written(ast.parse((PACKAGE / "admin" / "top" / reader).read_text()))
            assert [name for owner, name in written if owner == kind.__name__ and name in declared] == []


def test_a_field_that_is_read_beside_its_declaration_is_found() -> None:
    made = fields_written(ast.parse('GcState(dir="d", passes=whole_at(now, "passes"))'))
    assert ("GcState", "passes") in made
