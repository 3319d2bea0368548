"""Which directories make one bookie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.directories.index_spaces import IndexSpace, index_spaces
from bkctl.errors import NotFoundError, UsageError
from bkctl.scan.files.paths import directories
from tests.support.checked_bookie import FILES, CheckedBookie

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "index"


def spaces(*paths: Path) -> list[IndexSpace]:
    return index_spaces(FILES, directories(FILES, [str(path) for path in paths]))


def bookie(root: Path, storage: str = "db", count: int = 1, *, with_cookie: bool = True) -> CheckedBookie:
    made = CheckedBookie(root, storage, count, with_cookie=with_cookie)
    made.fill(range(4))
    return made.write()


def test_one_directory_finds_its_siblings_and_its_journal(tmp_path: Path) -> None:
    made = bookie(tmp_path, count=3)
    for place in range(3):
        (space,) = spaces(made.current(place))
        assert (space.position, space.directories) == (place, 3)
        assert space.index_dirs == space.log_dirs == (str(made.current(place)),)
        assert len(space.other_logs) == 2
        assert [journal.path for journal in space.journal_dirs] == [str(tmp_path / "j" / "current")]
        assert space.bookie == "bookie:3181"


def test_a_folder_gives_every_space_once(tmp_path: Path) -> None:
    bookie(tmp_path, count=3)
    assert [space.position for space in spaces(tmp_path, tmp_path / "l1")] == [0, 1, 2]


def test_several_bookies_do_not_mix(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made = bookie(tmp_path / name, count=2)
        cookie = Cookie(5, name, "/x/j", join_dirs(["/x/l0", "/x/l1"]))
        for folder in ("j", "l0", "l1"):
            (made.root / folder / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    found = spaces(tmp_path)
    assert [(space.bookie, space.position) for space in found] == [
        ("one", 0),
        ("one", 1),
        ("two", 0),
        ("two", 1),
    ]
    assert all(str(tmp_path / str(space.bookie)) in log.path for space in found for log in space.other_logs)


def test_idx_files_speak_of_the_logs_of_all_directories(tmp_path: Path) -> None:
    made = CheckedBookie(tmp_path, "idx", 2)
    made.fill([5])
    made.locations[0, 5, 20] = made.store(5, 20, 1, place=1)
    made.write()
    (space,) = spaces(made.current(0))
    assert space.kind.name == "idx"
    assert sorted(log.log_id for log in space.logs) == [0, 1]
    assert made.check() == []


def test_a_ledger_with_idx_files_in_two_directories(tmp_path: Path) -> None:
    made = CheckedBookie(tmp_path, "idx", 2)
    made.fill([5, 6])
    made.write()
    source = made.idx_path(5)
    second = made.current(1) / source.relative_to(made.current(0))
    second.parent.mkdir(parents=True)
    relocating = second.with_name(second.name + ".rloc")
    relocating.write_bytes(source.read_bytes()[:2000])
    assert made.check() == [], "a copy in progress does not count"
    relocating.rename(second)
    (found,) = made.check()
    assert (found.kind.value, found.ledger) == ("duplicate_idx", 5)


def test_a_stray_copy_among_several_directories_is_left_out(tmp_path: Path) -> None:
    made = bookie(tmp_path, count=2)
    shutil.copytree(tmp_path / "l0", tmp_path / "saved")
    assert [space.position for space in spaces(made.current(0), made.current(1))] == [0, 1]


def test_one_of_several_directories_that_is_nowhere_its_cookie_says(tmp_path: Path) -> None:
    made = bookie(tmp_path / "b", count=2)
    shutil.copytree(made.root / "l1", tmp_path / "elsewhere" / "saved")
    (space,) = spaces(tmp_path / "elsewhere" / "saved")
    assert (space.position, space.directories) == (None, 2)


def test_index_directories_apart_from_ledger_directories(tmp_path: Path) -> None:
    made = bookie(tmp_path, count=2)
    cookie = Cookie(
        5, "bookie:3181", "/x/j", join_dirs(["/x/l0", "/x/l1"]), None, join_dirs(["/x/i0", "/x/i1"])
    )
    for place in range(2):
        target = tmp_path / f"i{place}" / "current"
        target.mkdir(parents=True)
        for name in ("locations", "ledgers"):
            (made.current(place) / name).rename(target / name)
    for folder in tmp_path.iterdir():
        (folder / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    assert made.check() == []
    found = spaces(tmp_path / "i1")
    assert [(space.index_dirs, space.log_dirs, space.position) for space in found] == [
        ((str(tmp_path / "i1/current"),), (str(tmp_path / "l1/current"),), 1)
    ]
    assert spaces(tmp_path / "l1") == found
    shutil.rmtree(tmp_path / "l1")
    with pytest.raises(UsageError, match="ledger directory is not found"):
        spaces(tmp_path / "i1")


def test_a_copy_beside_the_original_is_left_out_and_two_given_ones_are_refused(tmp_path: Path) -> None:
    made = bookie(tmp_path / "b")
    copy = tmp_path / "b" / "l0.bak"
    shutil.copytree(tmp_path / "b" / "l0", copy)
    (space,) = spaces(made.current())
    assert space.log_dirs == (str(made.current()),)
    assert [space.log_dirs for space in spaces(copy)] == [(str(copy / "current"),)]
    with pytest.raises(UsageError, match="check one at a time"):
        spaces(made.current(), copy)


def test_without_cookies_positions_are_unknown(tmp_path: Path) -> None:
    made = bookie(tmp_path, count=2, with_cookie=False)
    assert [space.position for space in spaces(tmp_path)] == [None, None]
    assert [finding.kind.value for finding in made.check()] == ["position_unknown"] * 2
    assert [space.position for space in spaces(SAMPLES / "m")] == [None, None]


def test_a_lone_directory_needs_no_cookie(tmp_path: Path) -> None:
    assert bookie(tmp_path, with_cookie=False).check() == []


def test_nothing_of_a_bookie_with_an_index_is_refused(tmp_path: Path) -> None:
    made = bookie(tmp_path, with_cookie=False)
    shutil.rmtree(tmp_path / "l0")
    with pytest.raises(NotFoundError, match="no index"):
        spaces(made.root)
