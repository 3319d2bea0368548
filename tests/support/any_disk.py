"""Keys for bookies whose adds and logs must not depend on how full the machine's disk happens to be."""

from __future__ import annotations

ANY_DISK = {"diskUsageThreshold": "0.999", "diskUsageWarnThreshold": "0.999"}
