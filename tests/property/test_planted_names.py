"""Commands in a directory of somebody else, who planted links, FIFOs, devices and folders at their names.

Each command is run once to learn the names below the bookie's folder that it reads or writes. Then something
is planted at one of them. The command ends in time and says what it found; what a link leads to is neither
changed nor shown nor copied.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from bkctl.commands.frame.nouns import NOUNS
from bkctl.commands.frame.root import load
from tests.support.grades import times
from tests.support.planted_names import COMMANDS, EXCLUDED, IS_ROOT, KINDS, PlantedBookie, Trap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are followed as Linux has them")

#: An example takes some tenths of a second.
EXAMPLES = settings().max_examples // 4 if "SOAK_EXAMPLES" in os.environ else times(15, 50)
#: A device needs root, and only root can leave something in another user's name.
_KINDS = [kind for kind in KINDS if IS_ROOT or kind != "device"]


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlantedBookie]:
    with PlantedBookie(tmp_path_factory.mktemp("planted")) as made:
        yield made


def words_of_every_command() -> set[str]:
    found = set()
    for noun in NOUNS.values():
        verbs = getattr(load(noun), "commands", None)
        found |= {noun.name} if verbs is None else {f"{noun.name} {verb}" for verb in verbs}
    return found


def test_every_command_is_tried_or_left_out_with_a_reason() -> None:
    everyone = words_of_every_command()
    tried = {" ".join(words[:2]) for words in COMMANDS} | {words[0] for words in COMMANDS}
    assert tried & everyone | EXCLUDED.keys() == everyone
    assert not tried & EXCLUDED.keys()


@pytest.mark.timeout(0)
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(words=st.sampled_from(COMMANDS).map(tuple), data=st.data())
def test_what_is_planted_is_neither_followed_nor_waited_for(
    bookie: PlantedBookie, words: tuple[str, ...], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(bookie.names(words)))
    kind = data.draw(st.sampled_from(_KINDS))
    # A user's own link to an own folder is followed: that is what links are for.
    own = kind not in ("folder", "twin")
    by_another = IS_ROOT and (not own or data.draw(st.booleans()))
    if not IS_ROOT and not own:
        kind = "file"
    trap = Trap(words, name, kind, by_another)
    event(kind)
    assert bookie.complaints(trap) == [], str(trap)
