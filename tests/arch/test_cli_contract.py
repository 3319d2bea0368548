"""docs/cli.md is the JSON contract: the keys of every command, as the commands print them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_committed_contract_is_what_the_commands_print() -> None:
    spec = importlib.util.spec_from_file_location("docs_make_cli", REPOSITORY / "docs" / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    committed = (REPOSITORY / "docs" / "cli.md").read_text()
    assert committed == maker.page(), "run `make docs`, and tell users of the change"
    for words in maker.commands():
        assert f"## bkctl {' '.join(words)}\n" in committed
