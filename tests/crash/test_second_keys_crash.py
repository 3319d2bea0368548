"""Ledger ids used again under other keys, and a power cut at any moment: the bookie starts, and the present
ledger has all that was acknowledged of it."""

from __future__ import annotations

import os
import random

import pytest

from bkctl.codec.digest import master_key
from bkctl.engine.add_run import SingleAdd
from bkctl.errors import BkctlError
from tests.support.engine_model import PowerRig, random_settings
from tests.support.engine_rig import Answers, entry_body
from tests.support.grades import times
from tests.support.waiting import until

SEEDS = range(400 if "BKCTL_SOAK" in os.environ else times(8, 20))
LEDGERS = (4, 5)
STEPS = 40


class Lives:
    """Each life of a ledger id has a key of its own; ``acknowledged`` are bodies by life and entry."""

    def __init__(self) -> None:
        self.life = dict.fromkeys(LEDGERS, 0)
        self.acknowledged: dict[tuple[int, int], dict[int, bytes]] = {}

    def key(self, ledger: int, life: int) -> bytes:
        return master_key(b"%d/%d" % (ledger, life))

    def step(self, rig: PowerRig, chance: random.Random) -> None:
        ledger = chance.choice(LEDGERS)
        action = chance.random()
        if action < 0.65:
            self._add(rig, ledger, chance)
        elif action < 0.8:
            rig.bookie.delete_ledger(ledger)
            self.life[ledger] += 1
        elif action < 0.9:
            for storage in rig.bookie.storages:
                storage.flush()
        else:
            rig.bookie.checkpoint()

    def _add(self, rig: PowerRig, ledger: int, chance: random.Random) -> None:
        life = self.life[ledger]
        kept = self.acknowledged.setdefault((ledger, life), {})
        entry = len(kept)
        body = entry_body(ledger, entry, b"%d" % life * chance.choice((1, 300, 900)))
        answers = Answers()
        rig.bookie.writes.add(SingleAdd(body, self.key(ledger, life), answers, entry))
        # A machine that has stopped answers nothing that is held for lack of room.
        until(lambda: bool(answers.good or answers.bad or answers.again or rig.system.crashed))
        if answers.good:
            kept[entry] = body

    def check(self, rig: PowerRig) -> None:
        for ledger, life in self.life.items():
            acknowledged = self.acknowledged.get((ledger, life), {})
            if acknowledged:
                # Lives that were ended promise nothing any more, and a deletion may be cut off half-way.
                assert self._present(rig, ledger) == life
            for entry, body in acknowledged.items():
                assert rig.bookie.reads.read(ledger, entry) == body

    def _present(self, rig: PowerRig, ledger: int) -> int | None:
        """The life whose key opens the ledger, None when it is not known."""
        row = rig.bookie.storages[ledger % len(rig.bookie.storages)].ledgers.get(ledger)
        if row is None:
            return None
        keys = {self.key(ledger, life): life for life in range(self.life[ledger] + 1)}
        # A key that was torn is blank: nothing behind it was acknowledged.
        return keys.get(row.master_key)


def crashes(seed: int) -> None:
    chance = random.Random(seed)
    rig = PowerRig(random_settings(random.Random(seed)), crash_after=chance.randrange(150))
    lives = Lives()
    try:
        rig.start()
        for _ in range(STEPS):
            lives.step(rig, chance)
    except BkctlError:
        assert rig.system.crashed or rig.bookie.failure is not None
    cut = chance.choice((None, chance))
    rig = rig.after_power_cut(cut)
    rig.start()
    lives.check(rig)
    rig.stop()
    with rig.reopen() as again:
        again.start()
        lives.check(again)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_present_life_has_all_that_was_acknowledged(seed: int) -> None:
    crashes(seed)
