"""An option that many commands have is one and the same in all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from bkctl.commands.frame.root import app

#: Options of groups, and in how many ways they are declared. A bookie's configuration and a cluster's are
#: two things of one name. Metadata are those of a live cluster, or of a dump as well; for digests alone, and
#: for a pipeline, the line names them and no variable does. `top` looks at several URLs. The password of
#: `bench` is of no use elsewhere.
WAYS = {
    "--conf": 3, "--metadata": 4, "-X": 1, "--url": 3, "--trust-dump": 1,
    "--tls-ca": 1, "--tls-cert": 1, "--tls-key": 1,
    "--password": 2, "--password-file": 1, "--password-hex": 1,
    "--dry-run": 1, "--yes": 1, "--output": 1, "--schema": 1,
}  # fmt: skip


def parameters_of(command: Any, names: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the parameters of a command and of the commands below it."""
    yield from command.params
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, (*names, name)
            if (*names, name) != ("context", "add"):  # it keeps what other commands are to use
                yield from parameters_of(below, (*names, name))


def test_an_option_is_the_same_everywhere() -> None:
    ways: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for parameter in parameters_of(get_command(app)):
        if parameter.opts[0].startswith("-"):
            declared = (
                parameter.help,
                parameter.metavar,
                parameter.default,
                parameter.envvar,
                parameter.multiple,
            )
            ways[max(parameter.opts, key=len)].add(tuple(map(str, declared)))
    assert len(ways) > 90, "the options of all nouns"
    assert {name: len(ways[name]) for name in WAYS} == WAYS
