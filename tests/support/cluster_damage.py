"""Damages that a bookie of a :mod:`tests.support.mixed_cluster` may suffer while it is stopped."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bkctl.codec.last_mark import LastMark, encode_last_mark

_HEADER_BYTES = 1024


@dataclass
class Disks:
    """The directories of a stopped bookie; ``lost`` collects those whose disk somebody knows to be lost."""

    journal: Path
    ledgers: list[Path]
    lost: list[Path] = field(default_factory=list)

    def logs(self) -> list[Path]:
        """Return the entry logs that hold anything."""
        found = [path for one in self.ledgers for path in (one / "current").glob("*.log")]
        return sorted(path for path in found if path.stat().st_size > _HEADER_BYTES)

    def journals(self) -> list[Path]:
        """Return the journals, the oldest first."""
        return sorted((self.journal / "current").glob("*.txn"))

    def marks(self) -> list[Path]:
        """Return the last marks."""
        return sorted(path for one in self.ledgers for path in (one / "current").glob("lastMark*"))


Damage = Callable[[Disks, random.Random], object]


def flip_bits(disks: Disks, chance: random.Random) -> None:
    """Flip some bits of each log."""
    for log in disks.logs():
        data = bytearray(log.read_bytes())
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        log.write_bytes(data)


def zero_ranges(disks: Disks, chance: random.Random) -> None:
    """Zero a range of a log or a journal that held something."""
    path = chance.choice(disks.logs() + disks.journals())
    data = bytearray(path.read_bytes())
    end_of_data = len(data.rstrip(b"\0"))
    if end_of_data:
        at = chance.randrange(end_of_data)
        end = min(at + chance.randrange(1, 3000), len(data))
        data[at:end] = bytes(end - at)
        path.write_bytes(data)


def cut_log(disks: Disks, chance: random.Random) -> None:
    """Cut a log anywhere, its header included."""
    if logs := disks.logs():
        log = chance.choice(logs)
        os.truncate(log, chance.randrange(log.stat().st_size))


def delete_log(disks: Disks, chance: random.Random) -> None:
    """Delete a log."""
    if logs := disks.logs():
        chance.choice(logs).unlink()


def swap_logs(disks: Disks, chance: random.Random) -> None:
    """Give two logs each the name of the other."""
    logs = disks.logs()
    if len(logs) > 1:
        one, other = chance.sample(logs, 2)
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)


def cut_journal(disks: Disks, chance: random.Random) -> None:
    """Cut a journal within what it holds: at the end of a record or anywhere."""
    if journals := disks.journals():
        journal = chance.choice(journals)
        os.truncate(journal, chance.randrange(max(1, len(journal.read_bytes().rstrip(b"\0")))))


def delete_journal(disks: Disks, chance: random.Random) -> None:
    """Delete a journal."""
    if journals := disks.journals():
        chance.choice(journals).unlink()


def lose_databases(disks: Disks, chance: random.Random) -> None:
    """Remove the index of ledgers, of locations, or both."""
    current = chance.choice(disks.ledgers) / "current"
    for name in chance.choice((("ledgers",), ("locations",), ("ledgers", "locations"))):
        shutil.rmtree(current / name, ignore_errors=True)


def break_database(disks: Disks, chance: random.Random) -> None:
    """Put other bytes into a file of a database."""
    current = chance.choice(disks.ledgers) / "current"
    files = [
        path
        for name in ("ledgers", "locations")
        for path in sorted((current / name).glob("*"))
        if path.name not in ("LOCK", "LOG") and path.stat().st_size
    ]
    if files:
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        data[at : at + 40] = chance.randbytes(len(data[at : at + 40]))
        path.write_bytes(data)


def wrong_mark(disks: Disks, chance: random.Random) -> None:
    """Write a mark that is missing, unreadable, too old, too new, beyond its journal, or of no journal."""
    marks, journals = disks.marks(), disks.journals()
    if not marks or not journals:
        return
    kind = chance.randrange(6)
    for path in marks if chance.random() < 0.7 else [chance.choice(marks)]:
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.write_bytes(chance.randbytes(chance.choice((0, 7, 16))))
        elif kind == 2:
            path.write_bytes(encode_last_mark(LastMark(0, 0)))
        elif kind == 3:
            newest = journals[-1]
            end = len(newest.read_bytes().rstrip(b"\0"))
            path.write_bytes(encode_last_mark(LastMark(int(newest.stem, 16), end)))
        elif kind == 4:
            journal = chance.choice(journals)
            beyond = journal.stat().st_size + chance.randrange(1, 1 << 20)
            path.write_bytes(encode_last_mark(LastMark(int(journal.stem, 16), beyond)))
        else:
            path.write_bytes(encode_last_mark(LastMark(int(journals[-1].stem, 16) + 7, 512)))


def empty_disk(disks: Disks, chance: random.Random) -> None:
    """Empty a directory, as a new disk in the place of one that failed is."""
    home = chance.choice([disks.journal, *disks.ledgers])
    shutil.rmtree(home)
    home.mkdir()
    disks.lost.append(home)


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        flip_bits,
        zero_ranges,
        cut_log,
        delete_log,
        swap_logs,
        cut_journal,
        delete_journal,
        lose_databases,
        break_database,
        wrong_mark,
        empty_disk,
    )
}
