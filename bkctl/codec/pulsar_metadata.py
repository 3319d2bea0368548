"""Ledger ids in what Apache Pulsar keeps in its metadata store, as protobuf messages.

======================= ============================== ====================================================
node                    message                        fields that name ledgers
======================= ============================== ====================================================
a managed ledger        ``ManagedLedgerInfo``          1 ``ledgerInfo``: 1 ``ledgerId``, required
a cursor below it       ``ManagedCursorInfo``          1 ``cursorsLedgerId``, required, -1 without a ledger;
                                                       5 ``properties``: 1 name, 2 value, of which
                                                       ``CompactedTopicLedger`` is a ledger's id
a topic's schemas       ``SchemaLocator``              1 ``info``, required, and 2 ``index``, each an entry:
                                                       2 ``position``: 1 ``ledgerId``, all required
======================= ============================== ====================================================

Read strictly, because "no ledger is named" lets a ledger pass for an orphan: a field of the wrong type, a
required one that is missing, and all that is no protobuf raise. So do messages that a broker compressed
(they begin with ``0x4778``) and the text that brokers wrote before 2.0.

Source: ``MLDataFormats.proto``, ``SchemaStorageFormat.proto``, ``MetaStoreImpl``, ``CompactedTopicImpl``.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.errors import CorruptionError
from bkctl.reporting import counted

COMPRESSED = b"\x47\x78"
COMPACTED_LEDGER = b"CompactedTopicLedger"
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_NUMBER_BYTES_MAX = 10

Field = tuple[int, int | bytes]


def decode_managed_ledger(data: bytes) -> list[int]:
    """Return the ledgers of a managed ledger; offloaded ones are among them. Raises CorruptionError."""
    return [_one_number(inner, 1) for inner in _messages(_fields(data), 1)]


def decode_managed_cursor(data: bytes) -> list[int]:
    """Return the ledger that keeps a cursor's position, and that of the compacted topic where it is named.

    Raises CorruptionError.
    """
    fields = list(_fields(data))
    own = _one_number(data, 1)
    found = [own] if own >= 0 else []
    for inner in _messages(fields, 5):
        pairs = dict(_fields(inner))
        if pairs.get(1) == COMPACTED_LEDGER:
            found.append(_one_number(inner, 2))
    return found


def decode_schema_locator(data: bytes) -> list[int]:
    """Return the ledgers in which the versions of a topic's schema are. Raises CorruptionError."""
    fields = list(_fields(data))
    info = _messages(fields, 1)
    if not info:
        raise CorruptionError("expected a SchemaLocator, found none of its info")
    found = []
    for entry in [*info, *_messages(fields, 2)]:
        position = _messages(_fields(entry), 2)
        if len(position) != 1:
            raise CorruptionError(f"expected one position of a schema, found {len(position)}")
        found.append(_one_number(position[0], 1))
    return found


def _messages(fields: Iterator[Field] | list[Field], number: int) -> list[bytes]:
    found = [value for field, value in fields if field == number]
    if not all(isinstance(value, bytes) for value in found):
        raise CorruptionError(f"expected a message in field {number}, found a number")
    return [value for value in found if isinstance(value, bytes)]


def _one_number(data: bytes, number: int) -> int:
    found = [value for field, value in _fields(data) if field == number]
    if not found or not isinstance(found[-1], int):
        raise CorruptionError(f"expected a number in field {number}, found {len(found)} fields")
    value = found[-1]
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order: numbers, and bytes for everything else."""
    if data.startswith(COMPRESSED):
        raise CorruptionError("compressed by a broker (managedLedgerInfoCompressionType), which is not read")
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise CorruptionError(f"expected a field at {at}, found number 0")
        if kind == _NUMBER:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise CorruptionError(f"expected a field at {at}, found wire type {kind}")
        if at + size > len(data):
            raise CorruptionError(f"expected {counted(size, 'byte')} at {at}, found {len(data) - at}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for count in range(_NUMBER_BYTES_MAX):
        if at + count >= len(data):
            break
        byte = data[at + count]
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if number >> 64:
                break
            return number, at + count + 1
    raise CorruptionError(f"expected a number at {at}, found none that ends")
