"""Options and values that the commands of ``bkctl ledger`` share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.metadata.ledger_filter import LedgerFilter

_ID_MAX = 2**63 - 1


class StateName(StrEnum):
    """Values of ``--state``."""

    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


class NewDigest(StrEnum):
    """Values of ``--digest`` for a new ledger."""

    CRC32C = "crc32c"
    CRC32 = "crc32"
    MAC = "mac"
    DUMMY = "dummy"


def parse_ledger_id(text: str) -> int:
    """Parse a ledger id, 0 to 2^63 - 1. Raises ValueError."""
    if not text.isascii() or not text.isdecimal() or int(text[:20]) > _ID_MAX:
        raise ValueError(f"{text!r} is not a ledger id (expected 0 to {_ID_MAX}).")
    return int(text)


LedgerArgument = Annotated[
    int,
    typer.Argument(
        metavar="ID",
        show_default=False,
        parser=parse_ledger_id,
        help="Id of the ledger.",
        autocompletion=value_completion.ledgers,
    ),
]

LedgersArgument = Annotated[
    list[int],
    typer.Argument(
        metavar="ID...",
        show_default=False,
        parser=parse_ledger_id,
        help="Ids of ledgers.",
        autocompletion=value_completion.ledgers,
    ),
]

StateOption = Annotated[
    list[StateName] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only ledgers in this state: OPEN, IN_RECOVERY or CLOSED; may be repeated.",
    ),
]
LookOption = Annotated[
    int,
    typer.Option(
        "--look",
        "--watch",
        metavar="TIME",
        parser=parse_duration_ms,
        help="How long to watch an open ledger for an active writer.",
    ),
]


@dataclass(frozen=True, slots=True)
class LedgerConditions:
    """Which ledgers a command is about; each condition that is given has to hold."""

    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            parser=parse_duration_ms,
            help="Only ledgers that are older than this: 90s, 1h, 7d.",
        ),
    ] = None
    newer_than: Annotated[
        int | None,
        typer.Option(
            "--newer-than",
            metavar="TIME",
            parser=parse_duration_ms,
            help="Only ledgers that are younger than this: 90s, 1h, 7d.",
        ),
    ] = None
    bookie: Annotated[
        list[str] | None,
        typer.Option(
            "--bookie",
            metavar="ID",
            help="Only ledgers with this bookie in an ensemble; may be repeated.",
            autocompletion=value_completion.bookies,
        ),
    ] = None
    custom: Annotated[
        list[str] | None,
        typer.Option(
            "--custom",
            metavar="NAME[=VALUE]",
            help="Only ledgers with this custom metadata; if repeated, with all of them.",
        ),
    ] = None

    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Only ledgers of this topic of Apache Pulsar, persistent://tenant/namespace/name, with its "
            "partitions and subscriptions; or of this namespace or tenant.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether there is any condition."""
        return any(each is not None for each in self._all())

    def _all(self) -> tuple[object, ...]:
        return (self.older_than, self.newer_than, self.bookie, self.custom, self.topic)

    def as_filter(self, states: list[StateName] | None) -> LedgerFilter:
        """Return the conditions, and the states, as what a listing takes."""
        from bkctl.clock import SystemClock
        from bkctl.metadata.ledger_filter import LedgerFilter
        from bkctl.types import LedgerState

        now_ms = SystemClock().time_ms()
        return LedgerFilter(
            states=frozenset(LedgerState(state.value) for state in states or ()),
            created_before_ms=None if self.older_than is None else now_ms - self.older_than,
            created_after_ms=None if self.newer_than is None else now_ms - self.newer_than,
            bookies=frozenset(self.bookie or ()),
            custom=tuple(_wanted_pair(text) for text in self.custom or ()),
            topic=self.topic,
        )


def _wanted_pair(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--custom {text}: expected NAME or NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def custom_pairs(texts: list[str] | None) -> tuple[tuple[str, bytes], ...]:
    """Parse the custom metadata of a new ledger, from ``NAME=VALUE``."""
    pairs: dict[str, bytes] = {}
    for text in texts or ():
        name, value = _wanted_pair(text)
        if value is None:
            raise UsageError(f"--custom {text}: expected NAME=VALUE")
        pairs[name] = value
    return tuple(pairs.items())
