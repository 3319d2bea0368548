"""Every function that decodes bytes or text of somebody else is reached by a fuzz target, or listed here."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

PACKAGE = Path(__file__).resolve().parents[2] / "bkctl"
DECODES = re.compile(r"(decode|parse|unpack|split|feed|walk|directives|merge_text|from_message)(_|$)")
#: Functions that read something of a path are decoders, too, when they do not leave that to a scan.
READS = re.compile(r"(read|load)_")
READERS = (
    "codec",
    "config",
    "kvstore",
    "protocol",
    "scan",
    "server/http",
    "pipeline/table_sets.py",
    "metadata/uri.py",
)
#: What no target reaches, and why.
NOT_REACHED = {
    "_kernels/_api.py:split_records": "a signature, of which there are two twins",
    "_kernels/_api.py:walk_columns": "a signature, of which there are two twins",
    "_kernels/_api.py:walk_entries": "a signature, of which there are two twins",
    "codec/entry.py:split_last": "cuts columns that are decoded already",
    "commands/frame/root.py:parse_args": "of typer, over what the person at the shell typed",
    "commands/frame/targets.py:split_targets": "looks for files; the parsers of ids are reached",
    "config/properties.py:read_bytes": "opens the file; the target hands its bytes in",
    "metadata/tree_walk.py:walk": "goes through nodes and decodes none",
}


@cache
def decoders() -> dict[tuple[str, int], str]:
    """Place of each decoder, ``(file, line)``, with its name as ``file:function`` below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            reads = READS.match(node.name) and name.startswith(READERS) and not _is_method(node)
            if DECODES.match(node.name) or reads:
                # A code object begins at its first decorator.
                line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[str(path), line] = f"{name}:{node.name}"
    return found


def _is_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(node.args.args) and node.args.args[0].arg == "self"


@pytest.fixture(scope="module")
def reached() -> set[str]:
    """The decoders that run while every target examines its seeds and what is kept for it."""
    known, called = decoders(), set[tuple[str, int]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            called.add((code.co_filename, code.co_firstlineno))

    for target in TARGETS.values():
        inputs = corpus.known(target)
        sys.setprofile(note)
        try:
            # Variants of one seed reach what it reaches.
            for data in inputs[:: max(1, len(inputs) // 100)]:
                target.run(data)
        finally:
            sys.setprofile(None)
    return {known[place] for place in called & known.keys()}


def test_every_decoder_is_reached_by_a_target_or_listed(reached: set[str]) -> None:
    missing = sorted(set(decoders().values()) - reached - NOT_REACHED.keys())
    assert not missing


def test_what_is_listed_is_there_and_not_reached(reached: set[str]) -> None:
    assert not NOT_REACHED.keys() - set(decoders().values())
    assert not NOT_REACHED.keys() & reached
    assert all(NOT_REACHED.values())


def test_the_list_of_decoders_is_long() -> None:
    assert len(decoders()) > 80
