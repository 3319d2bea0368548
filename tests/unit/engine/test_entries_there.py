"""Single entries of a storage, as a replay asks for them."""

from __future__ import annotations

from bkctl.engine.entries_there import entry_there, has_another, is_there
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import StorageRig


def test_an_entry_is_there_and_what_is_no_entry_is_not() -> None:
    storage = (rig := StorageRig().open()).storage
    body = rig.put(1, 0)
    assert entry_there(storage, 1, 0) == body
    assert [entry_there(storage, 1, entry) for entry in (1, -1)] == [None, None]
    assert [has_another(storage, 1, 0, each) for each in (body, body + b"x")] == [False, True]
    assert not has_another(storage, 1, 1, body)


def test_in_front_of_the_first_entry_nothing_is_missing() -> None:
    storage = (rig := StorageRig().open()).storage
    rig.put(1, 0)
    assert [is_there(storage, 1, entry) for entry in (-1, 0, 1)] == [True, True, False]


def test_an_entry_that_cannot_be_read_is_not_there() -> None:
    rig = StorageRig().open()
    rig.put(1, 0)
    rig.storage.flush()
    rig.forget_read_cache()
    rig.location_store.inject(StoreFaultRule("get"))
    assert entry_there(rig.storage, 1, 0) is None
    assert not is_there(rig.storage, 1, 0)
