"""Which directories belong to one space of log ids, and when all of them were given."""

from __future__ import annotations

from bkctl.pipeline.index_spaces import IndexPlace, IndexSpace, index_spaces, partial_spaces
from bkctl.storage_kinds import DB, IDX, StorageKind


def place(
    name: str, kind: StorageKind | None, *, bookie: str | None = "b", named: int = 2, journals: bool = False
) -> IndexPlace:
    return IndexPlace(name, bookie, kind, holds_ledgers=not journals, only_journals=journals, named=named)


def test_databases_are_of_their_directory_whatever_was_given() -> None:
    assert index_spaces([place("/a", DB)]) == {"/a": IndexSpace("/a", is_whole=True)}


def test_index_files_are_of_the_bookie_and_whole_with_all_that_its_cookie_names() -> None:
    one, other, journals = place("/a", IDX), place("/b", None), place("/j", None, journals=True)
    assert index_spaces([one]) == {"/a": IndexSpace("b", is_whole=False)}
    both = index_spaces([one, other, journals])
    assert both == {
        "/a": IndexSpace("b", is_whole=True),
        "/b": IndexSpace("b", is_whole=True),
        "/j": IndexSpace("/j", is_whole=True),
    }
    assert not index_spaces([one, other, place("/c", IDX)])["/a"].is_whole


def test_index_files_beside_databases_or_of_nobody_are_not_whole() -> None:
    mixed = index_spaces([place("/a", IDX), place("/b", DB)])
    assert mixed == {"/a": IndexSpace("b", is_whole=False), "/b": IndexSpace("/b", is_whole=True)}
    nobody = index_spaces([place("/a", IDX, bookie=None, named=1)])
    assert nobody == {"/a": IndexSpace("/a", is_whole=False)}


def test_directories_without_any_index_are_each_their_own() -> None:
    found = index_spaces([place("/a", None), place("/b", None)])
    assert [space.name for space in found.values()] == ["/a", "/b"]


def test_what_is_left_out_is_told_once_for_a_space() -> None:
    rows = [
        {"dir": "/a", "index_space": "b", "index_whole": False},
        {"dir": "/b", "index_space": "b", "index_whole": False},
        {"dir": "/i", "index_space": "/i", "index_whole": False},
        {"dir": "/d", "index_space": "/d", "index_whole": True},
        {"dir": "/old"},
    ]
    told = list(partial_spaces(rows))
    assert [text.split(" is left out")[0] for text in told] == ["the index of /i", "the index of b"]
    assert "its cookie names 2 were given" in told[1]
