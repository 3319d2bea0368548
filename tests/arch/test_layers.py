"""The import contracts of pyproject.toml hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_import_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_a_forbidden_import_would_be_seen(tmp_path: Path) -> None:
    """The contracts are only worth something when they fail: one planted import for each, in a copy."""
    planted = {
        "codec/entry.py": "import socket",
        "scan/__init__.py": "import typer",
        "admin/__init__.py": "import rich",
        "admin/top/__init__.py": "import textual",
        "pipeline/__init__.py": "import pyspark",
        "server/__init__.py": "import bkctl.admin.new_file",
        "errors.py": "import bkctl.codec",
        "commands/version.py": "import rocksdict\nimport bkctl.commands.cookie.app",
        # A circle of two modules of one package, for types alone.
        "metrics/metric.py": "if TYPE_CHECKING:\n    import bkctl.metrics.bookie_catalogue",
    }
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "pyproject.toml").write_text((REPOSITORY / "pyproject.toml").read_text())
    for source in (REPOSITORY / "bkctl").rglob("*.py"):
        target = copy / source.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        extra = planted.get(source.relative_to(REPOSITORY / "bkctl").as_posix())
        target.write_text(f"{text}\n{extra}\n" if extra else text)
    program = f"import sys; sys.path.insert(0, {str(copy)!r}); " + (
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = {line.removesuffix(" BROKEN").strip() for line in done.stdout.splitlines() if "BROKEN" in line}
    assert len(broken) == 8, done.stdout
    for importing in ("bkctl.admin.top -> textual", "bkctl.pipeline -> pyspark", "bkctl.scan -> typer"):
        assert importing in done.stdout
    assert "No cycles are allowed in bkctl.metrics." in done.stdout
