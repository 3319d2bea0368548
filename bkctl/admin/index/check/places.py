"""Find out what really stands at a location that none of the logs' entries has."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass

from bkctl.admin.index.check.covering_records import CoveringRecords
from bkctl.admin.index.check.finding import Kind
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN
from bkctl.codec.entrylog import HEADER_BYTES, is_map_batch, log_name
from bkctl.codec.location import OFFSET_MAX
from bkctl.errors import NotFoundError
from bkctl.reporting import counted
from bkctl.scan.damage import Damage
from bkctl.scan.directory import LogFile
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

OPEN_LOGS_MAX = 16

_HEAD = struct.Struct(">iqq")


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a location is wrong: ``DANGLING_LOCATION`` or ``FOREIGN_ENTRY``, and the evidence.

    ``damaged`` is the path of a log in which a record that is too long is around the entry.
    """

    kind: Kind
    detail: str
    damaged: str | None = None


class LogPlaces:
    """Looks at places in ``logs``. A context manager.

    By path are known: ``damage``, and ``failing``, the offsets of records that do not match their digest.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        logs: Sequence[LogFile],
        damage: Mapping[str, list[Damage]],
        failing: Mapping[str, Set[int]],
    ) -> None:
        self._filesystem = filesystem
        self._damage = damage
        self._failing = failing
        self._logs: dict[int, list[LogFile]] = {}
        self._open: OrderedDict[str, SteadyFile | None] = OrderedDict()
        self._covering = CoveringRecords(filesystem)
        for log in logs:
            self._logs.setdefault(log.log_id, []).append(log)

    def fault(self, ledger: int, entry: int, packed: int) -> Fault | None:
        """Find what is wrong at a location; None when the entry stands there after all. Raises StorageError.

        An entry that stands inside another record does not: who walks the log never sees it.
        Ids that cannot be chance are another entry's: a record that seems whole, with another one or the
        end of the data behind it.
        """
        log_id, offset = packed >> 32, packed & OFFSET_MAX
        faults: list[Fault] = []
        for log in self._logs.get(log_id, ()):
            file = self._file(log.path)
            if file is None:
                continue
            fault = self._fault_in(file, ledger, entry, offset) or self._inside(file, offset)
            if fault is None:
                return None
            faults.append(fault)
        if not faults:
            return Fault(Kind.DANGLING_LOCATION, f"there is no log {log_id} ({log_name(log_id)})")
        return next((fault for fault in faults if fault.kind is Kind.FOREIGN_ENTRY), faults[0])

    def log_of(self, packed: int) -> LogFile | None:
        """Find the (first) log that a location names."""
        return next(iter(self._logs.get(packed >> 32, ())), None)

    def _file(self, path: str) -> SteadyFile | None:
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        if len(self._open) >= OPEN_LOGS_MAX:
            oldest = self._open.popitem(last=False)[1]
            if oldest is not None:
                oldest.close()
        try:
            file = SteadyFile(self._filesystem.open(path))
        except NotFoundError:
            file = None  # a running bookie's GC removed it since it was listed
        self._open[path] = file
        return file

    def _fault_in(self, file: SteadyFile, ledger: int, entry: int, offset: int) -> Fault | None:
        start = offset - 4
        if start < HEADER_BYTES or start + _HEAD.size > file.size_bytes:
            what = "in the header" if start < HEADER_BYTES else f"outside its {file.size_bytes} bytes"
            return Fault(Kind.DANGLING_LOCATION, f"{file.path}: the offset is {what}")
        head = file.peek(start, _HEAD.size)
        damage = self._damage_at(file.path, start)
        if file.refused(start, start + _HEAD.size):
            return Fault(Kind.DANGLING_LOCATION, f"{file.path}: the disk cannot read this place")
        size, *ids = _HEAD.unpack(head)
        fits = BODY_BYTES_MIN <= size <= BODY_BYTES_MAX and offset + size <= file.size_bytes
        if damage is not None:
            return Fault(Kind.DANGLING_LOCATION, f"{file.path}: {_in_words(damage)}")
        if ids == [ledger, entry]:
            if fits:
                return None
            room = file.size_bytes - offset
            return Fault(
                Kind.DANGLING_LOCATION,
                f"{file.path}: the entry's record begins here, but of its {size} bytes {room} are in the log",
            )
        if fits and min(ids) >= 0 and _is_followed(file, offset + size):
            detail = f"{file.path}: ledger {ids[0]} entry {ids[1]} stands there"
            if start in self._failing.get(file.path, ()):
                # The ids themselves may be what is damaged.
                return Fault(Kind.DANGLING_LOCATION, f"{detail}, and its bytes do not match its digest")
            return Fault(Kind.FOREIGN_ENTRY, detail)
        what = "the ledgers map" if is_map_batch(size, *ids) else f"{head.hex()}"
        return Fault(Kind.DANGLING_LOCATION, f"{file.path}: no record begins there: {what}")

    def _inside(self, file: SteadyFile, offset: int) -> Fault | None:
        """Return what is wrong where the record at a location is inside another one."""
        around = self._covering.over(file.path, offset - 4)
        if around is None:
            return None
        detail = (
            f"{file.path}: its record lies inside the one at {around.offset}, of ledger {around.ledger} entry"
            f" {around.entry}, whose size word says {counted(around.size_bytes, 'byte')} and is damaged"
        )
        return Fault(Kind.DANGLING_LOCATION, detail, file.path)

    def _damage_at(self, path: str, start: int) -> Damage | None:
        for damage in self._damage.get(path, ()):
            if damage.offset < start + _HEAD.size and start < damage.end:
                return damage
        return None

    def __enter__(self) -> LogPlaces:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._covering.close)
            for file in self._open.values():
                if file is not None:
                    stack.callback(file.close)


def _in_words(damage: Damage) -> str:
    return f"it lies in damage, {counted(damage.size_bytes, 'byte')} from {damage.offset}: {damage.reason}"


def _is_followed(file: SteadyFile, end: int) -> bool:
    """Return whether a record, a ledgers map, filler or nothing comes at ``end``."""
    head = file.peek(end, _HEAD.size)
    if len(head) < _HEAD.size or not any(head) or head[:1] == b"\xf0":
        return True
    size, ledger, entry = _HEAD.unpack(head)
    return is_map_batch(size, ledger, entry) or (
        BODY_BYTES_MIN <= size <= BODY_BYTES_MAX and ledger >= 0 and entry >= 0
    )
