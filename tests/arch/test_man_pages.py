"""The committed man pages are what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("man_make", REPOSITORY / "man" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_pages_are_the_generated_ones(maker: ModuleType) -> None:
    committed = {path.name: path.read_text() for path in (REPOSITORY / "man").glob("*.[17]")}
    made = maker.pages()
    assert sorted(committed) == sorted(made), "run `make man`"
    for name, text in made.items():
        assert committed[name] == text, f"{name}: run `make man`"


def test_every_command_is_there_with_its_options(maker: ModuleType) -> None:
    pages = maker.pages()
    for noun in maker.NOUNS.values():
        page = pages[f"bkctl-{noun.name}.1"]
        for words, verb in maker.verbs_of(maker.load(noun)):
            heading = " ".join(["bkctl", noun.name, *words]).upper().replace("-", "\\-")
            assert f".SH {heading}" in page
            for parameter in verb.params:
                for option in (
                    parameter.opts if parameter.param_type_name == "option" and not parameter.hidden else ()
                ):
                    assert option.replace("-", "\\-") in page
        assert f"bkctl\\-{noun.name}" in pages["bkctl.1"]


def test_every_command_opens_with_its_safety_class_and_has_examples(maker: ModuleType) -> None:
    for noun in maker.NOUNS.values():
        for words, verb in maker.verbs_of(maker.load(noun)):
            line = " ".join([noun.name, *words])
            assert verb.help.startswith(("[offline] [", "[online] [")), line
            assert f"  bkctl {line}" in verb.help, f"{line}: no example"
