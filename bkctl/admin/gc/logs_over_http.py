"""Ask a running bookie by its HTTP admin for the live data in its entry logs.

Our bookies report each log. A Java bookie reports the state of its compactions (``gc_details``, the
suspensions) and the names of its logs (``list_disk_file``), no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from bkctl.admin import http_json
from bkctl.admin.gc import over_http
from bkctl.admin.gc.explain import LogRow
from bkctl.admin.gc.log_facts import LogBalance
from bkctl.admin.gc.plan import SCARCE_SHARE, Candidates
from bkctl.admin.http_json import number, object_of, objects_of, text_of, truth
from bkctl.engine.gc.explanation import GARBAGE
from bkctl.errors import RefusedError
from bkctl.reporting import counted
from bkctl.scan.directory import LogFile


@dataclass(frozen=True, slots=True)
class LiveLogs:
    """The logs of one ledger directory. Of each log that a compaction may take, ``held`` False, the bytes are
    those that the bookie counts: all entries of live ledgers."""

    directory: str
    disk_bytes: int
    free_bytes: int
    rows: tuple[LogRow, ...]
    held: frozenset[int]

    def candidates(self) -> Candidates:
        """Sort the logs as candidates for a plan."""
        found = Candidates(self.directory)
        for row in self.rows:
            log = LogFile(row.path, row.log_id, row.bytes)
            if row.damaged:
                found.damaged.append((log, row.why))
            elif row.log_id in self.held:
                found.held.append((log, row.why))
            elif row.eligible == GARBAGE:
                found.garbage.append(log)
            else:
                found.others.append(LogBalance(log, row.record_bytes or 0, row.live_bytes or 0))
        return found

    @property
    def is_scarce(self) -> bool:
        """Whether so little of the disk is free that logs are taken by what they give back."""
        return self.free_bytes < self.disk_bytes * SCARCE_SHARE


def ask_logs(url: str) -> list[LiveLogs] | None:
    """Ask one of our bookies for its logs, by directory; None from a Java bookie.

    Raises ConnectionFailedError, RefusedError for an error status.
    """
    try:
        answer = http_json.call("GET", http_json.base(url), http_json.GC_LOGS)
    except http_json.NoSuchPathError:
        return None
    if not isinstance(answer, list):
        raise RefusedError(f"{url}: its answer is no list of ledger directories")
    return [_live_logs(each) for each in objects_of(answer)]


def ask_java(url: str) -> list[str]:
    """Return the state of compaction on a Java bookie, in words, for each ledger directory.

    Raises ConnectionFailedError, RefusedError.
    """
    url = http_json.base(url)
    major, minor = over_http.suspended(url)
    logs = _log_names(url)
    rest = f"{counted(len(logs), 'entry log')} in all directories; a Java bookie does not say what they hold:"
    rest += " run this command on its directories (they may be in use)"
    found = []
    for each in over_http.details(url):
        kinds = (
            _kind("major", each.major_compactions, each.last_major_ms, suspended=major),
            _kind("minor", each.minor_compactions, each.last_minor_ms, suspended=minor),
        )
        forced = "a forced collection runs" if each.collecting else "no forced collection runs"
        found.append("; ".join((forced, *kinds, rest)))
    return found


def _kind(name: str, count: int, last_ms: int, *, suspended: bool) -> str:
    try:
        last = datetime.fromtimestamp(last_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # no date: the number is shown as the bookie gave it
        last = f"{last_ms} ms"
    return f"{name} compaction{' suspended' if suspended else ''}: {count} since the start, clock at {last}"


def _log_names(url: str) -> list[str]:
    answer = object_of(http_json.call("GET", url, "/api/v1/bookie/list_disk_file?file_type=entrylog"))
    names = [name for value in answer.values() for name in (text_of(value) or "").split()]
    # RocksDB's own logs are among them, with decimal numbers of six digits.
    return [name for name in names if name.endswith(".log") and len(name) != len("000000.log")]


def _live_logs(values: dict[str, object]) -> LiveLogs:
    directory = text_of(values.get("directory")) or ""
    states = objects_of(values.get("logs"))
    return LiveLogs(
        directory,
        number(values.get("disk_bytes")),
        number(values.get("free_bytes")),
        tuple(_row(directory, state) for state in states),
        frozenset(number(state.get("log_id")) for state in states if truth(state.get("held"))),
    )


def _row(directory: str, state: dict[str, object]) -> LogRow:
    live, total = state.get("live_bytes"), state.get("total_bytes")
    known = isinstance(live, int) and isinstance(total, int)
    live_bytes, total_bytes = (number(live), number(total)) if known else (None, None)
    ratio = number(live) / number(total) if number(total) else 0.0
    pairs = state.get("ledgers")
    ledgers = [each for each in pairs if isinstance(each, list)] if isinstance(pairs, list) else []
    damaged = truth(state.get("damaged"))
    return LogRow(
        dir=directory,
        log_id=number(state.get("log_id")),
        path=text_of(state.get("path")) or "",
        bytes=number(state.get("file_bytes")),
        record_bytes=total_bytes,
        live_bytes=live_bytes,
        counted_bytes=live_bytes,
        live_ratio=round(ratio, 6) if known else None,
        ledgers=None,
        live_ledgers=tuple((number(each[0]), number(each[1])) for each in ledgers if len(each) == 2),
        age_s=number(state.get("age_s")),
        source=text_of(state.get("source")) or "",
        eligible=text_of(state.get("eligible")) or "",
        why=text_of(state.get("why")) or "",
        damaged=damaged,
        alarming=damaged,
    )
