"""Ledger metadata of formats 1 and 2, which are text.

Format 1, lines and TABs; nothing but what stands here is stored::

    2                                write quorum, which is the ack quorum too
    3                                ensemble size
    40                               length in bytes of payload
    0<TAB>b1:3181<TAB>b2:3181        first entry of a segment, its bookies; one line per segment
    3<TAB>CLOSED                     last entry; -102 says IN_RECOVERY; without this line it is OPEN

The line with CLOSED ends without a newline, the others with one.

Format 2 is ``LedgerMetadataFormat`` (``codec.ledger_metadata_proto``) as protobuf text
(``codec.protobuf_text``). Java does not write cToken there. Fields that the message does not have are
skipped when read and cannot be written: 4.17.3 refuses them.

Source: ``org.apache.bookkeeper.meta.LedgerMetadataSerDe``, ``parseVersion1Config`` and
``serializeVersion1``, ``serializeVersion2``.
"""

from __future__ import annotations

import re

from bkctl.codec.ledger_metadata_values import NO_ENTRY, SEGMENTS_MAX, LedgerMetadata, Segment
from bkctl.errors import CorruptionError, UsageError
from bkctl.types import LedgerState

_CLOSED = "CLOSED"
_IN_RECOVERY_ENTRY = -102

_LINE = re.compile(rb"([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_I32_BITS, _I64_BITS = 32, 64


def decode_lines(body: bytes, base: int) -> LedgerMetadata:
    """Decode metadata of format 1 from behind the header, which are stored from offset ``base`` on.

    Raises CorruptionError.
    """
    lines = _split_lines(body, base)
    if len(lines) < 3:
        raise CorruptionError(
            "ledger metadata",
            offset=base + len(body),
            expected="lines with write quorum, ensemble size and length",
            found=f"{len(lines)} lines",
        )
    (quorum, ensemble), length = [_number(*line, bits=_I32_BITS) for line in lines[:2]], _number(*lines[2])
    segments: list[Segment] = []
    state, last_entry = LedgerState.OPEN, NO_ENTRY
    for index, (line, offset) in enumerate(lines[3:], 4):
        first, *bookies = line.split("\t")
        if bookies == [_CLOSED]:
            if index != len(lines):
                raise CorruptionError(
                    "ledger metadata", offset=lines[index][1], expected="no line behind CLOSED"
                )
            state, last_entry = _closing(_number(first, offset))
            break
        if not all(bookies) or not bookies:
            raise CorruptionError("ledger metadata", offset=offset, expected="bookie ids behind a TAB")
        segments.append(Segment(_number(first, offset), tuple(bookies)))
    return LedgerMetadata(
        metadata_version=1,
        write_quorum=quorum,
        ensemble_size=ensemble,
        ack_quorum=quorum,
        length=length,
        last_entry=last_entry,
        state=state,
        segments=tuple(segments),
    )


def encode_lines(metadata: LedgerMetadata) -> bytes:
    """Encode metadata in format 1, without a header. Raises UsageError for what has no place there."""
    _check_fits_lines(metadata)
    lines = [f"{metadata.write_quorum}\n{metadata.ensemble_size}\n{metadata.length}\n"]
    lines += ["\t".join((str(segment.first_entry), *segment.bookies)) + "\n" for segment in metadata.segments]
    if metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{_IN_RECOVERY_ENTRY}\t{_CLOSED}")
    elif metadata.state is LedgerState.CLOSED:
        lines.append(f"{metadata.last_entry}\t{_CLOSED}")
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:
        raise UsageError("a bookie id is no Unicode text") from None


def decode_text(body: bytes, base: int) -> LedgerMetadata:
    """Decode metadata of format 2 from behind the header. Raises CorruptionError."""
    from bkctl.codec.ledger_metadata_proto import from_message
    from bkctl.codec.proto.bookkeeper_pb2 import LedgerMetadataFormat
    from bkctl.codec.protobuf_text import merge_text

    message = LedgerMetadataFormat()
    merge_text(message, body, what="ledger metadata", base=base)
    return from_message(message, version=2, base=base)


def encode_text(metadata: LedgerMetadata) -> bytes:
    """Encode metadata in format 2, without a header.

    Raises UsageError when a value does not fit its field, and for unknown fields.
    """
    from bkctl.codec.ledger_metadata_proto import to_message
    from bkctl.codec.proto.bookkeeper_pb2 import LedgerMetadataFormat as Format
    from bkctl.codec.protobuf_text import quote

    if metadata.unknown_fields or any(segment.unknown_fields for segment in metadata.segments):
        raise UsageError("ledger metadata of format 2 cannot hold unknown fields")
    message = to_message(metadata)
    lines: list[str] = []
    for descriptor, value in message.ListFields():
        name = descriptor.name
        if name == "segment":
            for segment in message.segment:
                members = "".join(f"  ensembleMember: {quote(m.encode())}\n" for m in segment.ensembleMember)
                lines.append(f"segment {{\n{members}  firstEntryId: {segment.firstEntryId}\n}}\n")
        elif name == "customMetadata":
            for pair in message.customMetadata:
                key, content = quote(pair.key.encode()), quote(pair.value)
                lines.append(f"customMetadata {{\n  key: {key}\n  value: {content}\n}}\n")
        elif name == "password":
            lines.append(f"password: {quote(message.password)}\n")
        elif name == "state":
            lines.append(f"state: {Format.State.Name(message.state)}\n")
        elif name == "digestType":
            lines.append(f"digestType: {Format.DigestType.Name(message.digestType)}\n")
        else:
            lines.append(f"{name}: {value}\n")
    return "".join(lines).encode("ascii")


def _split_lines(body: bytes, base: int) -> list[tuple[str, int]]:
    """Return the lines with their offsets in the stored bytes; a last empty one is none."""
    lines: list[tuple[str, int]] = []
    position = 0
    while position < len(body):
        if len(lines) > SEGMENTS_MAX:
            raise CorruptionError("ledger metadata", offset=base + position, expected="fewer lines")
        found = _LINE.match(body, position)
        assert found is not None, "the pattern matches at every position"
        try:
            lines.append((found[1].decode("utf-8"), base + position))
        except UnicodeDecodeError as error:
            raise CorruptionError(
                "ledger metadata", offset=base + position + error.start, expected="UTF-8 text"
            ) from None
        position = found.end()
    return lines


def _number(text: str, offset: int, bits: int = _I64_BITS) -> int:
    if _NUMBER.match(text):
        number = int(text)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise CorruptionError(
        "ledger metadata", offset=offset, expected=f"a number of {bits} bits", found=repr(text[:32])
    )


def _closing(entry: int) -> tuple[LedgerState, int]:
    if entry == _IN_RECOVERY_ENTRY:
        return LedgerState.IN_RECOVERY, NO_ENTRY
    return LedgerState.CLOSED, entry


def _check_fits_lines(metadata: LedgerMetadata) -> None:
    unfit = {
        "an ack quorum of its own": metadata.ack_quorum != metadata.write_quorum,
        "a digest type": metadata.digest_type is not None,
        "a password": metadata.password is not None,
        "a creation time": metadata.ctime_ms is not None,
        "custom metadata": bool(metadata.custom_metadata),
        "unknown fields": bool(metadata.unknown_fields or any(s.unknown_fields for s in metadata.segments)),
        "a last entry, not being closed": (
            metadata.state is not LedgerState.CLOSED and metadata.last_entry != NO_ENTRY
        ),
        "the last entry -102": (
            metadata.state is LedgerState.CLOSED and metadata.last_entry == _IN_RECOVERY_ENTRY
        ),
    }
    for what, present in unfit.items():
        if present:
            raise UsageError(f"ledger metadata of format 1 cannot hold {what}")
    numbers = [(metadata.write_quorum, _I32_BITS), (metadata.ensemble_size, _I32_BITS)]
    numbers += [(metadata.length, _I64_BITS), (metadata.last_entry, _I64_BITS)]
    numbers += [(segment.first_entry, _I64_BITS) for segment in metadata.segments]
    if not all(-(1 << (bits - 1)) <= number < 1 << (bits - 1) for number, bits in numbers):
        raise UsageError("a number of the ledger metadata does not fit its field")
    for segment in metadata.segments:
        if segment.bookies in ((), (_CLOSED,)) or not all(map(_fits_line, segment.bookies)):
            raise UsageError(f"ledger metadata of format 1 cannot hold the bookies {segment.bookies!r}")


def _fits_line(bookie: str) -> bool:
    return bool(bookie) and not any(character in bookie for character in "\t\r\n")
