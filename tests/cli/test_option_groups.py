"""Groups of options: what typer sees of them, and what a command gets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from bkctl.commands.frame.coercion import convert_plain_values_directly
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key

SCHEMA = (Key("colour", "string", "what it looks like"),)


@dataclass(frozen=True, slots=True)
class Paint:
    colour: Annotated[str, typer.Option("--colour", envvar="COLOUR", help="Of the paint.")] = "red"
    layers: Annotated[int, typer.Option("--layers", min=1, help="How often.")] = 2


@dataclass(frozen=True, slots=True)
class Thick(Paint):
    layers: Annotated[int, typer.Option("--layers", help="Many.")] = 9


@dataclass(frozen=True, slots=True)
class Wall:
    name: Annotated[str, typer.Argument(metavar="WALL")]
    paint: Paint = field(default_factory=Paint)
    windows: Annotated[list[str] | None, typer.Option("--window")] = None


def command_of(seen: list[Any]) -> typer.Typer:
    convert_plain_values_directly()
    app = noun_app("Walls.")

    @app.command()
    @takes(SCHEMA)
    def paint_command(
        context: typer.Context, wall: Wall, dry: Annotated[bool, typer.Option("--dry")] = False,
        *, output: OutputOption = None,
    ) -> None:  # fmt: skip
        """Paint a wall."""
        seen.append((wall, dry, output, context.get_parameter_source("colour").name))  # type: ignore[union-attr]

    return app


def test_a_command_gets_its_groups_filled() -> None:
    seen: list[Any] = []
    line = ["north", "--layers", "3", "--window", "a", "--window", "b", "--dry"]
    result = CliRunner().invoke(command_of(seen), line, env={"COLOUR": "blue"})
    assert result.exit_code == 0, result.output
    assert seen == [(Wall("north", Paint("blue", 3), ["a", "b"]), True, None, "ENVIRONMENT")]


def test_without_options_a_group_has_its_defaults() -> None:
    seen: list[Any] = []
    assert CliRunner().invoke(command_of(seen), ["north"]).exit_code == 0
    assert seen == [(Wall("north"), False, None, "DEFAULT")]


@pytest.mark.parametrize("line", [[], ["north", "--layers", "0"], ["north", "--layers", "many"]])
def test_what_a_field_does_not_take_is_a_usage_error(line: list[str]) -> None:
    seen: list[Any] = []
    assert CliRunner().invoke(command_of(seen), line).exit_code == 2
    assert not seen


def test_options_stand_in_the_help_where_their_group_stands() -> None:
    text = CliRunner().invoke(command_of([]), ["--help"]).output
    names = ["--colour", "--layers", "--window", "--dry", "--output", "--schema"]
    assert [name for name in text.split() if name in names] == names
    assert "Paint a wall." in text


def test_a_schema_is_printed_in_place_of_the_work() -> None:
    seen: list[Any] = []
    result = CliRunner().invoke(command_of(seen), ["north", "--schema", "-o", "json"])
    assert result.exit_code == 0
    assert "what it looks like" in result.output
    assert not seen


def test_a_field_that_is_declared_anew_keeps_its_place() -> None:
    @takes()
    def command(*, paint: Thick) -> None:
        assert paint == Thick("red", 9)

    parameters = inspect.signature(command).parameters
    assert [(name, each.default) for name, each in parameters.items()] == [("colour", "red"), ("layers", 9)]
    command(colour="red", layers=9)
