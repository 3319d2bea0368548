"""A process that examines changed inputs of one target.

``python -m tests.fuzz.mutation_process TARGET SECONDS SEED LAST FOLDER...`` is for code that ends a process,
as kernels with sanitizers do: the input that is being examined stands in the file LAST, its length in front.
The folders hold inputs to change, beside the seeds and what is kept.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

from tests.fuzz.sanitized_kernels import PATH_VARIABLE, load_kernels

_LENGTH = struct.Struct(">I")


def last_input(path: Path) -> bytes:
    """Return the input that a process examined last."""
    content = path.read_bytes()
    (length,) = _LENGTH.unpack_from(content)
    return content[_LENGTH.size : _LENGTH.size + length]


def main(arguments: list[str]) -> int:
    """Examine inputs for some seconds; the number of them goes to stdout."""
    name, seconds, seed, last, *folders = arguments
    if os.environ.get(PATH_VARIABLE):
        load_kernels(os.environ[PATH_VARIABLE])
    from tests.fuzz.corpus import known
    from tests.fuzz.mutation import mutations
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    inputs = known(target)
    inputs += [path.read_bytes() for folder in folders for path in sorted(Path(folder).glob("*"))]
    size_max = _LENGTH.size + max([target.bytes_max, *map(len, inputs)])
    Path(last).write_bytes(bytes(size_max))
    until_s, examined = time.monotonic() + float(seconds), 0
    with open(last, "r+b") as file, mmap.mmap(file.fileno(), size_max) as window:

        def examine(data: bytes) -> None:
            window[: _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
            target.run(data)

        for data in inputs:
            examine(data)
        for examined, data in enumerate(  # noqa: B007
            mutations(inputs, target.words, target.bytes_max, int(seed)), len(inputs) + 1
        ):
            examine(data)
            if time.monotonic() > until_s:
                break
    print(f"runs={examined}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
