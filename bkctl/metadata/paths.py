"""Names below the ledgers root, and the rules for bookie ids.

::

    <root>/LAYOUT  INSTANCEID  available/<bookie>  available/readonly/<bookie>  cookies/<bookie>
    <root>/idgen/ID-0000000000  idgen-long/HOB-0000000001/ID-0000000000  underreplication/...
    <root>/00/0000/L0000  000/0000/0000/0000/L0000  L0000000000           ledgers, see codec.ledger_path

Source: ``org.apache.bookkeeper.util.BookKeeperConstants``, ``net.BookieId``,
``meta.AbstractZkLedgerManager.isSpecialZnode``.
"""

from __future__ import annotations

import re

from bkctl.errors import UsageError

LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
AVAILABLE = "available"
READ_ONLY = "readonly"
COOKIES = "cookies"
ID_GENERATOR = "idgen"
LONG_ID_GENERATOR = "idgen-long"
SEQUENCE_PREFIX = "ID-"
HIGH_BITS_PREFIX = "HOB-"
UNDER_REPLICATION = "underreplication"

#: First directories of the two trees, and a ledger of the flat layout (Java lists those of ten digits only).
LEGACY_DIRECTORY = re.compile(r"[0-9]{2}\Z")
LONG_DIRECTORY = re.compile(r"[0-9]{3}\Z")
FLAT_LEDGER = re.compile(r"L[0-9]{10,19}\Z")

# As upstream: the part ":-_" is a range and lets some more signs pass.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+\Z")


def check_bookie_id(bookie: str) -> str:
    """Return a bookie id after a check. Raises UsageError for one that Java or a node does not allow."""
    if not _BOOKIE_ID.match(bookie) or bookie.lower() == READ_ONLY or bookie in (".", ".."):
        raise UsageError(
            f"bookie id {bookie[:100]!r} is not allowed: letters, digits and : ; < = > ? @ [ \\ ] ^ _ . - "
            f"only, and not {READ_ONLY!r}"
        )
    return bookie
