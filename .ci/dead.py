"""Name functions, methods and classes of bkctl that nothing but tests uses, as vulture finds them.

Exit code 1 when there is one that is not in the table below. Attributes and variables are left out: reports
and settings are read by the names of their fields.
"""

from __future__ import annotations

import re
import sys

from vulture import Vulture

from bkctl.metrics.bookie_catalogue import EACH, WHOLE
from bkctl.metrics.catalogue import TABLES

#: They name what they show in paths of attributes.
METRICS = [metric for table in (*TABLES, *WHOLE, *EACH) for metric in table]

FOLDERS = ["bkctl", "bench", "conf", "docs", "man", "pyspark_bookkeeper.py"]

#: Called by a library, by the name that the library gives it.
BY_LIBRARIES = [
    *(
        "action_*",
        "on_*",
        "compose",
        "check_action",
        "get_default_screen",
        "choose_tab",
        "render_line",
        "control",
    ),
    *(
        "open_*",
        "sort_by_column",
        "list_commands",
        "format_help",
        "coerce",
        "redirect_request",
        "__getattr__",
    ),
    *("get_type_name", "normalize_path", "delete_root_dir_contents", "seekable"),
    *("commit", "pushFilters", "streamReader", "initialOffset", "getDefaultReadLimit", "latestOffset"),
]
#: Kept, and why.
KEPT = {
    "MetadataUpdateMachine": "replication changes metadata by it",
    "decode_entry_list": "the repair of ledgers asks bookies for their lists of entries",
    "encode_slots": "writes the .idx files of InterleavedLedgerStorage",
    "encode_flags": "the other half of a codec",
    "decode_metadata_dump": "the other half of a codec, without a file",
    "append_all": "of the client that programs embed",
    "SortedFileWriter": "the protocol that writers of table files implement",
    "packages_of_extras": "a test compares it with pyproject.toml",
    "crash_now": "of a seam's twin",
    "heal": "of a seam's twin",
    "unsynced_batches": "of a seam's twin",
    "lose_session": "of a seam's twin",
    "restore_session": "of a seam's twin",
    "current_log_id": "what tests of the engine look at",
    "has_pending": "what tests of the engine look at",
    "queries_here": "what tests of the engine on Spark look at",
    "poke": "lets tests of the engine go on without a wait",
}


def main() -> int:
    """Print what is dead, and what is kept without need."""
    vulture = Vulture(
        ignore_names=BY_LIBRARIES, ignore_decorators=["@app.command*", "@app.callback*", "@on*"]
    )
    vulture.scavenge(FOLDERS, exclude=["*_pb2.py"])
    shown = {
        name
        for metric in METRICS
        for name in re.findall(r"\w+", f"{metric.of} {metric.failed} {metric.count}")
    }
    found = [
        item
        for item in vulture.get_unused_code(min_confidence=60)
        if item.typ in ("function", "method", "class", "property") and item.name not in shown
    ]
    for item in found:
        if item.name not in KEPT:
            print(f"{item.filename}:{item.first_lineno}: only tests use the {item.typ} {item.name}")
    used = sorted(KEPT.keys() - {item.name for item in found})
    for name in used:
        print(f".ci/dead.py: {name} is in the table and is used")
    return 1 if used or any(item.name not in KEPT for item in found) else 0


sys.exit(main())
