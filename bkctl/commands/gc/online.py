"""``bkctl gc .. --url``: the garbage of a running bookie, asked and collected through its HTTP admin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bkctl.commands.frame.confirmation import ask
from bkctl.commands.frame.output import Format, chosen_format, write_rows
from bkctl.commands.gc.rows import (
    EXPLAIN_SCHEMA,
    RUN_SCHEMA,
    damaged_line,
    explain_keys,
    explained,
    held_line,
    write_plan,
)
from bkctl.errors import NotFoundError, RefusedError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.gc.over_http import DirectoryGc

#: The words of the offline form for a bookie's names of what it did to a log.
_ACTIONS = {"deleted": "remove", "compacted": "compact"}


def explain(url: str, log_id: int | None, output: Format | None) -> int:
    """Write a row for each log, of a Java bookie one for each directory; return the exit code."""
    from bkctl.admin.gc.logs_over_http import ask_java, ask_logs

    found = ask_logs(url)
    table = chosen_format(output) is Format.TABLE
    if found is None:
        names = [key.key for key in EXPLAIN_SCHEMA]
        empty: dict[str, object] = dict.fromkeys(names)
        rows = [{**empty, "live_ledgers": [], "why": why} for why in ask_java(url)]
        keys = explain_keys(table)
        write_rows(({key.key: row[key.key] for key in keys} for row in rows), keys, output)
        return 0
    logs = [row for each in found for row in each.rows if log_id is None or row.log_id == log_id]
    if log_id is not None and not logs:
        raise NotFoundError(f"no entry log {log_id} (0x{log_id:x}) at {url}")
    write_rows((explained(row, table) for row in logs), explain_keys(table), output)
    for row in logs:
        if row.alarming:
            sys.stderr.write(f"bkctl: {row.path}: {row.why}\n")
    return int(any(row.alarming for row in logs))


def plan(url: str, threshold: float | None, output: Format | None) -> int:
    """Write the curve, or the steps at a threshold; return the exit code.

    Raises RefusedError for a Java bookie.
    """
    from bkctl.admin.gc.logs_over_http import ask_logs

    found = ask_logs(url)
    if found is None:
        raise RefusedError(
            f"{url}: a Java bookie does not report what its logs hold. Run 'bkctl gc plan' on its "
            "directories; the bookie can keep running"
        )
    rooms = [(each.candidates(), each.free_bytes, each.is_scarce) for each in found]
    write_plan(rooms, threshold, output)
    damaged = [each for candidates, _, _ in rooms for each in candidates.damaged]
    for log, why in damaged:
        sys.stderr.write(damaged_line(log.path, why))
    for candidates, _, _ in rooms:
        if candidates.held:
            sys.stderr.write(held_line(candidates))
    return int(bool(damaged))


def run(url: str, major: bool, minor: bool, confirmed: bool, *, yes: bool, output: Format | None) -> int:
    """Have the bookie collect, and compact what is asked for; rows of what it did, and the exit code."""
    from bkctl.admin.gc import over_http

    kinds = [name for name, flag in (("major", major), ("minor", minor)) if flag]
    compaction = f" with a {' and a '.join(kinds)} compaction" if kinds else ""
    ask(f"have the bookie at {url} collect garbage now{compaction}", yes=yes, has_dry_run=False)
    if confirmed:
        over_http.confirm_deletions(url)
    if kinds or not confirmed:
        over_http.trigger(url, major=major, minor=minor)
    over_http.wait(url, None, lambda doing: None)
    found = over_http.details(url)
    if not write_rows((row for each in found for row in _rows(each)), RUN_SCHEMA, output):
        sys.stderr.write(f"bkctl: {url}: collected; there was nothing to delete, remove or compact\n")
    if any(each.held_deletions for each in found):
        return 4
    if any(each.stopped_by for each in found):
        return 3
    return int(any(each.set_aside for each in found))


def _rows(found: DirectoryGc) -> list[dict[str, object]]:
    """Return what a pass did to ledgers and logs.

    Of a Java bookie, the rows say that it ran a pass, and how its compactions stand.
    """
    rows = []
    if found.directory is None:
        detail = (
            f"a Java bookie: {found.major_compactions} major, {found.minor_compactions} minor compactions"
        )
        return [_row(found, "collect", None, f"{detail} since its start", done=not found.collecting)]
    if found.held_deletions:
        waiting = counted(found.held_deletions, "deletion waits", "deletions wait")
        detail = f"{waiting} to be confirmed: add --confirm-deletions"
        rows.append(_row(found, "left", None, detail, ledgers=found.held_deletions))
    if found.stopped_by:
        rows.append(_row(found, "left", None, found.stopped_by))
    if found.deleted_ledgers:
        detail = "not in the metadata any more; their rows"
        rows.append(_row(found, "delete_ledgers", None, detail, ledgers=found.deleted_ledgers, done=True))
    for log in found.logs:
        action = _ACTIONS.get(log.action, log.action)
        row = _row(found, action, log.log_id, log.reason, done=log.action in _ACTIONS)
        path = f"{found.directory}/{log.log_id:x}.log"
        sizes = {"bytes": log.file_bytes, "copied_bytes": log.copied_bytes, "freed_bytes": log.freed_bytes}
        rows.append({**row, "path": path, **sizes})
    return rows


def _row(
    found: DirectoryGc, action: str, log_id: int | None, detail: str, *, ledgers: int = 0, done: bool = False
) -> dict[str, object]:
    return {
        "dir": found.directory,
        "action": action,
        "log_id": log_id,
        "path": None,
        "bytes": 0,
        "copied_bytes": 0,
        "freed_bytes": 0,
        "ledgers": ledgers,
        "detail": detail,
        "done": done,
    }
