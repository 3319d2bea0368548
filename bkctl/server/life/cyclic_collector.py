"""Python's cyclic garbage collector in a process that is a bookie's alone: short pauses, not rare long ones.

A full collection visits every object that could be part of a cycle, and no other thread runs during that
time: 30 ms for the imported modules, 60 more for 200,000 open ledgers. It comes again whenever the number of
objects has grown by a quarter. Hardly any of them ever dies in a cycle. So objects that a collection finds
alive are *frozen*: no later collection visits them, and reference counts still free them. Each collection
then visits only some thousand new objects.

The price: a cycle that dies after it was frozen is never freed. So objects that a bookie makes again and
again (connections, long polls, runs) must not end as a cycle;
``tests/unit/server/life/test_cyclic_collector.py`` checks that.

This setting is of the whole process, with the objects of other code. A bookie inside another program
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
