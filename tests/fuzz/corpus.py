"""The inputs that are kept: a text file a target, an input a line in base64, the shortest first.

They reach what the targets' own seeds do not. Inputs that once made a target fail stand among them for good.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from tests.fuzz.target import Target

CORPUS = Path(__file__).resolve().parent / "corpus"
_PACKAGE = str(Path(__file__).resolve().parents[2] / "bkctl")
#: Seeds that differ little from each other are many.
_KNOWN_MAX = 200
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


Arc = tuple[str, int, int]


def reach(target: Target, data: bytes) -> set[Arc]:
    """Return the pairs of lines of bkctl that follow each other while the target examines an input."""
    arcs: set[Arc] = set()

    def enter(frame: FrameType, event: str, _: object) -> Callable[[FrameType, str, object], object] | None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            return None
        before = 0

        def step(frame: FrameType, event: str, _: object) -> object:
            nonlocal before
            if event == "line":
                arcs.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        target.run(data)
    finally:
        sys.settrace(None)
    return arcs


def worth_keeping(target: Target, found: Iterable[bytes]) -> list[bytes]:
    """Return of these inputs the few that reach what those known do not, the shortest first."""
    known_inputs = known(target)
    for data in known_inputs:  # what is made once, and caches
        target.run(data)
    reached = set[Arc]().union(*(reach(target, data) for data in known_inputs[:_KNOWN_MAX]))
    room = KEPT_BYTES_MAX - sum(map(len, kept(target.name)))
    chosen = []
    for data in sorted(found, key=lambda data: (len(data), data)):
        if len(data) > min(INPUT_BYTES_MAX, room):
            continue
        arcs = reach(target, data)
        if not arcs <= reached:
            reached |= arcs
            room -= len(data)
            chosen.append(data)
    return chosen
