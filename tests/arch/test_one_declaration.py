"""A configuration key is declared once: with it the field of the settings, its default and its unit."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.settings import ClientSettings
from bkctl.config.keys import ConfigKey, Kind, Setting, State, settings_of
from bkctl.config.server_keys import MODULES, SERVER_KEYS
from bkctl.net.settings import NetSettings, bounds_of
from bkctl.net.tls import ClientTlsSettings

PACKAGE = Path(__file__).resolve().parents[2] / "bkctl"
SECTIONS: list[type[Any]] = [
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == module.__name__
]
TYPES = {
    Kind.INT: {"int", "int | None", "float", "float | None"},
    Kind.LONG: {"int", "int | None", "float", "float | None"},
    Kind.FLOAT: {"float"},
    Kind.BOOL: {"bool"},
    Kind.LIST: {"tuple[str, ...]"},
}
TEXT = {"str", "str | None"}


def keyed(kind: type[Any]) -> list[tuple[type[Any], str, ConfigKey]]:
    """Return the fields of ``kind`` that keys fill, those of its sections among them."""
    found: list[tuple[type[Any], str, ConfigKey]] = []
    for name, one in settings_of(kind):
        if isinstance(one, Setting):
            found.append((kind, name, one.key))
        else:
            found += [(one[0], inner, part.key) for inner, part in one[1].items()]
    return found


#: Below this the classes were not found, and nothing would be tested.
SECTIONS_MIN = 15
FIELDS = [each for section in SECTIONS for each in keyed(section)]


def test_every_key_is_declared_once() -> None:
    names = Counter(key.name for module in MODULES for key in module.KEYS)
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) == len(SERVER_KEYS)


def test_a_key_that_is_declared_twice_does_not_pass_for_one() -> None:
    from bkctl.config.server_keys import by_name, journal

    with pytest.raises(AssertionError, match="journalDirectories"):
        by_name([*journal.KEYS, *journal.KEYS])


def test_every_key_fills_one_field() -> None:
    times = Counter(key.name for _, _, key in FIELDS)
    assert [name for name, count in times.items() if count > 1] == []
    assert len(SECTIONS) >= SECTIONS_MIN
    assert {key.state for _, _, key in FIELDS} == {State.HONOURED}


def test_the_type_of_a_field_is_that_of_its_key() -> None:
    for owner, name, key in FIELDS:
        annotation = owner.__annotations__[name]
        assert annotation in TYPES.get(key.kind, TEXT), (
            f"{owner.__name__}.{name}: {annotation} for {key.kind}"
        )


def test_a_key_of_the_client_fills_one_field() -> None:
    found = [
        key.name for kind in (ClientSettings, NetSettings, ClientTlsSettings) for _, _, key in keyed(kind)
    ]
    assert {"addEntryTimeoutSec", "numChannelsPerBookie", "tlsEnabledProtocols"} <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("kind", [ClientSettings, NetSettings])
def test_a_number_of_the_client_has_its_bounds(kind: type[Any]) -> None:
    numbers = {one.name for one in dataclasses.fields(kind) if one.type == "int"}
    assert numbers
    assert numbers == {name for name, _ in bounds_of(kind)}


def settings_declared_in(tree: ast.Module) -> list[tuple[str, str]]:
    """Return class and field of every class of settings."""
    return [
        (node.name, field.target.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Settings")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]


def twins(tree: ast.Module) -> list[str]:
    """Return the fields that repeat one which a key fills."""
    owned = {name for _, name, _ in FIELDS}
    return [f"{owner}.{name}" for owner, name in settings_declared_in(tree) if name in owned]


@pytest.mark.parametrize("part", ["engine", "server"])
def test_no_other_settings_repeat_a_field(part: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted((PACKAGE / part).rglob("*.py"))
        for name in twins(ast.parse(path.read_text()))
    ]
    assert found == []


def test_a_repeated_field_is_found() -> None:
    text = "class GcSettings:\n    wait_ms: int = 600_000\n    other_ms: int = 1\n"
    assert twins(ast.parse(text)) == ["GcSettings.wait_ms"]
