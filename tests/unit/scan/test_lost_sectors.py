"""Two signs of a sector that a power cut has taken: by the record, and by its range of the file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkctl.scan.lost_sectors import SECTOR_BYTES, range_lacks_a_sector, record_lacks_a_sector
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs.memory import MemoryFileSystem


@given(
    before=st.integers(0, 2000).filter(lambda at: at % SECTOR_BYTES <= SECTOR_BYTES - 4),
    size=st.integers(24, 3000),
    lost=st.integers(0, 10),
)
def test_a_record_and_its_range_in_the_file_give_the_same_answer(before: int, size: int, lost: int) -> None:
    image = bytearray(b"\x02" * before + size.to_bytes(4, "big") + b"\x01" * size)
    start = lost * SECTOR_BYTES
    is_within = before + 4 <= start < len(image)
    if is_within:
        image[start : start + SECTOR_BYTES] = bytes(len(image[start : start + SECTOR_BYTES]))
    steady = SteadyFile(MemoryFileSystem({"/journal": bytes(image)}).open("/journal"))
    assert range_lacks_a_sector(steady, before, len(image)) is is_within
    assert record_lacks_a_sector(before, bytes(image[before + 4 :])) is is_within
