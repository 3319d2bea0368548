"""Threads of engine and server begin in one module, whose rule says what ends them."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bkctl"
RULE = PACKAGE / "engine" / "engine_thread.py"
MODULES = sorted(
    path for folder in ("engine", "server") for path in (PACKAGE / folder).rglob("*.py") if path != RULE
)
#: They look at the future of everything that they hand to a pool.
POOLS = {
    PACKAGE / "engine" / "work_threads.py",
    PACKAGE / "server" / "http" / "store_threads.py",
    PACKAGE / "server" / "wire" / "stage_pool.py",
}


def calls(source: str, names: set[str]) -> list[int]:
    """Lines that call, or subclass, something of one of these names, as an attribute or by itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        used: list[ast.expr] = []
        if isinstance(node, ast.Call):
            used = [node.func]
        elif isinstance(node, ast.ClassDef):
            used = node.bases
        found += [each.lineno for each in used if name_of(each) in names]
    return found


def name_of(used: ast.expr) -> str:
    if isinstance(used, ast.Attribute):
        return used.attr
    return used.id if isinstance(used, ast.Name) else ""


def test_a_thread_is_started_by_the_rule_alone() -> None:
    for path in MODULES:
        source = path.read_text()
        assert not calls(source, {"Thread", "Timer", "start_new_thread"}), path
        if path not in POOLS:
            assert not calls(source, {"ThreadPoolExecutor"}), path


def test_the_look_finds_a_thread() -> None:
    for source in ("threading.Thread(target=f)", "class T(Thread): pass", "threading.Timer(1, f)"):
        assert calls(source, {"Thread", "Timer"}) == [1]
    assert calls(RULE.read_text(), {"Thread"})
