"""Kinds of ledger storage are compared in one place, and every table of operations has a row for each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from bkctl import storage_kinds
from bkctl.admin.index.rebuild.rebuild import REBUILDS
from bkctl.engine.storage_parts import StorageChoice
from bkctl.scan.index import READERS
from bkctl.storage_kinds import KINDS, StorageKind

PACKAGE = Path(storage_kinds.__file__).parent

#: The place that may compare kinds.
HOME = Path(storage_kinds.__file__)

#: What a kind is called: by commands, and by Java's classes with and without their packages.
NAMES = {kind.name for kind in KINDS} | {
    name for kind in KINDS for each in kind.classes for name in (each, each.rsplit(".", 1)[-1])
}

#: The constants of the home that are a kind or one of its names.
CONSTANTS = {
    name
    for name, value in vars(storage_kinds).items()
    if isinstance(value, StorageKind) or (isinstance(value, str) and value in NAMES)
}


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """The node itself, or the members of a display: ``in ("db", "idx")``."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        yield from node.elts
    else:
        yield node


def _is_kind(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in NAMES
    if isinstance(node, ast.Attribute):
        # DB.name, storage_kinds.DB, and the class name of a kind
        return node.attr in CONSTANTS or _is_kind(node.value)
    return isinstance(node, ast.Name) and node.id in CONSTANTS


def comparisons(source: str) -> list[int]:
    """The lines that compare a kind of storage with another, or branch on one by ``match``."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        if any(_is_kind(value) for side in sides for value in _values(side)):
            lines.append(node.lineno)
    return lines


def test_no_other_module_compares_kinds_of_storage() -> None:
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != HOME
        for line in comparisons(path.read_text())
    ]
    assert not found, f"ask for a fact of bkctl.storage_kinds instead: {', '.join(found)}"


@pytest.mark.parametrize(
    "planted",
    [
        'if kind == "db": pass',
        'if "idx" in directory.indexes: pass',
        'if storage not in (None, "db", "idx"): pass',
        "if space.kind is DB: pass",
        "if storage_kinds.IDX != space.kind: pass",
        "if space.kind.name == DB.name: pass",
        "if values.text(key) != SORTED_LEDGER_STORAGE: pass",
        'if name.endswith(".x") or name == "DbLedgerStorage": pass',
        'match kind:\n    case "db": pass',
        "chosen = [member for member in members if member.kind == IDX]",
    ],
)
def test_a_comparison_would_be_seen(planted: str) -> None:
    assert comparisons(planted)


def test_a_row_of_a_table_is_no_comparison() -> None:
    assert not comparisons("READERS = {DB: read, IDX: walk}\nREADERS[space.kind](path, DB.name)")


@pytest.mark.parametrize("table", [READERS, REBUILDS], ids=["readers", "rebuilds"])
def test_every_table_has_a_row_for_each_kind(table: Mapping[StorageKind, object]) -> None:
    assert set(table) == set(KINDS)


def test_every_class_has_a_package_that_serves_it() -> None:
    for kind in KINDS:
        for package in kind.packages.values():
            opening = import_module(f"bkctl.engine.{package}.opening")
            assert isinstance(opening.CHOICE, StorageChoice)


def test_no_two_kinds_have_a_name_a_class_or_an_index_in_common() -> None:
    for field in ("classes", "indexes"):
        every = [name for kind in KINDS for name in getattr(kind, field)]
        assert len(every) == len(set(every)), field
    assert len({kind.name for kind in KINDS}) == len(KINDS)
