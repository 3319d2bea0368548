"""Saying that nobody finds or copies lost replicas, where a short list would else pass for good news."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.metadata.autorecovery_api import Underreplication


def warn_if_idle(known: Underreplication) -> None:
    """Say on stderr that autorecovery is switched off, or that no auditor is elected."""
    if not known.enabled():
        text = "autorecovery is switched off: nobody copies; 'bkctl autorecovery enable' switches it on"
    elif known.auditor() is None:
        text = (
            "no auditor is elected: ledgers that lack replicas may not be marked; "
            "'bkctl autorecovery start' runs one"
        )
    else:
        return
    sys.stderr.write(f"bkctl: {text}\n")
