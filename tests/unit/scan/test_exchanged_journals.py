"""Journal directories in each other's place, and journals that are gone."""

from __future__ import annotations

from posixpath import basename

import pytest

from bkctl.codec.journal import encode_header, journal_name
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.errors import RefusedError
from bkctl.scan.exchanged_journals import refuse_exchanged_journals
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import EngineRig, add_numbered, small_settings

NONE = LastMark(0, 0)


def refused(marks: tuple[LastMark, ...], *journals: tuple[int, ...]) -> bool:
    fs = MemoryFileSystem()
    places = [(f"/j{number}/current", mark) for number, mark in enumerate(marks)]
    for (directory, _), ids in zip(places, journals, strict=True):
        fs.make_directories(directory)
        for journal in ids:
            fs.replace(f"{directory}/{journal_name(journal)}", encode_header(6))
    try:
        refuse_exchanged_journals(fs, places)
    except RefusedError as error:
        assert "mounted in each other's place" in str(error)  # noqa: PT017 - which one is asked below
        return True
    return False


def test_disks_are_known_by_the_journals_of_their_marks() -> None:
    five, six, seven = (LastMark(journal, 512) for journal in (5, 6, 7))
    assert refused((five, six), (6,), (5,))
    assert refused((five, six, seven), (6,), (7,), (5,))
    assert refused((five, NONE), (), (5,))
    assert not refused((five, six), (5,), (6,))
    assert not refused((five, six), (), (5, 6)), "two of one id, and the first one is gone"
    assert not refused((five, six), (4,), (8,))
    assert not refused((five,), (4,))


@pytest.mark.parametrize("accept_loss", [False, True])
def test_no_bookie_starts_on_exchanged_journals(accept_loss: bool) -> None:
    rig = EngineRig(small_settings(journals=2))
    for number, (mark, there) in enumerate(((5, 6), (6, 5))):
        directory = rig.bookie.settings.journal_directories[number]
        rig.memory.replace(f"{directory}/current/{journal_name(there)}", encode_header(6))
        for ledgers in rig.bookie.settings.ledger_directories:
            path = f"{ledgers}/current/lastMark.{number}"
            rig.memory.replace(path, encode_last_mark(LastMark(mark, 512)))
    with rig.cut_off() as after, pytest.raises(RefusedError, match="mounted in each other's place"):
        after.bookie.start(accept_loss=accept_loss)


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1, 1)])
def test_journals_of_the_same_ids_are_known_by_their_records(order: tuple[int, int]) -> None:
    """The clock gave both the same id, so that the marks say nothing."""
    rig = EngineRig(small_settings(journals=2))
    rig.start()
    add_numbered(rig.bookie, (2, 3, 4, 5), range(5))
    rig.bookie.checkpoint()
    add_numbered(rig.bookie, (2, 3), range(5, 9))
    after = rig.cut_off()
    journals = [{name: after.memory.files[name] for name in _journals(after, number)} for number in range(2)]
    assert len(set(map(tuple, [map(basename, each) for each in journals]))) == 1
    for number, other in enumerate(order):
        for path, content in journals[other].items():
            after.memory.replace(f"/journal{number}/current/{basename(path)}", content)
    wrong = next(number for number, other in enumerate(order) if number != other)
    words = f"/journal{wrong}/current holds records of ledgers whose journal is /journal{1 - wrong}/current"
    with after, pytest.raises(RefusedError, match=words):
        after.bookie.start(accept_loss=True)


def _journals(rig: EngineRig, number: int) -> list[str]:
    return [path for path in rig.memory.files if path.startswith(f"/journal{number}/current/")]
