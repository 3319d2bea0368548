"""Log lines: one text line each for a person, one JSON object each for a machine.

A JSON line has ``time`` (UTC, ISO 8601), ``level``, ``logger`` and ``message``, and ``trace`` behind an
exception. The lines of a bookie's life carry ``event`` besides, with fields of their own:

================== ==============================================================================
event              fields
================== ==============================================================================
starting           ``pid``, ``version``
serving            ``bookie``, ``port``, ``http_port``, ``metrics_port``, ``loop``, ``replayed_entries``,
                   ``replayed_journals``, ``skipped_records``, ``mended_records``, ``doubted_records``,
                   ``keyless_ledgers``, ``seconds``, ``unclean``
ended_by_error     ``exit_code``: of the process, whether it had served or not; ``message`` is the reason
mode_changed       ``read_only``
admin_change       ``peer``, ``token``, ``method``, ``path``, ``status``: a change over HTTP, or entries
                   that were read there
disk_usage         ``directory``, ``filling`` (``normal``, ``high``, ``full``), ``used_percent``: a disk
                   crossed ``diskUsageWarnThreshold`` or ``diskUsageThreshold``, or came back
session_lost, session_back
repeated           ``count``: lines of one kind that were held back, see :class:`RepeatLimit`
failed             ``error``: the bookie cannot go on
stopping           ``signal``
stopped            ``seconds``
================== ==============================================================================

Nothing is written for a request that succeeds. One that fails for a reason of this bookie's own (an I/O
error) is, and because a bad disk fails thousands of them, lines of one kind have a limit.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from bkctl.errors import BkctlError
from bkctl.reporting import counted
from bkctl.server.life.foreign_lines import stream_of_log

_log = logging.getLogger(__name__)

#: Attributes that every record has; the rest of its attributes are a line's own fields.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

#: Lines of one kind that are written in one period, before they are only counted.
REPEATS_MAX = 20
REPEAT_PERIOD_S = 10.0
#: Kinds that are counted at a time; the one unseen for longest is forgotten for a new one.
KINDS_MAX = 256


class JsonLines(logging.Formatter):
    """``{"time": ..., "level": ..., "logger": ..., "message": ...}`` and the fields of the event.

    Every record makes one line of JSON in ASCII, also where its values do not fit its message or are no
    JSON.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # a key that is no text, a number that JSON has not, a circle
            return json.dumps({name: _plain(value) for name, value in line.items()})


def _message(record: logging.LogRecord) -> str:
    """Return the message; where its values do not fit it, both as they are."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's own text raises
        return f"{record.msg} {_shown(record.args)} ({type(error).__name__} in the values of this message)"


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | str) else _shown(value)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"


class RepeatLimit(logging.Filter):
    """Lets ``REPEATS_MAX`` lines of one kind through in ``REPEAT_PERIOD_S``; then counts.

    A kind is a logger and a message before its values are put in. A line of its own, with ``event``
    ``repeated``, reports how many were held back as soon as the next line of that kind passes. Life-cycle
    events and critical lines are never held back.
    """

    def __init__(self, tell: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._tell = tell
        self._lock = threading.Lock()
        #: For each kind: when its period began, lines in it, lines held back.
        self._kinds: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or hasattr(record, "event"):
            return True
        kind = (record.name, str(record.msg))
        with self._lock:
            began_s, lines, held = self._kinds.pop(kind, (record.created, 0, 0))
            if not 0 <= record.created - began_s < REPEAT_PERIOD_S:
                began_s, lines = record.created, 0
            passes = lines < REPEATS_MAX
            self._kinds[kind] = (began_s, lines + 1, 0 if passes else held + 1)
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        if passes and held:
            self._tell(_held_back(record, held))
        return passes


def _held_back(record: logging.LogRecord, count: int) -> logging.LogRecord:
    """Return the line about lines held back, in the time and under the name of the one that follows."""
    told = logging.LogRecord(
        record.name, record.levelno, record.pathname, record.lineno,
        "%s held back", (counted(count, "line like the next one was", "lines like the next one were"),), None,
    )  # fmt: skip
    told.created, told.msecs = record.created, record.msecs
    vars(told).update(event="repeated", count=count)
    return told


def log_to_stderr(*, json_lines: bool, verbose: bool) -> None:
    """Send everything to standard error from now on; ``verbose`` shows what only debugging needs."""
    handler = logging.StreamHandler(stream_of_log())
    if json_lines:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(message)s", "%H:%M:%S"))
    if not verbose:
        handler.addFilter(RepeatLimit(handler.handle))
    logging.captureWarnings(True)
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    if not verbose:
        logging.getLogger("aiohttp.access").setLevel(logging.ERROR)


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log what a thread ended by, which the interpreter would print as a trace of several lines."""
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = "?" if ended.thread is None else ended.thread.name
        _log.error("thread %s ended: %r", name, ended.exc_value, exc_info=ended.exc_value)


def _log_unraisable(failed: sys.UnraisableHookArgs) -> None:
    """Log an exception in a finaliser, as above."""
    _log.error("%s: %r", failed.err_msg or "in a finaliser", failed.exc_value, exc_info=failed.exc_value)


def log_end_by_error(error: Exception) -> int:
    """Log the last line of a bookie that could not start or not go on; return the exit code of the process.

    An error that is none of ours is a bug: its line has the trace.
    """
    is_ours = isinstance(error, BkctlError)
    exit_code = error.exit_code if isinstance(error, BkctlError) else BkctlError.exit_code
    fields = {"event": "ended_by_error", "exit_code": exit_code}
    _log.critical("%s", str(error) or repr(error), extra=fields, exc_info=None if is_ours else error)
    return exit_code
