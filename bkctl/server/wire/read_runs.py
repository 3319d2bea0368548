"""Runs of plain reads: what caches have at once, the rest from the read stage, both in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bkctl.errors import BkctlError, NoLedgerError, TooManyRequestsError
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import ReadRun, answer_reads
from bkctl.server.wire.answer_codes import code_of, log_io
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.port import Port
from bkctl.types import ResultCode

#: A chunk ends with the entry that brings it to this many entries or bytes.
CHUNK_ENTRIES_MAX = 128
CHUNK_BYTES_MAX = 1 << 20


class ReadRunJob:
    """One run on its way. ``start`` and ``resume`` on the loop's thread, the reading on the read stage."""

    __slots__ = ("_connection", "_keys", "_port", "_position", "_since_s", "_tokens", "_wire")

    def __init__(self, port: Port, connection: Channel, run: ReadRun) -> None:
        self._port = port
        self._connection = connection
        self._wire = run.wire
        self._keys = run.keys
        self._tokens = run.tokens
        self._position = 0
        self._since_s = port.now_s()

    def start(self) -> None:
        """Answer from the caches as far as they have the entries, then go on from the disk."""
        if not self._position:
            self._port.reads_waited.add(self._port.now_s() - self._since_s, len(self._keys))
        while self._position < len(self._keys) and not self._connection.write_paused:
            if not self._answer_cached():
                self.resume()
                return
        if self._position < len(self._keys):
            self._connection.turns.again(self.start)
        else:
            self._connection.turns.ended(len(self._keys))

    def resume(self) -> None:
        """Read the next chunk on the read stage; when that is full the rest of the run is refused."""
        stop = min(self._position + CHUNK_ENTRIES_MAX, len(self._keys))
        try:
            self._port.read_stage.submit(partial(self._read, stop), stop - self._position)
        except TooManyRequestsError as error:
            rest = len(self._keys) - self._position
            codes = [code_of(error)] * rest
            self._connection.write(answer_reads(self._wire, self._tokens[self._position :], codes))
            self._position = len(self._keys)
            self._port.reads_refused += rest
            self._connection.turns.ended(len(self._keys))

    def _answer_cached(self) -> bool:
        """Answer a chunk of entries that caches have; False when the next one is not there."""
        started_s = self._port.now_s()
        cached = self._port.bookie.reads.cached
        bodies: list[bytes] = []
        size_bytes = 0
        first = self._position
        for key in self._keys[first : first + CHUNK_ENTRIES_MAX]:
            body = cached(key)
            if body is None:
                break
            bodies.append(body)
            size_bytes += len(body)
            if size_bytes >= CHUNK_BYTES_MAX:
                break
        stop = first + len(bodies)
        lacs = self._known_lacs(self._keys[first:stop])
        if not bodies or lacs is None:
            return False
        self._position = stop
        self._port.bookie.reads.count_cached(self._keys[first], len(bodies), started_s)
        self._write(self._tokens[first:stop], bodies, size_bytes, lacs, self._port.now_s() - started_s)
        return True

    def _known_lacs(self, keys: Sequence[bytes]) -> list[int | None] | None:
        """Return the LACs that go with the entries; None when one must be read from the disk first."""
        if self._wire is Wire.V2:
            return []
        known = {ledger: self._port.bookie.reads.known_lac(ledger) for ledger in set(map(_ledger, keys))}
        if None in known.values():
            return None
        return [known[ledger] for ledger in map(_ledger, keys)]

    def _write(
        self,
        tokens: Sequence[bytes],
        bodies: Sequence[bytes],
        size_bytes: int,
        lacs: Sequence[int | None],
        worked_s: float,
    ) -> None:
        lacs_or_none = lacs if self._wire is Wire.V3 else None
        self._connection.write(answer_reads(self._wire, tokens, bodies, lacs_or_none))
        self._port.reads_ended(len(tokens), 0, size_bytes, self._since_s, worked_s)

    def _read(self, stop: int) -> None:
        """On the read stage: up to ``stop``, or as many as make a chunk."""
        started_s = self._port.now_s()
        first = self._position
        keys = self._keys[first:stop]
        results: list[bytes | ResultCode] = []
        size_bytes = 0
        step = 16
        while len(results) < len(keys) and size_bytes < CHUNK_BYTES_MAX:
            for answer in self._read_some(keys[len(results) : len(results) + step]):
                results.append(answer)
                size_bytes += len(answer) if isinstance(answer, bytes) else 0
            # As many as fit when the next ones are like these.
            average = max(1, size_bytes // len(results))
            step = max(1, min(CHUNK_ENTRIES_MAX, (CHUNK_BYTES_MAX - size_bytes) // average))
        lacs = self._lacs(keys[: len(results)])
        self._position = first + len(results)
        frames = partial(answer_reads, self._wire, self._tokens[first : self._position], results, lacs)
        found = sum([isinstance(result, bytes) for result in results])
        worked_s = self._port.now_s() - started_s
        written = partial(self._written, found, len(results) - found, size_bytes, worked_s)
        self._port.answers.post([(self._connection, frames, written)])

    def _read_some(self, keys: Sequence[bytes]) -> list[bytes | ResultCode]:
        results: list[bytes | ResultCode] = []
        for answer in self._port.bookie.reads.read_many(keys):
            if isinstance(answer, bytes):
                results.append(answer)
            else:
                log_io(answer)
                results.append(answer.code)
        return results

    def _lacs(self, keys: Sequence[bytes]) -> list[int | None] | None:
        if self._wire is Wire.V2:
            return None
        lacs: dict[int, int | None] = {}
        for ledger in set(map(_ledger, keys)):
            try:
                lacs[ledger] = self._port.bookie.reads.last_add_confirmed(ledger)
            except NoLedgerError:
                lacs[ledger] = None
            except BkctlError as error:
                # The entries themselves were read; the client does without the LAC.
                log_io(error)
                lacs[ledger] = None
        return [lacs[ledger] for ledger in map(_ledger, keys)]

    def _written(self, count: int, failed: int, size_bytes: int, worked_s: float) -> None:
        self._port.reads_ended(count, failed, size_bytes, self._since_s, worked_s)
        if self._position < len(self._keys):
            self._connection.turns.again(self.resume)
        else:
            self._connection.turns.ended(len(self._keys))


def _ledger(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
