"""Rows of the ``ledgers`` database.

============ ====================== ===========================================================
key          value                  is
============ ====================== ===========================================================
i64 >= 0     ``LedgerData``         a ledger
i64 >= 0, 0  ``LedgerData``         the same, written by Java's index rebuild with a 16-byte key
i64 -0xeefd  i64 bit set            flags of the storage; bit 0 is NEEDS_INTEGRITY_CHECK
============ ====================== ===========================================================

Keys are big-endian and signed. Java loads rows in key order by the first 8 bytes of the key, so that a
16-byte row overrides the 8-byte one of its ledger although it is the older; readers here prefer the 8-byte
row and writers write no other.

``LedgerData`` is protobuf, fields in number order::

    1 exists       required bool   08 01           always true
    2 fenced       required bool   10 00 | 10 01   always present
    3 masterKey    required bytes  1a <len> ...    may be empty
    4 explicitLac  optional bytes  22 <len> ...    codec.explicit_lac
    5 limbo        optional bool   28 01 | 28 00   entries may have been lost: "absent" means "unknown"

The message is walked by hand, because a row that is read and written back must keep its bytes: unknown
fields are kept, and a row that is not in protobuf's canonical form is remembered as it stood.

Source: ``DbLedgerStorageDataFormats.proto``, ``org.apache.bookkeeper.bookie.storage.ldb.LedgerMetadataIndex``
and ``LedgersIndexRebuildOp`` (16-byte keys).
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass

from bkctl.codec import varint
from bkctl.errors import CorruptionError
from bkctl.reporting import counted

KEY_BYTES = 8
REBUILT_KEY_BYTES = 16
FLAGS_ID = -0xEEFD
NEEDS_INTEGRITY_CHECK = 1

_I64 = struct.Struct(">q")
_EXISTS, _FENCED, _MASTER_KEY, _EXPLICIT_LAC, _LIMBO = range(1, 6)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_WIRE = {_EXISTS: _VARINT, _FENCED: _VARINT, _MASTER_KEY: _BYTES, _EXPLICIT_LAC: _BYTES, _LIMBO: _VARINT}
_NAMES = {_EXISTS: "exists", _FENCED: "fenced", _MASTER_KEY: "masterKey"}
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class LedgerData:
    """The row that a bookie keeps of a ledger besides its entries.

    ``explicit_lac`` is the client's blob, opaque; ``limbo`` None means that the row does not have the field.
    ``unknown`` holds fields of later versions. ``original`` is the row as read when it was not in canonical
    form; it counts only as long as the other fields still say the same.
    """

    fenced: bool
    master_key: bytes = dataclasses.field(repr=False)
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    exists: bool = True
    unknown: bytes = b""
    original: bytes | None = dataclasses.field(default=None, repr=False, compare=False)


def encode_ledger_key(ledger: int) -> bytes:
    """Return the 8 bytes of a key."""
    return _I64.pack(ledger)


def decode_ledger_key(key: bytes) -> tuple[int, int]:
    """Return the ledger id and length of the key, 8 or 16.

    The id is ``FLAGS_ID`` for the row of flags. Raises CorruptionError for any other negative id and for
    keys of any other form.
    """
    if len(key) not in (KEY_BYTES, REBUILT_KEY_BYTES):
        raise CorruptionError("ledgers key", expected="8 or 16 bytes", found=counted(len(key), "byte"))
    ledger: int = _I64.unpack_from(key)[0]
    if ledger < 0 and not (ledger == FLAGS_ID and len(key) == KEY_BYTES):
        raise CorruptionError("ledgers key", expected="a ledger id >= 0 or the flags", found=str(ledger))
    if any(key[KEY_BYTES:]):
        raise CorruptionError(
            "ledgers key", offset=KEY_BYTES, expected="8 zero bytes", found=key[KEY_BYTES:].hex()
        )
    return ledger, len(key)


def encode_flags(flags: int) -> bytes:
    """Return the value of the row of flags."""
    return _I64.pack(flags)


def decode_flags(value: bytes) -> int:
    """Return the flags. Raises CorruptionError unless there are 8 bytes and no bits but the known one."""
    if len(value) != _I64.size:
        raise CorruptionError("storage flags", expected="8 bytes", found=counted(len(value), "byte"))
    flags: int = _I64.unpack(value)[0]
    if flags & ~NEEDS_INTEGRITY_CHECK:
        raise CorruptionError("storage flags", expected="only bit 0", found=value.hex())
    return flags


def encode_ledger_data(data: LedgerData) -> bytes:
    """Return the row's value: as read when nothing was changed since, canonical otherwise."""
    if data.original is not None and _decode(data.original) == data:
        return data.original
    return _encode(data)


def decode_ledger_data(value: bytes) -> LedgerData:
    """Return the row's value. Raises CorruptionError when it is not protobuf or lacks a required field."""
    data = _decode(value)
    return data if _encode(data) == value else dataclasses.replace(data, original=bytes(value))


def _encode(data: LedgerData) -> bytes:
    parts = [
        b"\x08\x01" if data.exists else b"\x08\x00",
        b"\x10\x01" if data.fenced else b"\x10\x00",
        b"\x1a" + varint.encode(len(data.master_key)) + data.master_key,
    ]
    if data.explicit_lac is not None:
        parts.append(b"\x22" + varint.encode(len(data.explicit_lac)) + data.explicit_lac)
    if data.limbo is not None:
        parts.append(b"\x28\x01" if data.limbo else b"\x28\x00")
    return b"".join(parts) + data.unknown


def _decode(value: bytes) -> LedgerData:
    known: dict[int, int | bytes] = {}
    unknown: list[bytes] = []
    position = 0
    while position < len(value):
        start = position
        tag, position = _decode_varint(value, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise CorruptionError("LedgerData", offset=start, expected="a field number", found=str(number))
        content, position = _decode_field(value, position, wire)
        if _WIRE.get(number) == wire:
            known[number] = content
        else:
            unknown.append(value[start:position])
    for number, name in _NAMES.items():
        if number not in known:
            raise CorruptionError("LedgerData", offset=len(value), expected=f"field {name}", found="none")
    lac = known.get(_EXPLICIT_LAC)
    return LedgerData(
        fenced=bool(known[_FENCED]),
        master_key=_octets(known[_MASTER_KEY]),
        explicit_lac=None if lac is None else _octets(lac),
        limbo=bool(known[_LIMBO]) if _LIMBO in known else None,
        exists=bool(known[_EXISTS]),
        unknown=b"".join(unknown),
    )


def _octets(content: int | bytes) -> bytes:
    assert isinstance(content, bytes), "the wire type was checked"
    return content


def _decode_field(value: bytes, position: int, wire: int) -> tuple[int | bytes, int]:
    if wire == _VARINT:
        return _decode_varint(value, position)
    if wire == _BYTES:
        length, position = _decode_varint(value, position)
    elif wire in _FIXED_BYTES:
        length = _FIXED_BYTES[wire]
    else:
        raise CorruptionError("LedgerData", offset=position, expected="wire type 0, 1, 2, 5", found=str(wire))
    if length > len(value) - position:
        raise CorruptionError(
            "LedgerData",
            offset=position,
            expected=counted(length, "byte"),
            found=counted(len(value) - position, "byte"),
        )
    return bytes(value[position : position + length]), position + length


def _decode_varint(value: bytes, position: int) -> tuple[int, int]:
    result = 0
    for index, octet in enumerate(value[position : position + _VARINT_BYTES_MAX]):
        result |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise CorruptionError("LedgerData", offset=position, expected="a varint", found="no end of it")
