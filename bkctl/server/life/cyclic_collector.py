"""Python's cyclic garbage collector in a process that is a bookie's alone: short pauses, not rare long ones.

A full collection goes through every object that could be part of a cycle, with no other thread running: 30 ms
for what is imported, 60 more for 200,000 open ledgers, and it comes again whenever a quarter has been added.
Hardly anything of that ever dies in a cycle, so objects that a collection finds alive are *frozen*: no other
one visits them, and reference counts still free them. It then goes through some thousand new objects.

The price: a cycle that dies after it was frozen stays. So what a bookie makes again and again (connections,
long polls, runs) must not end as a cycle; ``tests/unit/server/life/test_cyclic_collector.py`` watches over
that.

This is a matter of the whole process, objects of others included. A bookie inside another program
(:mod:`bkctl.server.life.embedded`) leaves the collector as its host has it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects that are new, and collections of a generation before the next one has its turn: of objects that all
#: stay alive a full collection meets 18,000, which takes some 3 ms.
THRESHOLDS = (1000, 5, 2)

_OLDEST = 2


@contextmanager
def short_pauses() -> Iterator[None]:
    """Freeze what collections find alive as long as this lasts."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*before)
        gc.unfreeze()


def freeze() -> None:
    """Collect everything there is once, and freeze the rest: at the end of a start."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _freeze_survivors(phase: str, about: dict[str, int]) -> None:
    if phase == "stop" and about["generation"] == _OLDEST:
        gc.freeze()
