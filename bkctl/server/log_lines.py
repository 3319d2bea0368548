"""Log lines: one text line each for a person, one JSON object each for a machine."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """``{"time": ..., "level": ..., "logger": ..., "message": ...}``, with ``trace`` behind an exception."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(*, json_lines: bool, verbose: bool) -> None:
    """Send everything to standard error from now on; ``verbose`` shows what only debugging needs."""
    handler = logging.StreamHandler(sys.stderr)
    if json_lines:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    if not verbose:
        quiet_libraries()


def quiet_libraries() -> None:
    """No lines of theirs for every attempt to connect: what comes of it is told by us."""
    for noisy in ("aiohttp.access", "kazoo"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
