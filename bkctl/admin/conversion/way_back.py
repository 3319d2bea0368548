"""The changes of a conversion, in the words of the journal of repairs, by which ``repair undo`` goes back.

The plan of a directory is a list of renames. Of the old index and of logs each is one; the new index and the
copies of entries, which came from the work directory, were not there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join

from bkctl.admin.conversion.switch import DirectoryPlan
from bkctl.admin.repairs.repair_journal import (
    Intent,
    changes_database,
    changes_file,
    makes_directory,
    moves_file,
)
from bkctl.codec.last_id import LAST_ID_NAME
from bkctl.scan.directory import CONVERSION_NAME

MADE_BY = "bookie convert"


def way_back(plans: Mapping[str, DirectoryPlan]) -> tuple[list[Intent], dict[str, bytes]]:
    """Return the changes in their order, and what stood in the files that were changed."""
    intents: list[Intent] = []
    contents: dict[str, bytes] = {}
    for directory, plan in plans.items():
        if plan.last_id is not None:
            path = join(directory, LAST_ID_NAME)
            intents.append(changes_file(path))
            if plan.last_id[0] is not None:
                contents[path] = plan.last_id[0].encode("latin-1")
        intents.append(makes_directory(join(directory, plan.kept)))
        for old, new in plan.moves:
            path = join(directory, new)
            if not old.startswith(f"{CONVERSION_NAME}/"):
                intents.append(moves_file(join(directory, old), path))
            elif new.endswith(".log"):
                intents.append(changes_file(path))
            else:
                intents.append(changes_database(path))
    return intents, contents
