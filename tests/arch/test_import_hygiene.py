"""What a start of the program, or an import of the codec, must not load: a cold start is felt."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bkctl.commands.frame.nouns import NOUNS

HEAVY = (
    "pyspark", "textual", "pyarrow", "aiohttp", "pandas", "numpy", "kazoo", "duckdb", "asyncio", "pydantic",
    "rich", "rocksdict", "uvloop",
)  # fmt: skip

RUN = """
import sys
try:
    {statement}
except SystemExit as stop:
    assert stop.code == 0, stop.code
print("|".join(sorted(name for name in sys.modules if "." not in name)), file=sys.stderr)
"""


def modules_after(statement: str) -> set[str]:
    """Top-level names in ``sys.modules`` of a fresh interpreter that ran the statement."""
    command = [sys.executable, "-W", "error", "-c", RUN.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split("|"))


def running(*arguments: str) -> str:
    return f"import bkctl.cli; sys.argv = ['bkctl', *{arguments!r}]; bkctl.cli.main()"


def test_top_level_help_does_not_even_load_typer() -> None:
    assert not modules_after(running("--help")) & {*HEAVY, "typer"}
    assert not modules_after(running("--version")) & {*HEAVY, "typer"}


@pytest.mark.parametrize("noun", NOUNS)
def test_help_of_a_noun_loads_nothing_heavy(noun: str) -> None:
    assert not modules_after(running(noun, "--help")) & set(HEAVY)


@pytest.mark.parametrize(
    "words",
    [("bookie", "start"), ("bookie", "init"), ("bookie", "format"), ("bookie", "status"), ("bench", "add")],
)
def test_help_of_commands_about_live_bookies_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    assert not modules_after(running(*words, "--help")) & set(HEAVY)


def test_asking_a_bookie_by_its_url_loads_neither_a_server_nor_a_metadata_client() -> None:
    status = "from bkctl.admin.bookie_status import ask_status"
    assert not modules_after(status) & {*HEAVY, "typer"}


def test_a_bookie_loads_http_and_the_metadata_drivers_when_it_uses_them() -> None:
    loaded = modules_after("import bkctl.server.life.foreground, bkctl.server.life.embedded")
    assert not loaded & ({*HEAVY, "typer", "sqlite3"} - {"asyncio", "rocksdict"})


def test_a_bookie_loads_no_twin_of_a_file_system_and_not_the_other_storage() -> None:
    twins = "{'bkctl.vfs.faulty', 'bkctl.vfs.memory', 'bkctl.engine.interleaved_storage.opening'}"
    statement = f"import bkctl.server.life.foreground; assert not {twins} & set(sys.modules)"
    assert "difflib" not in modules_after(statement)


def test_a_command_that_draws_no_table_loads_neither_rich_nor_pydantic() -> None:
    assert not modules_after(running("version", "-o", "json")) & set(HEAVY)
    assert "rich" in modules_after(running("version", "--schema", "-o", "table"))


# asyncio may come with the protobuf runtime, rocksdict is where scan reads indexes.
@pytest.mark.parametrize(
    ("package", "own"), [("bkctl.codec", {"asyncio"}), ("bkctl.scan", {"asyncio", "rocksdict"})]
)
def test_layers_below_load_nothing_heavy(package: str, own: set[str]) -> None:
    statement = (
        "import importlib, pkgutil; "
        f"package = importlib.import_module({package!r}); "
        "[importlib.import_module(found.name) for found in "
        "pkgutil.iter_modules(package.__path__, package.__name__ + '.')]"
    )
    assert not modules_after(statement) & {*HEAVY, "typer"} - own
