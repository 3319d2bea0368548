"""A stopped bookie over ``.idx`` files in three ledger directories, and faults that are planted in it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from bkctl.codec.file_info import HEADER_BYTES, SLOT_BYTES
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem

DIRS = ("l0", "l1", "l2")

#: Ledger, entry, log and offset.
Location = tuple[int, int, int, int]


def copied(bookie: Path, to: Path) -> Path:
    """Copy a bookie, so that the copy may be changed."""
    return Path(shutil.copytree(bookie, to))


def logs_of(bookie: Path) -> dict[int, Path]:
    """Return the entry logs of all directories by id."""
    return {int(path.stem, 16): path for path in bookie.glob("l?/current/*.log")}


def index_file(bookie: Path, ledger: int) -> Path:
    """Return the index file of a ledger, in whichever directory it is."""
    (path,) = bookie.glob(f"??/current/*/*/{ledger:x}.idx")
    return path


def locations_of(bookie: Path, ledger: int | None = None) -> list[Location]:
    """Return the locations that the index files have, of all ledgers or of one."""
    found: list[Location] = []
    for current in sorted(bookie.glob("??/current")):
        index = open_index(PosixFileSystem(), str(current))
        for item in () if index is None else index.locations.rows(ledger):
            assert not isinstance(item, IndexDamage)
            found += zip(item.ledgers, item.entries, item.log_ids, item.offsets, strict=True)
    return found


def gather_indexes(bookie: Path, into: str) -> None:
    """Move all index files into one directory, as a bookie does when the others are full."""
    for path in list(bookie.glob("??/current/*/*/*.idx")):
        to = bookie / into / "current" / path.relative_to(path.parents[2])
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)


def flip_slot(path: Path, entry: int, bit: int) -> None:
    """Change a bit of the location that an index file has for an entry."""
    data = bytearray(path.read_bytes())
    offset = HEADER_BYTES + entry * SLOT_BYTES
    (value,) = struct.unpack_from(">Q", data, offset)
    struct.pack_into(">Q", data, offset, value ^ 1 << bit)
    path.write_bytes(bytes(data))


def flip_header(path: Path) -> None:
    """Change a bit of the first bytes of an index file, which say what it is."""
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(bytes(data))
