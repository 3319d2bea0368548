"""The settings of a load on a bookie, and the report of what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.errors import UsageError
from bkctl.net.tls import ClientTlsSettings

#: Ids start here, so that each has five bytes as a protobuf integer and all frames have one length.
FIRST_ID = 1 << 28


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """One run. ``window`` is the number of requests outstanding on each connection.

    Each connection has ``ledgers`` ledgers of its own, from ``first_ledger`` on. ``rate_per_s`` None sends as
    fast as answers come. Reads are of ``entries`` entries of each ledger, in order or at ``random``, entries
    that an add run with the same settings wrote. ``warmup_s`` at the beginning is not measured. With ``tls``
    nothing but START_TLS is sent in clear.
    """

    host: str
    port: int
    wire: int = 2
    connections: int = 8
    window: int = 128
    ledgers: int = 1
    payload_bytes: int = 1024
    seconds: float = 5.0
    warmup_s: float = 1.0
    rate_per_s: float | None = None
    first_ledger: int = FIRST_ID
    entries: int = 10_000
    random: bool = False
    password: bytes = field(default=b"", repr=False)
    tls: ClientTlsSettings | None = None

    def __post_init__(self) -> None:
        if self.wire not in (2, 3):
            raise UsageError(f"protocol version {self.wire}: 2 or 3")
        for name in ("connections", "window", "ledgers", "entries"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} {getattr(self, name)}: at least 1")
        if self.payload_bytes < 0 or self.seconds <= 0 or self.warmup_s < 0:
            raise UsageError("sizes and times must not be negative, and there must be some time to measure")
        if self.rate_per_s is not None and self.rate_per_s <= 0:
            raise UsageError(f"rate {self.rate_per_s}: more than 0 a second")
        if self.first_ledger < FIRST_ID:
            raise UsageError(f"first ledger {self.first_ledger}: at least {FIRST_ID}")


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The measured figures. Latencies are from handing a request to the kernel to reading its answer.

    With a rate they are from when the request was due, in steps of a millisecond.

    ``codes`` counts answers by result code as the wire has it, 0 for success. ``cpu_us_per_op`` is the
    generator's own processor time.
    """

    operations: int
    seconds: float
    rate_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    cpu_us_per_op: float
    codes: dict[int, int]
    entries_per_ledger: int

    @property
    def failed(self) -> int:
        """Answers other than success."""
        return sum(count for code, count in self.codes.items() if code)
