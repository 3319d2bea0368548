"""Ledger metadata <-> ``LedgerMetadataFormat``, the message behind formats 2 and 3.

=== =============== ========= ======== =====================================================================
no. name            type      required meaning
=== =============== ========= ======== =====================================================================
1   quorumSize      int32     yes      write quorum
2   ensembleSize    int32     yes
3   length          int64     yes      bytes of payload, 0 until closed
4   lastEntryId     int64     no       -1 until closed; a closed ledger without it is damage
5   state           enum      yes      1 OPEN, 2 IN_RECOVERY, 3 CLOSED
6   segment         message*  no       1 ensembleMember: string*, 2 firstEntryId: int64 (required)
7   digestType      enum      no       1 CRC32, 2 HMAC, 3 CRC32C, 4 DUMMY
8   password        bytes     no       in clear; may be stored and empty
9   ackQuorumSize   int32     no       the write quorum when absent
10  ctime           int64     no       milliseconds since 1970
11  customMetadata  message*  no       1 key: string, 2 value: bytes
12  cToken          int64     no       random at creation, 0 after a rewrite
=== =============== ========= ======== =====================================================================

Format 3 is the varint length of the message, then the message in binary, then nothing. Java writes fields in
number order; fields that it does not know it keeps at the end. An unknown digest type counts as an unknown
field, an unknown state as a missing one. Of a custom pair, an absent key or value reads as empty, and is
written.

Source: ``DataFormats.proto``, ``org.apache.bookkeeper.meta.LedgerMetadataSerDe``.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from bkctl.codec import varint
from bkctl.codec.ledger_metadata_values import NO_ENTRY, SEGMENTS_MAX, LedgerMetadata, Segment
from bkctl.codec.proto.bookkeeper_pb2 import LedgerMetadataFormat
from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted
from bkctl.types import DigestType, LedgerState

_STATE_CODES = {
    LedgerState.OPEN: LedgerMetadataFormat.OPEN,
    LedgerState.IN_RECOVERY: LedgerMetadataFormat.IN_RECOVERY,
    LedgerState.CLOSED: LedgerMetadataFormat.CLOSED,
}
_STATES = {int(code): state for state, code in _STATE_CODES.items()}

_DIGEST_CODES = {
    DigestType.CRC32: LedgerMetadataFormat.CRC32,
    DigestType.MAC: LedgerMetadataFormat.HMAC,
    DigestType.CRC32C: LedgerMetadataFormat.CRC32C,
    DigestType.DUMMY: LedgerMetadataFormat.DUMMY,
}
_DIGESTS = {int(code): digest for digest, code in _DIGEST_CODES.items()}

_REQUIRED = ("quorumSize", "ensembleSize", "length", "state")

_VARINT_BYTES_MAX = 10


def decode_binary(body: bytes, base: int) -> LedgerMetadata:
    """Decode metadata of format 3 from behind the header, which are stored from offset ``base`` on.

    Raises CorruptionError.
    """
    size, start = _read_varint(body, base)
    if size != len(body) - start:
        raise CorruptionError(
            "ledger metadata",
            offset=base,
            expected=f"a message of {counted(size, 'byte')}",
            found=counted(len(body) - start, "byte"),
        )
    message = LedgerMetadataFormat()
    try:
        message.ParseFromString(body[start:])
    except (DecodeError, UnicodeDecodeError):
        raise CorruptionError(
            "ledger metadata", offset=base + start, expected="a protobuf message", found="other bytes"
        ) from None
    return from_message(message, version=3, base=base + start)


def encode_binary(metadata: LedgerMetadata) -> bytes:
    """Encode metadata in format 3, without a header. Raises UsageError when a value does not fit a field."""
    body = to_message(metadata).SerializeToString() + metadata.unknown_fields
    return varint.encode(len(body)) + body


def from_message(message: LedgerMetadataFormat, *, version: int, base: int) -> LedgerMetadata:
    """Return the values of a parsed message.

    Raises CorruptionError, at ``base``, when one is missing or bad.
    """
    _check_required(message, base)
    closed = message.state == LedgerMetadataFormat.CLOSED
    if closed and not message.HasField("lastEntryId"):
        raise CorruptionError(
            "ledger metadata", offset=base, expected="lastEntryId", found="CLOSED without it"
        )
    has_ack_quorum = message.HasField("ackQuorumSize")
    has_last_entry = message.HasField("lastEntryId")
    return LedgerMetadata(
        metadata_version=version,
        write_quorum=message.quorumSize,
        ensemble_size=message.ensembleSize,
        ack_quorum=message.ackQuorumSize if has_ack_quorum else message.quorumSize,
        length=message.length,
        last_entry=message.lastEntryId if has_last_entry else NO_ENTRY,
        state=_STATES[message.state],
        segments=tuple(_segment(segment, base) for segment in message.segment),
        digest_type=_DIGESTS[message.digestType] if message.HasField("digestType") else None,
        password=message.password if message.HasField("password") else None,
        ctime_ms=message.ctime if message.HasField("ctime") else None,
        custom_metadata=tuple((_text(pair.key, base), pair.value) for pair in message.customMetadata),
        c_token=message.cToken if message.HasField("cToken") else None,
        ack_quorum_stored=has_ack_quorum,
        last_entry_stored=has_last_entry,
        unknown_fields=_unknown_fields(message),
    )


def to_message(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    """Return the message of a ledger, without the unknown fields at its top.

    Raises UsageError when a number does not fit its field, or a string is no Unicode text.
    """
    try:
        return _build(metadata)
    except ValueError:
        raise UsageError("a value of the ledger metadata does not fit its field") from None


def _build(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        state=_STATE_CODES[metadata.state],
        password=metadata.password,
        ctime=metadata.ctime_ms,
        cToken=metadata.c_token,
    )
    if metadata.last_entry_stored or metadata.last_entry != NO_ENTRY:
        message.lastEntryId = metadata.last_entry
    if metadata.ack_quorum_stored or metadata.ack_quorum != metadata.write_quorum:
        message.ackQuorumSize = metadata.ack_quorum
    if metadata.digest_type is not None:
        message.digestType = _DIGEST_CODES[metadata.digest_type]
    for segment in metadata.segments:
        added = message.segment.add(ensembleMember=segment.bookies, firstEntryId=segment.first_entry)
        if segment.unknown_fields:
            added.MergeFromString(segment.unknown_fields)
    for key, value in metadata.custom_metadata:
        message.customMetadata.add(key=key, value=value)
    return message


def _check_required(message: LedgerMetadataFormat, base: int) -> None:
    for name in _REQUIRED:
        if not message.HasField(name):
            raise CorruptionError("ledger metadata", offset=base, expected=f"field {name}", found="none")
    for name, count in (("segments", len(message.segment)), ("custom pairs", len(message.customMetadata))):
        if count > SEGMENTS_MAX:
            raise CorruptionError(
                "ledger metadata", offset=base, expected=f"at most {SEGMENTS_MAX} {name}", found=str(count)
            )
    if not message.IsInitialized():
        raise CorruptionError(
            "ledger metadata", offset=base, expected="firstEntryId in every segment", found="one without it"
        )


def _segment(segment: LedgerMetadataFormat.Segment, base: int) -> Segment:
    bookies = tuple(_text(bookie, base) for bookie in segment.ensembleMember)
    return Segment(segment.firstEntryId, bookies, _unknown_fields(segment))


def _text(value: str | bytes, base: int) -> str:
    """Return a string field; protobuf's C runtime hands out the bytes of one that is not UTF-8."""
    if isinstance(value, bytes):
        raise CorruptionError("ledger metadata", offset=base, expected="UTF-8 strings", found="other bytes")
    return value


def _unknown_fields(message: Message) -> bytes:
    """Return the fields that the message's descriptor does not name, as they were stored."""
    rest = type(message)()
    rest.CopyFrom(message)
    for descriptor, _ in message.ListFields():
        rest.ClearField(descriptor.name)
    return rest.SerializePartialToString()


def _read_varint(data: bytes, base: int) -> tuple[int, int]:
    """Return an unsigned varint at the front, and its size in bytes."""
    value = 0
    for position, byte in enumerate(data[:_VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, position + 1
    raise CorruptionError("ledger metadata", offset=base, expected="the length of the message", found="none")
