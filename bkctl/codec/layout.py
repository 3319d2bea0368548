"""LAYOUT: which ledger manager a cluster uses, as text in the metadata store.

Two lines, no newline after the second::

    2
    org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory: 1

====== ==========================================================================================
line   content
====== ==========================================================================================
1      format of the layout in decimal, 1 or 2
2      format 2: class of the ledger manager's factory, ``:``, version of the manager (always 1)
2      format 1: ``flat`` or ``hierarchical`` (here the 2-4-4 tree), ``:``, version of the manager
====== ==========================================================================================

Only the last dotted component of the class counts here, so that shaded prefixes read too. Anything after
the second ``:`` is ignored, as Java ignores it.

Source: ``org.apache.bookkeeper.meta.LedgerLayout``, ``AbstractZkLedgerManagerFactory``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import CorruptionError, RefusedError

#: The format that is written.
LAYOUT_FORMAT = 2

#: The only version that any ledger manager has ever had.
MANAGER_VERSION = 1

#: Bound on the text; real ones have some 70 bytes.
LAYOUT_BYTES_MAX = 4096

_PACKAGE = "org.apache.bookkeeper.meta."
_CLASSES = {
    LedgerLayout.HIERARCHICAL: "HierarchicalLedgerManagerFactory",
    LedgerLayout.LONG: "LongHierarchicalLedgerManagerFactory",
    LedgerLayout.LEGACY: "LegacyHierarchicalLedgerManagerFactory",
    LedgerLayout.FLAT: "FlatLedgerManagerFactory",
}
_LAYOUTS = {name: layout for layout, name in _CLASSES.items()}
_FORMAT_1_TYPES = {"flat": LedgerLayout.FLAT, "hierarchical": LedgerLayout.LEGACY}
_LINE_END = re.compile(r"\r\n|\r|\n")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class LayoutText:
    """The fields of LAYOUT; ``factory`` is the class, or the type in format 1."""

    format_version: int
    factory: str
    manager_version: int = MANAGER_VERSION

    @property
    def layout(self) -> LedgerLayout:
        """Return the layout of the paths. Raises RefusedError for a manager that is not ours."""
        known = (
            _FORMAT_1_TYPES.get(self.factory)
            if self.format_version == 1
            else _LAYOUTS.get(self.factory.rpartition(".")[2])
        )
        if known is None:
            raise RefusedError(
                f"the cluster's LAYOUT names ledger manager {self.factory[:200]!r}, which is not supported "
                f"(supported: {', '.join(_LAYOUTS)})"
            )
        if self.manager_version != MANAGER_VERSION:
            raise RefusedError(
                f"the cluster's LAYOUT asks for version {self.manager_version} of {self.factory[:200]!r}; "
                f"only version {MANAGER_VERSION} is known"
            )
        return known


def layout_text(layout: LedgerLayout) -> LayoutText:
    """Return the text that Java stores for a ledger layout."""
    return LayoutText(LAYOUT_FORMAT, _PACKAGE + _CLASSES[layout])


def encode_layout(text: LayoutText) -> bytes:
    """Return the bytes of the znode."""
    return f"{text.format_version}\n{text.factory}:{text.manager_version}".encode()


def decode_layout(data: bytes) -> LayoutText:
    """Return the fields of a LAYOUT znode. Raises CorruptionError when it is no layout of format 1 or 2."""
    if len(data) > LAYOUT_BYTES_MAX:
        raise CorruptionError("LAYOUT", offset=LAYOUT_BYTES_MAX, expected=f"at most {LAYOUT_BYTES_MAX} bytes")
    try:
        lines = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptionError("LAYOUT", offset=error.start, expected="UTF-8 text") from None
    if lines[0] not in ("1", "2"):
        raise CorruptionError("LAYOUT", expected="format 1 or 2 on line 1", found=repr(lines[0][:40]))
    offset = min(len(lines[0]) + 1, len(data))
    factory, *rest = (lines[1] if len(lines) > 1 else "").split(":")
    if not factory or not rest or not _NUMBER.match(rest[0]):
        raise CorruptionError(
            "LAYOUT", offset=offset, expected="factory:version on line 2", found=repr(lines[1:2])[:80]
        )
    return LayoutText(int(lines[0]), factory, int(rest[0]))
