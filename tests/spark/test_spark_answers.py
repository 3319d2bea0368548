"""Answers of tasks are data: what a Connect server returns is never unpickled."""

from __future__ import annotations

import ast
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

import bkctl.spark
from bkctl.admin.index.rebuild.location_build import Table
from bkctl.admin.index.rebuild.state import SWAP_MARKER, LogManifest, WorkDirectory
from bkctl.admin.index.rows.location_runs import Run, no_rows, write_run
from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    CorruptionError,
    NoSpaceError,
    RefusedError,
    StorageError,
)
from bkctl.kvstore.base import StoreClosedError
from bkctl.scan.directory import LogFile
from bkctl.spark.answers import decode_answer, encode_answer

RUN = Run("/d/logs/0-0.run", 12, 0xFFFFFFFF)
MANIFEST = LogManifest(
    3, 1 << 40, -1, "auto", 7, 1, (1, 2), (RUN, RUN), ("torn",), None, learnt=((1, "crc32"),), unsettled=(9,)
)


@pytest.mark.parametrize(
    "result",
    [None, 42, MANIFEST, RUN, (5, RUN), Table(1, "/t", 2, b"\x00\xff"), Table(1, "/t", 0, None)],
)
def test_a_result_comes_back_as_it_was(result: object) -> None:
    assert decode_answer(encode_answer(result, 17)) == (result, 17)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("no"),
        CorruptionError("entry", offset=5, expected="a", found="b", path="/p"),
        StorageError("bad sector", path="/p", offset=9),
        NoSpaceError("full", path="/p"),
    ],
)
def test_an_error_comes_back_as_it_was(error: BkctlError) -> None:
    found, _ = decode_answer(encode_answer(error, 0))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_an_error_of_a_narrower_kind_comes_back_as_the_common_one() -> None:
    found, _ = decode_answer(encode_answer(StoreClosedError("closed"), 0))
    assert type(found) is StorageError


def test_a_manifest_that_an_earlier_run_left_comes_back_as_it_was(tmp_path: Path) -> None:
    """From its file it has lists where it had tuples."""
    work = WorkDirectory(str(tmp_path / "work"))
    work.prepare("logs")
    log = tmp_path / "3.log"
    log.write_bytes(bytes(100))
    run = write_run(work.run_path(3, 0), no_rows())
    changed_ns = log.stat().st_mtime_ns
    work.keep(replace(MANIFEST, size_bytes=100, mtime_ns=changed_ns, runs=(run,), lost=(1,), missing=("x",)))
    # One of a damaged log counts while the exchange of the indexes waits.
    Path(work.at(SWAP_MARKER)).touch()
    kept = work.manifest(LogFile(str(log), 3, 100), "auto")
    assert kept is not None
    assert decode_answer(encode_answer(kept, 0)) == (kept, 0)


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("an answer was unpickled",)


@pytest.mark.parametrize(
    "answer",
    [
        "[1, Infinity]",
        pickle.dumps((Harmful(), 0)),
        "",
        "[]",
        "[1, 2, 3]",
        '[{"kind": "Popen", "fields": {"args": "id"}}, 0]',
        '[{"error": "KeyboardInterrupt", "message": "", "facts": {}}, 0]',
        '[{"error": "RefusedError", "message": "", "facts": {"x": 1}}, 0]',
        '[{"kind": "Run", "fields": {"path": "/"}}, 0]',
        '[{"bytes": "zz"}, 0]',
        "[" * 100_000,
        json.dumps([[1], 0]),
    ],
)
def test_an_answer_that_no_task_makes_is_refused(answer: object) -> None:
    with pytest.raises(ConnectionFailedError, match="no task of ours"):
        decode_answer(answer)


def test_only_what_the_driver_made_is_unpickled() -> None:
    """In a task, where Spark has unpickled the driver's function already."""
    places = [
        (path.name, function.name)
        for path in Path(bkctl.spark.__path__[0]).glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and "pickle.loads" in ast.unparse(function)
    ]
    assert places == [("index_rebuild.py", "_run_tasks")]
