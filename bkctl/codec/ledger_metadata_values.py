"""The values of ledger metadata, whichever of its three formats it is stored in.

The values have no bytes of their own: ``codec.ledger_metadata`` holds the layout, and
``codec.ledger_metadata_text`` and ``codec.ledger_metadata_proto`` its parts. Meaning of the fields as in
``org.apache.bookkeeper.client.api.LedgerMetadata``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.types import DigestType, LedgerState

#: Bound on stored metadata. ZooKeeper's own bound is 1 MiB unless configured.
METADATA_BYTES_MAX = 16 << 20

#: Bound on the segments of a ledger, and on its custom pairs.
SEGMENTS_MAX = 1 << 20

#: ``last_entry`` of a ledger that is not closed, and of one that was closed empty.
NO_ENTRY = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """From ``first_entry`` on, entries went to these bookies (ids, in the order of the ensemble).

    ``unknown_fields`` are protobuf fields of format 3 that this version has no name for, as raw bytes.
    """

    first_entry: int
    bookies: tuple[str, ...]
    unknown_fields: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata; decoding and encoding again gives the bytes that Java wrote.

    ``length`` counts bytes of payload and is 0 until the ledger is closed; ``last_entry`` is -1 until then,
    and for a ledger closed empty. ``segments`` and ``custom_metadata`` keep the stored order.
    ``digest_type`` and ``password`` are None when not stored (format 1 never stores them); an empty password
    is ``b""``. ``ctime_ms`` counts from 1970. ``c_token`` is a random number given at creation, 0 after a
    rewrite; it says nothing about the ledger.

    ``ack_quorum`` is the write quorum where none is stored. ``ack_quorum_stored`` and ``last_entry_stored``
    mean, for formats 2 and 3, that the field is there; a value other than the default is always written.
    ``unknown_fields`` are as in :class:`Segment`. The password and the unknown fields are not in the repr.
    """

    metadata_version: int
    write_quorum: int
    ensemble_size: int
    ack_quorum: int
    length: int
    last_entry: int
    state: LedgerState
    segments: tuple[Segment, ...]
    digest_type: DigestType | None = None
    password: bytes | None = field(default=None, repr=False)
    ctime_ms: int | None = None
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    c_token: int | None = None
    ack_quorum_stored: bool = True
    last_entry_stored: bool = True
    unknown_fields: bytes = field(default=b"", repr=False)
