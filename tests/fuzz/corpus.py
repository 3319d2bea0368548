"""The inputs that are kept: a text file a target, an input a line in base64, the shortest first.

They reach what the targets' own seeds do not. Inputs that once made a target fail stand among them for good.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.target import Target

CORPUS = Path(__file__).resolve().parent / "corpus"
#: What is kept of a target's inputs, in bytes.
KEPT_BYTES_MAX = 8 << 10
#: A longer input is not kept.
INPUT_BYTES_MAX = 1 << 10


def kept(name: str) -> list[bytes]:
    """Return the inputs that are kept for a target."""
    path = CORPUS / f"{name}.b64"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Keep these inputs for a target, and no others."""
    lines = [
        base64.b64encode(data).decode() for data in sorted(set(inputs), key=lambda data: (len(data), data))
    ]
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{name}.b64"
    if lines:
        path.write_text("".join(f"{line}\n" for line in lines if line))
    else:
        path.unlink(missing_ok=True)


def known(target: Target) -> list[bytes]:
    """Return the seeds of a target and what is kept for it."""
    return [*target.seeds(), *kept(target.name)]


def write_files(folder: Path, inputs: Iterable[bytes]) -> None:
    """Write each input to a file of its own, named as libFuzzer names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
