"""The kernel's interface: the functions that both twins have.

Each takes a ``bytes`` buffer and positions relative to it, and keeps no reference to the buffer. A record is
``i32 size, body`` and a body starts ``i64 ledger, i64 entry`` (see ``codec.entry``). A *column* is ``bytes``
that hold one native i64 after the other, as ``array("q")`` and numpy take them.

Records handed to a checksum lie inside the buffer; the compiled twin raises ValueError for others.
"""

from __future__ import annotations

from typing import Protocol


class Kernels(Protocol):
    """A module of kernels. ``API`` grows with every change of a signature or a meaning."""

    API: int
    IMPL: str

    def walk_entries(
        self, buffer: bytes, start: int, end: int, size_min: int, size_max: int
    ) -> tuple[list[int], list[int], list[int], list[int], int]:
        """Follow entry records from ``start``: positions of size words, sizes, ledgers, entries, the stop.

        Stops at the first record that is not whole in ``buffer[:end]``, whose size is outside
        ``[size_min, size_max]`` or whose ledger or entry id is negative. ``0 <= start``, ``0 <= size_min``,
        ``end <= len(buffer)``.
        """

    def walk_columns(
        self, buffer: bytes, start: int, end: int, size_min: int, size_max: int
    ) -> tuple[bytes, bytes, bytes, bytes, int]:
        """:meth:`walk_entries` with columns for lists."""

    def failing_crc32c(self, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
        """Return the indices of the records whose CRC-32C does not check; too short ones included."""

    def failing_crc32(self, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
        """Return the indices of the records whose CRC-32 does not check; too short ones included."""

    def failing_mac(self, buffer: bytes, starts: list[int], sizes: list[int], key: bytes) -> list[int]:
        """Return the indices of records whose HMAC-SHA1 under ``key`` (at most 64 bytes) does not check."""

    def columns_failing_crc32c(self, buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
        """:meth:`failing_crc32c` of columns."""

    def columns_failing_crc32(self, buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
        """:meth:`failing_crc32` of columns."""

    def join_rows(self, rows: list[tuple[bytes, bytes]], key_bytes: int, value_bytes: int) -> bytes:
        """Keys and values one behind the other. ValueError when a row has another length of either."""
