"""A process that fuzzes one target with Atheris: ``python -m tests.fuzz.atheris_process TARGET OPTION...``.

Atheris has libFuzzer choose inputs by what they reach in the code of bkctl, and ends the process at the first
input for which the target raises something; that input is a file then.
"""

from __future__ import annotations

import os
import sys

#: Every so many inputs one is examined with its memory, which takes some times as long.
MEMORY_EVERY = 250


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer's own options end it."""
    import atheris

    from tests.fuzz.sanitized_kernels import PATH_VARIABLE, load_kernels

    with atheris.instrument_imports(include=["bkctl"]):
        if os.environ.get(PATH_VARIABLE):
            load_kernels(os.environ[PATH_VARIABLE])
        from tests.fuzz.targets import TARGETS

    name, *options = arguments
    target = TARGETS[name]
    for seed in target.seeds():  # what is made once is made before memory is looked at
        target.run(seed)
    examined = 0

    def examine(data: bytes) -> None:
        nonlocal examined
        examined += 1
        if examined % MEMORY_EVERY:
            target.run(data)
        else:
            target.run_within_memory(data)

    atheris.Setup([sys.argv[0], *options], examine)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
