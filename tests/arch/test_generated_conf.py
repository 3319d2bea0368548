"""conf/bk_server.conf and bk_server.conf(5) are what the key declarations say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from bkctl.config.document import conf_text, man_page
from bkctl.config.keys import State
from bkctl.config.loader import load
from bkctl.config.server_keys import SERVER_KEYS

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conf_make", REPOSITORY / "conf" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_files_are_the_generated_ones(maker: ModuleType) -> None:
    documents = maker.documents()
    assert {path.name for path in documents} == {"bk_server.conf", "bk_server.conf.5"}
    for path, text in documents.items():
        assert path.read_text() == text, f"{path}: run `make conf`"


def test_the_file_loads_without_a_word() -> None:
    config, notices = load(str(REPOSITORY / "conf" / "bk_server.conf"), {}, {})
    assert notices == []
    assert config.directories.ledgers == ("/var/lib/bookkeeper/ledgers",)


def test_a_commented_line_shows_the_default() -> None:
    """With every such line active the settings are the same."""
    text = conf_text()
    active = re.sub(r"^#([A-Za-z][A-Za-z0-9_.]*=.+)$", r"\1", text, flags=re.MULTILINE)
    assert active != text
    config, _ = load("f", {}, {}, read=lambda _path: text.encode())
    same, _ = load("f", {}, {}, read=lambda _path: active.encode())
    assert same == config


def test_every_key_is_in_every_document() -> None:
    conf, page = conf_text(), man_page()
    for key in SERVER_KEYS.values():
        assert re.search(rf"^#? ?{re.escape(key.name)}[=:]", conf, re.MULTILINE), key.name
        assert rf"\fB{key.name}\fR" in page, key.name
    assert {key.state for key in SERVER_KEYS.values()} == set(State)


def test_documents_are_ascii_with_lines_of_a_readable_length() -> None:
    text = conf_text()
    assert text.isascii()
    assert man_page().isascii()
    assert max(map(len, text.splitlines())) <= 110
