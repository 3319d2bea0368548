"""Ids of entry logs: what takes one, and which is next."""

from __future__ import annotations

import pytest

from bkctl.codec.last_id import LOG_ID_MAX
from bkctl.engine.entrylog.log_ids import last_log_id, next_log_id, sort_names


def following(names: list[str], last_id: int | None = None) -> int:
    known = sort_names(names)
    return next_log_id(last_log_id(known, last_id), known.taken)


@pytest.mark.parametrize(
    ("names", "last_id", "expected"),
    [
        ([], None, 0),
        (["VERSION", "lastId", "locations"], None, 0),
        (["0.log"], None, 1),
        (["0.log", "1b.log", "9.log"], None, 0x1C),
        # The number in the file counts although the logs behind it are gone.
        ([], 0x1C, 0x1D),
        (["3.log"], 0x1C, 0x1D),
        # A log that was made although the number could not be written.
        (["1d.log"], 0x1C, 0x1E),
        (["1e.log"], 0x1C, 0x1F),
        # Log 0 was given out and deleted.
        ([], 0, 1),
        (["5.log"], 0, 6),
        # Every form of a name takes its id.
        (["3.log.compacting"], 2, 4),
        (["3.log.1.compacted"], 2, 4),
        (["0.log", "1.log", "2.log.compacting", "3.log.1.compacted"], None, 4),
        (["1C.log", "1D.LOG"], None, 0x1D),
        # What is no log takes none.
        (["5.log.bak", "x7.log", "lastId.0a.tmp", ".log", "6.idx", "7.log.compacted"], None, 0),
    ],
)
def test_the_next_id(names: list[str], last_id: int | None, expected: int) -> None:
    assert following(names, last_id) == expected


def test_ids_start_again_behind_the_largest_one() -> None:
    assert following([], LOG_ID_MAX - 1) == LOG_ID_MAX
    assert following([], LOG_ID_MAX) == 0
    assert following(["7fffffff.log", "0.log", "1.log"], LOG_ID_MAX) == 2
    assert following(["7ffffffe.log", "7fffffff.log"]) == 0


def test_after_a_wrap_the_number_in_the_file_does_not_fall_back_to_the_old_logs() -> None:
    """The largest name is an old log then; the largest gap begins behind the new ones."""
    names = ["7ffffff0.log", "7fffffff.log", "0.log", "1.log", "2.log"]
    assert following(names, 2) == 3
    assert following(["7ffffff0.log", "2.log"], 9) == 10


def test_names_that_can_be_no_log_are_tolerated_and_reported() -> None:
    known = sort_names(["0123456789.log", "80000000.log", "2.log", "fffffffff.log", "ff.log.compacting"])
    assert known.strange == ("0123456789.log", "80000000.log", "fffffffff.log")
    assert known.logs == (2,)
    assert known.taken == {2, 0xFF}


def test_a_name_that_is_spelled_differently_takes_an_id_but_cannot_be_opened_by_it() -> None:
    known = sort_names(["001c.log", "1D.log"])
    assert known.logs == ()
    assert known.taken == {0x1C, 0x1D}
