"""A bookie in memory whose journals are damaged between a kill and the next start."""

from __future__ import annotations

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode, frame
from bkctl.codec.journal import parse_journal_name
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BookieError
from bkctl.types import DigestType
from tests.support.engine_rig import KEY, Answers, EngineRig, small_settings

JOURNALS = "/journal0/current"
#: A journal that takes thousands of records.
JOURNAL_BYTES_MAX = 1 << 26
SECTOR_BYTES = 512
#: Size word, ids, last confirmed, length and CRC-32C in front of a payload.
HEAD_BYTES = 40


def body_of(
    ledger: int, entry: int, payload: bytes = b"payload", digest_type: DigestType = DigestType.CRC32C
) -> bytes:
    """Return a whole entry."""
    header = EntryHeader(ledger, entry, entry - 1, len(payload))
    return encode(header, payload, Digester.of(digest_type, b"secret"))


def add(rig: EngineRig, body: bytes, key: bytes = KEY) -> None:
    """Add an entry, until it is acknowledged."""
    answers = Answers()
    rig.bookie.writes.add(SingleAdd(body, key, answers, 0))
    answers.wait(1)
    assert not answers.bad


def add_all(rig: EngineRig, bodies: list[bytes]) -> None:
    """Add entries side by side, until all are acknowledged."""
    answers = Answers()
    for body in bodies:
        rig.bookie.writes.add(SingleAdd(body, KEY, answers, 0))
    answers.wait(len(bodies))
    assert not answers.bad


def journals(rig: EngineRig) -> list[str]:
    """Return the paths of the journals, the oldest first."""
    names = (name for name in rig.memory.names(JOURNALS) if parse_journal_name(name) is not None)
    return [f"{JOURNALS}/{name}" for name in sorted(names)]


def offset_of(rig: EngineRig, body: bytes) -> tuple[str, int]:
    """Return the journal and the offset of the size word of an entry, which stands in one place."""
    found = []
    for path in journals(rig):
        file = rig.memory.open(path)
        at = file.read_at(0, file.size_bytes).find(frame(body))
        file.close()
        if at >= 0:
            found.append((path, at))
    (place,) = found
    return place


def overwrite(rig: EngineRig, body: bytes, changed: bytes) -> None:
    """Put other bytes in the place of an entry of a journal."""
    path, at = offset_of(rig, body)
    file = rig.memory.open_to_write(path)
    file.write_at(at + 4, changed)
    file.sync()
    file.close()


def payload_damaged(body: bytes) -> bytes:
    """Return an entry whose last byte is wrong."""
    return body[:-1] + bytes([body[-1] ^ 1])


def read(rig: EngineRig, ledger: int, entry: int) -> bytes | type[BookieError]:
    """Return an entry, or the class of the error that a read of it ends with."""
    try:
        return rig.bookie.reads.read(ledger, entry)
    except BookieError as error:
        return type(error)


def journals_of(size_bytes_max: int, format_version: int = 6) -> BookieSettings:
    """Return the settings of a bookie whose journals are no larger than that."""
    return small_settings(
        journal=JournalSettings(
            format_version=format_version, preallocation_bytes=4096, size_bytes_max=size_bytes_max
        )
    )
