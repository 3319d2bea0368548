"""What is copied of a log: what the index has in it, and no more than has to be asked for that."""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence

import pytest

from bkctl.engine.gc.copying import GoneLedgers, LivePieces, Piece, still_there
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import Delete
from tests.support.storage_rig import entry_of
from tests.unit.engine.gc.gc_rig import QUICK, GcRig, opened


def filled() -> GcRig:
    """Three ledgers in log 0, which is settled."""
    rig = opened(entries_unflushed_max=100)
    rig.fill([1, 2, 3], entries=3)
    rig.storage.begin_new_logs()
    rig.storage.flush()
    return rig


def pieces(rig: GcRig, dead: Sequence[int] = ()) -> list[Piece]:
    return list(LivePieces(rig.storage, rig.faulty, rig.gc, 0, dead))


def copied(piece: Piece) -> dict[bytes, bytes]:
    return {
        key: body
        for batch in piece.batches()
        for key, body in zip(batch.key_list(), batch.bodies(), strict=True)
    }


def counted(rig: GcRig, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys the index was asked for, call by call."""
    asked: list[int] = []
    places = rig.storage.locations.places

    def noted(keys: Sequence[bytes]) -> array[int]:
        asked.append(len(keys))
        return places(keys)

    monkeypatch.setattr(rig.storage.locations, "places", noted)
    return asked


def test_the_index_is_asked_once_and_not_of_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled()
    asked = counted(rig, monkeypatch)
    (piece,) = pieces(rig, [2])
    assert sorted(copied(piece).values()) == sorted(
        entry_of(ledger, entry, "", 300) for ledger in (1, 3) for entry in range(3)
    )
    assert still_there(piece, rig.storage.locations) is not piece
    assert copied(still_there(piece, rig.storage.locations)) == copied(piece)
    assert sum(asked) == 6


def test_what_was_written_again_meanwhile_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled()
    (piece,) = pieces(rig)
    rig.write(2, [0, 2], tag="again")
    rig.storage.flush()
    asked = counted(rig, monkeypatch)
    left = still_there(piece, rig.storage.locations)
    assert sum(asked) == len(piece) == 9
    assert len(left) == 7
    assert left.size_bytes == 7 * 300
    again = {entry_of(2, entry, "", 300)[:16] for entry in (0, 2)}
    assert copied(left) == {key: body for key, body in copied(piece).items() if key not in again}
    assert [at for part in left.parts for at in part.locations] == rig.storage.locations.get_many(
        [key for part in left.parts for key in part.batch.key_list()]
    )


def test_what_was_deleted_meanwhile_is_not_copied() -> None:
    rig = filled()
    (piece,) = pieces(rig)
    with rig.lock:
        rig.storage.delete_ledger(3)
    rig.storage.flush()
    assert {key[7] for key in copied(still_there(piece, rig.storage.locations))} == {1, 2}


def test_a_ledger_that_the_index_does_not_have_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled()
    with rig.lock:
        rig.storage.delete_ledger(3)
    rig.storage.flush()
    asked = counted(rig, monkeypatch)
    gone = GoneLedgers(rig.storage, [1])
    (piece,) = LivePieces(rig.storage, rig.faulty, rig.gc, 0, gone)
    assert {key[7] for key in copied(piece)} == {2}
    # The one key that may hide from a look for the last entry, and the entries of the ledger that lives.
    assert sum(asked) == 1 + 3
    assert [ledger in gone for ledger in (1, 2, 3)] == [True, False, True]
    assert sum(asked) == 1 + 3


def test_no_thread_takes_a_ledger_for_gone_that_another_one_is_about_to_refuse() -> None:
    """Two logs are read at a time: the entries of a ledger that may be lost would be dropped with its log."""
    answers: list[str] = []

    class Undecided(Container[int]):
        def __contains__(self, ledger: object) -> bool:
            if not answers:
                answers.append("asked")
                try:
                    answers.append("gone" if ledger in gone else "alive")
                except RefusedError:
                    answers.append("refused")
            return True

    rig = filled()
    with rig.lock:
        rig.storage.delete_ledger(3)
    rig.storage.flush()
    gone = GoneLedgers(rig.storage, [], Undecided())
    with pytest.raises(RefusedError, match="ledger 3"):
        assert 3 in gone
    assert answers == ["asked", "refused"]


def test_an_entry_without_a_row_of_its_ledger_lives_if_the_index_has_it() -> None:
    rig = filled()
    rig.storage.ledgers.delete(2)
    (piece,) = LivePieces(rig.storage, rig.faulty, rig.gc, 0, GoneLedgers(rig.storage, []))
    assert len(piece) == 9


def test_an_entry_that_the_index_has_lost_is_damage() -> None:
    rig = filled()
    row = next(key for key, _ in rig.location_rows.iterate() if key[7] == 2)
    rig.location_rows.write([Delete(row)], sync=True)
    with pytest.raises(CorruptionError, match="a row for ledger 2, entry 0") as caught:
        list(LivePieces(rig.storage, rig.faulty, QUICK, 0, GoneLedgers(rig.storage, [])))
    assert caught.value.offset == 1024 + 304


def test_small_parts_are_written_together() -> None:
    rig = filled()
    (whole,) = pieces(rig)
    small = Piece([part for _ in range(3) for part in whole.parts])
    (batch,) = small.batches()
    assert batch.count == len(small) == 27
    assert batch.key_list() == 3 * [key for part in whole.parts for key in part.batch.key_list()]
    assert batch.bodies() == 3 * [body for part in whole.parts for body in part.batch.bodies()]
