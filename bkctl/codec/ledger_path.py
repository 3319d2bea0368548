"""The path of a ledger in the metadata store: ledger id <-> path below the ledgers root.

With s10 the id as ten decimal digits and s19 as nineteen:

============ ==================================================== =============================
layout       path                                                 4294967296
============ ==================================================== =============================
flat         ``/L`` s10                                           ``/L4294967296``
legacy       ``/`` s10[0:2] ``/`` s10[2:6] ``/L`` s10[6:10]       ``/42/9496/L7296``
long         ``/`` s19[0:3] ``/`` [3:7] ``/`` [7:11] ``/``        ``/000/0000/0042/9496/L7296``
             [11:15] ``/L`` [15:19]
hierarchical legacy below 2147483647, else long                   ``/000/0000/0042/9496/L7296``
============ ==================================================== =============================

The way back needs no layout: a first directory of two digits is the legacy form, of three the long form. The
id 2147483647 itself is in the long tree. Java's legacy form takes the first ten digits of a longer id, so
that such ids collide; they are refused here. Its flat form grows with the id (and then cannot be listed by
Java); the longer form is read, and not written.

Source: ``org.apache.bookkeeper.util.StringUtils``, ``meta.FlatLedgerManager``,
``meta.LegacyHierarchicalLedgerManager``, ``meta.LongHierarchicalLedgerManager``,
``meta.HierarchicalLedgerManager``.
"""

from __future__ import annotations

import enum
import re

from bkctl.errors import CorruptionError, UsageError

LEDGER_ID_MAX = 2**63 - 1

#: The first id that the hierarchical layout keeps in the long tree.
LONG_TREE_FIRST = 2**31 - 1

#: The first id that does not fit ten digits.
TEN_DIGITS_LIMIT = 10**10

_TAIL = re.compile(
    r"(?:/(?P<a>[0-9]{2})/(?P<b>[0-9]{4})/L(?P<c>[0-9]{4})"
    r"|/(?P<d>[0-9]{3})/(?P<e>[0-9]{4})/(?P<f>[0-9]{4})/(?P<g>[0-9]{4})/L(?P<h>[0-9]{4})"
    r"|/L(?P<i>[0-9]{10,19}))\Z"
)


class LedgerLayout(enum.Enum):
    """How ledger ids become paths; the value is the short name used here and in messages."""

    FLAT = "flat"
    LEGACY = "legacy"
    LONG = "long"
    HIERARCHICAL = "hierarchical"


def ledger_path(ledger: int, layout: LedgerLayout = LedgerLayout.HIERARCHICAL) -> str:
    """Return the path below the root, with a leading slash.

    Raises UsageError for an id that is no i64 >= 0, or that the layout cannot hold.
    """
    if not 0 <= ledger <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {ledger} is out of range")
    if layout is LedgerLayout.HIERARCHICAL:
        layout = LedgerLayout.LEGACY if ledger < LONG_TREE_FIRST else LedgerLayout.LONG
    if layout is LedgerLayout.LONG:
        digits = f"{ledger:019d}"
        return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"
    if ledger >= TEN_DIGITS_LIMIT:
        raise UsageError(f"ledger id {ledger} has more than the ten digits of layout {layout.value!r}")
    digits = f"{ledger:010d}"
    if layout is LedgerLayout.FLAT:
        return f"/L{digits}"
    return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def ledger_id(path: str) -> int:
    """Return the id of a path below the root (``/00/0000/L0002``), in any layout.

    Raises CorruptionError when it is no ledger's path.
    """
    split = split_ledger_path(path)
    if split is None or split[0]:
        raise CorruptionError("ledger path", expected="/00/0000/L0002 or the like", found=repr(path[:80]))
    return split[1]


def split_ledger_path(path: str) -> tuple[str, int] | None:
    """Return the root and ledger id of a whole path, or None for a znode that is no ledger.

    ``/ledgers/00/0000/L0002`` gives ``("/ledgers", 2)``. An id beyond an i64 is no ledger.
    """
    found = _TAIL.search(path)
    if found is None:
        return None
    ledger = int("".join(digits for digits in found.groups() if digits))
    if ledger > LEDGER_ID_MAX:
        return None
    return path[: found.start()], ledger
