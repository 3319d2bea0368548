"""The list of what a repair could not keep: ledgers and entries, as JSON that the next repair reads.

::

    {
        "kind": "bkctl losses",
        "version": 1,
        "bookie": "10.0.0.1:3181",
        "made_by": "lastmark set",
        "losses": [{"ledger": 7, "entries": [[0, 12], [14, 14]], "maybe_more": false, "cause": "..."}],
    }

``bookie`` is null where no cookie names it. ``entries`` are ranges with both ends included, ascending and
apart from each other. ``maybe_more`` says that other entries of the ledger may be lost as well, so that
every entry of it has to be compared with the other replicas; it may stand beside an empty list. Each ledger
stands once, in ascending order. Every ledger of the list is in limbo on that bookie.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bkctl.codec.json_document import DocumentKind

KIND = "bkctl losses"
VERSION = 1
DOCUMENT = DocumentKind("list of losses", KIND, VERSION)
_expect = DOCUMENT.expect
_I64_MAX = 2**63 - 1

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Loss:
    """The losses of one ledger on a bookie."""

    ledger: int
    entries: tuple[Range, ...]
    maybe_more: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a bookie; ``made_by`` is the command that found it out."""

    bookie: str | None
    made_by: str
    losses: tuple[Loss, ...]


def merged_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges of entries in order, those that touch or overlap made one."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def ranges_text(ranges: Sequence[Range]) -> str:
    """Return ranges as people write them: ``0-12, 14``."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def encode_losses(losses: Losses) -> bytes:
    """Return the list as a JSON document, a ledger on each line."""
    head = {"kind": KIND, "version": VERSION, "bookie": losses.bookie, "made_by": losses.made_by}
    lines = [
        json.dumps(
            {
                "ledger": loss.ledger,
                "entries": [list(each) for each in loss.entries],
                "maybe_more": loss.maybe_more,
                "cause": loss.cause,
            }
        )
        for loss in losses.losses
    ]
    body = ",\n ".join(lines)
    return (json.dumps(head)[:-1] + ', "losses": [' + (f"\n {body}\n" if lines else "") + "]}\n").encode()


def decode_losses(data: bytes) -> Losses:
    """Return the list in a document. Raises CorruptionError for anything that :func:`encode_losses` never
    writes; fields of later versions are left out."""
    document = DOCUMENT.members(data)
    bookie, made_by, rows = (document.get(name) for name in ("bookie", "made_by", "losses"))
    _expect(bookie is None or _is_text(bookie), "a bookie's id", bookie)
    _expect(_is_text(made_by), "the command that made it", made_by)
    _expect(isinstance(rows, list), "a list of losses", rows)
    assert isinstance(rows, list), "it was checked"
    losses = tuple(map(_loss, rows))
    for before, behind in pairwise(losses):
        _expect(before.ledger < behind.ledger, f"a ledger above {before.ledger}", behind.ledger)
    return Losses(bookie, str(made_by), losses)


def _loss(row: Any) -> Loss:
    _expect(isinstance(row, dict), "an object for each ledger", row)
    ledger, entries, more = (row.get(name) for name in ("ledger", "entries", "maybe_more"))
    cause = row.get("cause", "")
    _expect(_is_number(ledger), "a ledger id", ledger)
    _expect(isinstance(entries, list), "ranges of entries", entries)
    _expect(isinstance(more, bool), "maybe_more, true or false", more)
    _expect(_is_text(cause), "a cause", cause)
    ranges: list[Range] = []
    for each in entries:
        _expect(isinstance(each, list) and len(each) == 2 and all(map(_is_number, each)), "a range", each)
        first, last = each
        _expect(first <= last and (not ranges or first > ranges[-1][1] + 1), "ranges in order", each)
        ranges.append((first, last))
    _expect(bool(ranges) or more, "entries, or maybe_more", row)
    return Loss(ledger, tuple(ranges), more, cause)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _I64_MAX


def _is_text(value: Any) -> bool:
    # A lone surrogate is no text that can be written again.
    return isinstance(value, str) and value.isprintable()
