"""Options of the commands that list entries, from entry logs or from journals."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Digest(StrEnum):
    """Values of ``--digest``."""

    AUTO = "auto"
    OFF = "off"
    CRC32C = "crc32c"
    CRC32 = "crc32"
    MAC = "mac"
    DUMMY = "dummy"


class Payload(StrEnum):
    """Values of ``--payload``."""

    NONE = "none"
    SHA256 = "sha256"
    HEX = "hex"
    BASE64 = "base64"
    TEXT = "text"


DigestOption = Annotated[
    Digest,
    typer.Option(
        "--digest",
        metavar="auto|off|TYPE",
        help="How to check entries: auto takes the digest type from the ledgers' metadata or else from the "
        "entries; off checks none.",
    ),
]

PayloadOption = Annotated[
    Payload,
    typer.Option("--payload", metavar="FORM", help="Add the payload: none, sha256, hex, base64 or text."),
]
