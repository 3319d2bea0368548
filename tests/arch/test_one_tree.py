"""Processes that tests start run the code of this tree, and one place sees to that: ``tests/conftest.py``."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VARIABLE = "PYTHONPATH"
#: The place itself, what hands on Spark's own, and a plain installation, which must not see this tree.
ALLOWED = {
    "tests/arch/test_one_tree.py",
    "tests/conftest.py",
    "tests/spark/conftest.py",
    "tests/support/plain_install.py",
    "tests/system/test_plain_install.py",
}


def settings_of_the_path(text: str) -> list[int]:
    """Return the lines on which a program names the variable that decides whose code Python imports."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text if VARIABLE in text else ""))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.partition("=")[0] == VARIABLE
    ]


def test_a_process_runs_the_code_of_this_tree_wherever_it_starts(tmp_path: Path) -> None:
    program = "import bkctl; print(bkctl.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == REPOSITORY / "bkctl" / "__init__.py"
    assert os.environ[VARIABLE].split(os.pathsep)[0] == str(REPOSITORY)


def test_no_other_place_decides_whose_code_runs() -> None:
    found = {
        str(path.relative_to(REPOSITORY)): lines
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        if (lines := settings_of_the_path(path.read_text()))
    }
    assert ALLOWED - {"tests/arch/test_one_tree.py"} <= found.keys()
    assert found.keys() - ALLOWED == set()


def test_another_place_is_found() -> None:
    assert settings_of_the_path('env = {\n    "PYTHONPATH": "/elsewhere"}\n') == [2]
    assert settings_of_the_path('words = ("env", "PYTHONPATH=/elsewhere")\n') == [1]
