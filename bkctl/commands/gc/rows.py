"""Keys and rows of ``bkctl gc``, the same for directories and for a running bookie."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bkctl.commands.frame.output import Format, Key, Schema, write_rows
from bkctl.reporting import counted, listed

if TYPE_CHECKING:
    from bkctl.admin.gc.explain import LogRow
    from bkctl.admin.gc.plan import Candidates

#: Of an explained log, what a table has no room for.
_NOT_IN_TABLES = ("path", "record_bytes", "damaged")
#: Ledgers of a log that a table shows.
_TOP_LEDGERS = 3

_DIR = Key("dir", "string", "ledger directory; a log id means something only with it")
_LOG = (
    Key("log_id", "int", "entry log, decimal"),
    Key("path", "string", "its file"),
    Key("bytes", "int", "size of the file"),
)

EXPLAIN_SCHEMA: Schema = (
    Key("dir", "string or null", "ledger directory; null of a Java bookie by --url, as all but live_ledgers"),
    Key("log_id", "int or null", "entry log, decimal; means something only with its directory"),
    Key("path", "string or null", "its file"),
    Key("bytes", "int or null", "size of the file"),
    Key("record_bytes", "int or null", "bytes of all entries in it, size words included; null when damaged"),
    Key("live_bytes", "int or null", "bytes of live ledgers' entries that the index has in this log"),
    Key("counted_bytes", "int or null", "bytes that a running bookie counts: all entries of live ledgers"),
    Key("live_ratio", "number or null", "live_bytes / record_bytes"),
    Key("ledgers", "int or null", "ledgers with entries in it, dead ones included; null by --url"),
    Key("live_ledgers", "array", "of {ledger, bytes}, most bytes first; by --url 1000 at most"),
    Key("age_s", "int or null", "seconds since it was last written"),
    Key(
        "source",
        "string or null",
        "walk (all entries were read), map or cache (with --quick), scan or none (by --url)",
    ),
    Key("eligible", "string or null", "garbage (can go as it is), minor or major (after a compaction), no"),
    Key(
        "why", "string", "why it is eligible, or exactly why not; of a Java bookie how its compactions stand"
    ),
    Key("damaged", "bool or null", "whether it cannot be read to its end; it is quarantined"),
)

CURVE_SCHEMA: Schema = (
    _DIR,
    Key("threshold", "number", "logs with a smaller share of live bytes are compacted"),
    Key("garbage_logs", "int", "logs without a live ledger"),
    Key("garbage_bytes", "int", "what removing these gives back, without any copying"),
    Key("logs", "int", "logs to be compacted"),
    Key("copied_bytes", "int", "what has to be copied for that"),
    Key("freed_bytes", "int", "what compaction gives back, copies taken off"),
    Key("reclaimed_bytes", "int", "garbage_bytes and freed_bytes"),
)

STEP_SCHEMA: Schema = (
    _DIR,
    Key("action", "string", "remove or compact"),
    *_LOG,
    Key("copied_bytes", "int", "what has to be copied"),
    Key("freed_bytes", "int", "what it gives back, the copy taken off"),
    Key("fits", "bool", "whether the disk has room for the copy"),
)

PLAN_SCHEMA: Schema = (
    *CURVE_SCHEMA,
    *(
        key._replace(meaning=f"{key.meaning} (with --threshold)")
        for key in STEP_SCHEMA
        if key.key in ("action", "log_id", "path", "bytes", "fits")
    ),
)

RUN_SCHEMA: Schema = (
    Key("dir", "string or null", "ledger directory; null of a Java bookie"),
    Key(
        "action",
        "string",
        "delete_ledgers, finish (a compaction that was cut off), remove, compact, left, set_aside (damaged);"
        " collect of a Java bookie",
    ),
    Key("log_id", "int or null", "entry log, decimal"),
    Key("path", "string or null", "its file"),
    Key("bytes", "int", "size of the file"),
    Key("copied_bytes", "int", "what was copied"),
    Key("freed_bytes", "int", "what it gave back, the copy taken off"),
    Key("ledgers", "int", "ledgers that were deleted"),
    Key("detail", "string", "why, or why not"),
    Key("done", "bool", "whether it was done; false with --dry-run"),
)


def damaged_line(path: str, why: str) -> str:
    """Return the line for stderr about a damaged log, which names it once."""
    return f"bkctl: {path}: {why.removeprefix(f'{path}: ')}\n"


def held_line(candidates: Candidates) -> str:
    """Return the line for stderr about logs that stay for a reason that is not their contents."""
    held = counted(len(candidates.held), "log")
    return f"bkctl: {candidates.directory}: {held} held back; 'bkctl gc explain' says why\n"


def explain_keys(table: bool) -> Schema:
    """Return the keys of explained logs; a table has no room for all of them."""
    return tuple(key for key in EXPLAIN_SCHEMA if not (table and key.key in _NOT_IN_TABLES))


def explained(row: LogRow, table: bool) -> dict[str, object]:
    """Return a log as a row of output."""
    shown: dict[str, object] = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    del shown["alarming"]
    ledgers = row.live_ledgers
    if table:
        for key in _NOT_IN_TABLES:
            del shown[key]
        shown["live_ledgers"] = listed([f"{ledger}: {size}" for ledger, size in ledgers], _TOP_LEDGERS)
    else:
        shown["live_ledgers"] = [{"ledger": ledger, "bytes": size} for ledger, size in ledgers]
    return shown


def write_plan(
    rooms: Iterable[tuple[Candidates, int, bool]], threshold: float | None, output: Format | None
) -> None:
    """Write the curve of each room's candidates, or the steps at a threshold.

    A room is (candidates, free bytes, whether these are few).
    """
    if threshold is None:
        curve = (row for each, _, _ in rooms for row in each.curve())
        rows = ({**dataclasses.asdict(row), "reclaimed_bytes": row.reclaimed_bytes} for row in curve)
        write_rows(rows, CURVE_SCHEMA, output)
        return
    write_rows(
        (
            step
            for each, free_bytes, scarce in rooms
            for step in each.steps(threshold, free_bytes, scarce=scarce)
        ),
        STEP_SCHEMA,
        output,
    )
