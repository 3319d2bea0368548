"""BOOKIE_STATUS in the ledger directories."""

from __future__ import annotations

import pytest

from bkctl.codec.bookie_status import BookieMode, BookieStatus, decode_bookie_status, encode_bookie_status
from bkctl.server.life.mode_file import read_mode, write_mode
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem

PLACES = ["/a", "/b", "/c"]


def files(**content: bytes) -> MemoryFileSystem:
    system = MemoryFileSystem()
    for place in PLACES:
        system.make_directories(f"{place}/current")
    for place, data in content.items():
        system.replace(f"/{place}/current/BOOKIE_STATUS", data)
    return system


def test_nothing_is_remembered_at_first() -> None:
    assert read_mode(files(), PLACES) is None


def test_the_newest_counts_and_what_does_not_parse_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    system = files(
        a=encode_bookie_status(BookieStatus(BookieMode.READ_WRITE, 10, manual=False)),
        b=b"1,READ_ONLY,12\n",
        c=b"1,READ_ONLY",
    )
    assert read_mode(system, PLACES) == BookieStatus(BookieMode.READ_ONLY, 12, manual=True)
    assert "/c/current/BOOKIE_STATUS is passed over" in caplog.text


def test_it_is_written_everywhere_in_javas_form() -> None:
    system = files()
    write_mode(system, PLACES, BookieStatus(BookieMode.READ_ONLY, 1795262752266, manual=True))
    found = {system.files[f"{place}/current/BOOKIE_STATUS"] for place in PLACES}
    assert found == {b"1,READ_ONLY,1795262752266,true\n"}
    assert decode_bookie_status(found.pop()).manual


def test_a_disk_that_takes_no_file_is_no_reason_to_fail(caplog: pytest.LogCaptureFixture) -> None:
    system = files()
    faulty = FaultyFileSystem(system)
    faulty.inject(FaultRule("write", path=lambda path: path.startswith("/a/")))
    write_mode(faulty, PLACES, BookieStatus(BookieMode.READ_ONLY, 5, manual=True))
    assert "/a/current/BOOKIE_STATUS" not in system.files
    assert read_mode(system, PLACES) == BookieStatus(BookieMode.READ_ONLY, 5, manual=True)
    assert "not remembered" in caplog.text
