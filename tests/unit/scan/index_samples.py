"""Small real bookies (tests/data/index, made by make.py there), and rows as the tests compare them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bkctl.codec.file_info import FileInfoHeader, encode_header, encode_slots
from bkctl.codec.location import LocationColumns
from bkctl.scan.index import DirectoryIndex, open_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.memory import MemoryFileSystem

DATA = Path(__file__).parents[2] / "data" / "index"
KEY = bytes.fromhex("e793cbc379107648537183605cd361d3bb789a39")
LAC = bytes.fromhex("0000000000000005 0000000000000001 9aea0d92")
BIG = 0x1234567
OPEN = FileInfoHeader(1, KEY)

Flat = list[tuple[int, int, int, int] | IndexDamage]


def sample(name: str) -> str:
    return str(DATA / name / "current")


def flat(found: Iterator[LocationColumns | IndexDamage]) -> Flat:
    rows: Flat = []
    for batch in found:
        if isinstance(batch, IndexDamage):
            rows.append(batch)
        else:
            assert len(batch) > 0
            rows += zip(batch.ledgers, batch.entries, batch.log_ids, batch.offsets, strict=True)
    return rows


def opened(name: str) -> DirectoryIndex:
    index = open_index(PosixFileSystem(), sample(name))
    assert index is not None
    return index


# ------------------------------------------------------------------------------------------ real samples


def idx_file(header: FileInfoHeader, slots: dict[int, int]) -> bytes:
    content = bytearray(encode_header(header))
    for offset, page in encode_slots(sorted(slots.items())):
        content.extend(bytes(offset + len(page) - len(content)))
        content[offset : offset + len(page)] = page
    return bytes(content)


def tree(files: dict[str, bytes]) -> MemoryFileSystem:
    return MemoryFileSystem({f"c/{name}": content for name, content in files.items()})
