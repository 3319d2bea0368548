"""A process that examines changed inputs of some targets.

``python -m tests.fuzz.mutation_process TARGET,... SECONDS SEED LAST FOLDER...`` is for code that ends a
process: kernels with sanitizers. The input that is being examined stands in the file LAST, its
length in front. The folders hold inputs to change, beside the seeds and what is kept.
Each target has so many seconds.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.sanitized_kernels import PATH_VARIABLE, load_kernels

if TYPE_CHECKING:
    from tests.fuzz.target import Target

_LENGTH = struct.Struct(">I")


def last_input(path: Path) -> bytes:
    """Return the input that a process examined last."""
    content = path.read_bytes()
    (length,) = _LENGTH.unpack_from(content)
    return content[_LENGTH.size : _LENGTH.size + length]


def main(arguments: list[str]) -> int:
    """Examine inputs; the number of them goes to stdout."""
    name, seconds, seed, last, *folders = arguments
    if os.environ.get(PATH_VARIABLE):
        load_kernels(os.environ[PATH_VARIABLE])
    from tests.fuzz.corpus import known
    from tests.fuzz.mutation import mutations
    from tests.fuzz.targets import TARGETS

    examined = 0
    for target in (TARGETS[each] for each in name.split(",")):
        inputs = known(target)
        inputs += [path.read_bytes() for folder in folders for path in sorted(Path(folder).glob("*"))]
        changed = mutations(inputs, target.words, target.bytes_max, int(seed))
        examined += _examine(target, inputs, changed, float(seconds), Path(last))
    print(f"runs={examined}")
    return 0


def _examine(
    target: Target, inputs: Sequence[bytes], changed: Iterator[bytes], seconds: float, last: Path
) -> int:
    """Examine the inputs, then changed ones for some seconds; return how many they were."""
    size_max = _LENGTH.size + max([target.bytes_max, *map(len, inputs)])
    last.write_bytes(bytes(size_max))
    until_s, examined = math.inf, 0
    with open(last, "r+b") as file, mmap.mmap(file.fileno(), size_max) as window:
        for data in chain(inputs, changed):
            window[: _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
            target.run(data)
            examined += 1
            if examined == len(inputs):
                until_s = time.monotonic() + seconds
            if time.monotonic() > until_s:
                break
    return examined


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
