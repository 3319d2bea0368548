"""Print the pins, with their hashes, of what a plain installation of bkctl needs: plain_pins.py PINS."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import sbom


def plain_pins(pins: str) -> list[str]:
    """Return the entries of a list of pins for the packages that a plain installation has here."""
    _, packages = sbom.installation()
    entries = re.finditer(r"^([A-Za-z0-9._-]+)==.*(?:\n[ ].*)*", pins, re.MULTILINE)
    return [entry[0] for entry in entries if sbom.canonicalize_name(entry[1]) in packages]


if __name__ == "__main__":
    print("\n".join(plain_pins(Path(sys.argv[1]).read_text())))
