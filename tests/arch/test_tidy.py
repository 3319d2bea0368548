"""House rules that a linter does not know."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "bkctl"
OURS = sorted(
    path
    for folder in (PACKAGE, REPOSITORY / "bench", REPOSITORY / "man", REPOSITORY / "tests")
    for path in folder.rglob("*.py")
    if not path.name.endswith("_pb2.py")
)
PRODUCT = [path for path in OURS if path.is_relative_to(PACKAGE)]

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
# Spelled apart, so that this file does not hold them.
MARKS = (f"{'TO'}DO", f"{'FIX'}ME", f"{'XX'}X", f"{'HA'}CK")
# Values that several formats share; the formats themselves are laid out in their own modules.
WITHOUT_BYTES = {"__init__", "ledger_metadata_values"}
# Openings that cannot be understood without the neighbours, and the rooms that are free of them.
RIDDLE = re.compile(r"(?:The same|It|All of (?:it|them)|What|Who(?:ever)?|Where|Every path|A text)\b")
#: Every package but those whose docstrings still open with a riddle; the list only grows.
PLAIN = {
    "_kernels",
    "admin",
    "client",
    "codec",
    "commands",
    "config",
    "directories",
    "engine",
    "kvstore",
    "metadata",
    "metrics",
    "net",
    "pipeline",
    "protocol",
    "replication",
    "scan",
    "server",
    "spark",
    "tui",
    "vfs",
}
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
# A layout is a table (its ruler: two or more runs of =) or, for text formats, an indented sample after "::".
LAYOUT = re.compile(r"^ *={2,}(?: +={2,})+$|::\n\n {4}\S", re.MULTILINE)


def named(paths: list[Path]) -> object:
    return pytest.mark.parametrize("path", paths, ids=[str(path.relative_to(REPOSITORY)) for path in paths])


def functions_over(source: str, lines_max: int) -> list[str]:
    """Names of the functions that are longer, from ``def`` to the last line."""
    return [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= lines_max
    ]


def left_over_marks(source: str) -> list[str]:
    """Lines with a note to oneself."""
    return re.findall(rf".*\b(?:{'|'.join(MARKS)})\b.*", source)


def prints(source: str) -> list[int]:
    """Line numbers of calls of ``print``."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def riddles(source: str) -> list[str]:
    """First lines of docstrings that open with a pronoun or a clause instead of a noun of their own."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, holders)]
    return [text.partition("\n")[0] for text in found if text and RIDDLE.match(text)]


@named(OURS)
def test_a_module_is_small_enough_to_read(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES_MAX
    assert not functions_over(source, FUNCTION_LINES_MAX)


@named(OURS)
def test_no_notes_to_oneself_are_left(path: Path) -> None:
    assert not left_over_marks(path.read_text())


@named(PRODUCT)
def test_a_module_is_named_after_what_it_holds(path: Path) -> None:
    assert not DRAWERS & set(path.relative_to(PACKAGE).with_suffix("").parts)


@named([path for path in PRODUCT if path.relative_to(PACKAGE).parts[0] in PLAIN])
def test_a_docstring_begins_with_what_it_is_about(path: Path) -> None:
    assert not riddles(path.read_text())


@named([path for path in PRODUCT if PACKAGE / "commands" not in path.parents])
def test_only_commands_print(path: Path) -> None:
    assert not prints(path.read_text())


@named([path for path in PRODUCT if path.parent == PACKAGE / "codec" and path.stem not in WITHOUT_BYTES])
def test_a_codec_opens_with_its_byte_layout(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert LAYOUT.search(docstring), "neither a table nor a sample of the bytes in the module's docstring"


def test_the_rules_notice_what_they_are_for() -> None:
    long = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert functions_over(long, FUNCTION_LINES_MAX)
    assert not functions_over(long.removesuffix("    x = 1\n"), FUNCTION_LINES_MAX)
    assert left_over_marks(f"x = 1  # {'TO'}DO: more")
    assert riddles('def f():\n    """The same for several."""\n') == ["The same for several."]
    assert not riddles('def f():\n    """Return the items."""\n')
    assert prints("if True:\n    print(1)") == [2]
    assert not prints("# print(1)\nx.print(1)")
    assert LAYOUT.search("Text.\n\n====== ====\noffset size\n====== ====\n0      i64")
    assert LAYOUT.search("Lines::\n\n    4\n    bookieHost: host")
    assert not LAYOUT.search("Entries as they lie on disk.\n====")
