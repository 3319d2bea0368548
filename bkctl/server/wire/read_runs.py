"""Runs of plain reads: what caches have at once, the rest from the read stage, both in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from bkctl.codec.location import KEY_BYTES
from bkctl.engine.cache.entry_table import LEDGER_BYTES
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.engine.engine_thread import as_failure, report, reported
from bkctl.errors import NoLedgerError, TooManyRequestsError
from bkctl.protocol.framing import LENGTH_BYTES
from bkctl.protocol.messages import Wire
from bkctl.protocol.runs import PackedReadRun, ReadRun, answer_read_records, answer_reads
from bkctl.server.wire.answer_codes import code_of, code_of_any, log_io
from bkctl.server.wire.answers import Answer, end_unanswered
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.port import Port
from bkctl.server.wire.read_turns import RUN_PLACES
from bkctl.types import ResultCode

#: A chunk ends with the entry that brings it to this many entries or bytes.
CHUNK_ENTRIES_MAX = 128
CHUNK_BYTES_MAX = 1 << 20
_READING = "reading entries"
_COUNTING = "counting reads"


class ReadRunJob:
    """The work on one run. ``start`` and ``resume`` run on the loop's thread, reads on the read stage."""

    __slots__ = ("_connection", "_ended", "_port", "_position", "_run", "_since_s", "_stop", "_wire")

    def __init__(self, port: Port, connection: Channel, run: ReadRun) -> None:
        self._port = port
        self._connection = connection
        self._run = run
        self._wire = run.wire
        self._position = 0
        #: The end of the chunk that is being read.
        self._stop = 0
        self._ended = False
        self._since_s = port.now_s()

    def join(self, run: ReadRun) -> bool:
        """Read what another run asks for as well; False when the two differ in kind or would be too long.

        Only before :meth:`start`. The time of all answers is then measured from when this one came.
        """
        return len(self._run) + len(run) <= self._port.read_pace.joined_max and self._run.join(run)

    def start(self) -> None:
        """Answer from the caches as far as they have the entries, then go on from the disk."""
        try:
            self._start()
        except Exception as error:  # noqa: BLE001 - without answers the run would keep its turn for good
            self._refuse_rest(code_of_any(_READING, error))

    def _start(self) -> None:
        if not self._position:
            reported(_COUNTING, self._count_wait)
        while self._position < len(self._run) and not self._connection.write_paused:
            if not self._answer_cached():
                self.resume()
                return
        if self._position < len(self._run):
            self._connection.turns.again(self.start, places=RUN_PLACES)
        else:
            self._end()

    def _count_wait(self) -> None:
        self._port.reads_waited.add(self._port.now_s() - self._since_s, len(self._run))

    def resume(self) -> None:
        """Have the next chunk read on the read stage; when that is full the rest of the run is refused."""
        self._stop = min(self._position + CHUNK_ENTRIES_MAX, len(self._run))
        try:
            reads = self._port.bookie.reads
            number = reads.directory_of(self._joined(self._position, self._position + 1))
            self._port.read_queues[number].add(self)
        except TooManyRequestsError as error:
            self._port.reads_refused += len(self._run) - self._position
            self._refuse_rest(code_of(error))
        except Exception as error:  # noqa: BLE001 - as in `start`
            self._refuse_rest(code_of_any(_READING, error))

    @property
    def requests(self) -> int:
        return self._stop - self._position

    def _refuse_rest(self, code: ResultCode) -> None:
        """Answer what is left of the run with an error, and end it, unless it has ended.

        A connection on which even that fails ends: its client asks others then.
        """
        rest = len(self._run) - self._position
        try:
            if rest:
                frames = answer_reads(self._wire, self._run.tokens[self._position :], [code] * rest)
                self._connection.write(frames)
        except Exception as error:  # noqa: BLE001 - the turn must be given back
            report("refusing reads", error)
            end_unanswered([self._connection])
        finally:
            self._position = len(self._run)
            self._end()

    def _end(self) -> None:
        """Give the run's turn back, once."""
        if not self._ended:
            self._ended = True
            self._connection.turns.ended(len(self._run), places=RUN_PLACES)

    def _answer_cached(self) -> bool:
        """Answer a chunk of entries that caches have; False when the next one is not there."""
        started_s = self._port.now_s()
        try:
            frames, count, size_bytes = self._cached_frames()
        except Exception as error:  # noqa: BLE001 - the entries are on the disk or still in the caches later
            report("reading entries from the caches", error)
            return False
        if not count:
            return False
        reported(_COUNTING, self._count_cached, count, started_s)
        # Entries in front of this place are not refused after an error: nothing is sent twice.
        self._position += count
        self._connection.write(frames)
        reported("reading ahead", self._read_ahead)
        reported(_COUNTING, self._count_answered, count, size_bytes, started_s)
        return True

    def _count_cached(self, count: int, started_s: float) -> None:
        first = self._joined(self._position, self._position + 1)
        self._port.bookie.reads.count_cached(first, count, started_s)

    def _count_answered(self, count: int, size_bytes: int, started_s: float) -> None:
        self._port.reads_ended(count, 0, size_bytes, self._since_s, self._port.now_s() - started_s)

    def _cached_frames(self) -> tuple[bytes, int, int]:
        """Return the answers for a chunk of entries that caches have, their number and the entries' bytes.

        The number is 0 where the next entry, or what goes with it, must be read from the disk.
        """
        reads = self._port.bookie.reads
        first = self._position
        bodies: list[bytes] = []
        together = reads.cached_records(self._joined(first, first + CHUNK_ENTRIES_MAX), CHUNK_BYTES_MAX)
        if together is None:
            bodies, size_bytes = self._cached_bodies()
            count = len(bodies)
        else:
            records, count = together
            size_bytes = len(records) - LENGTH_BYTES * count
        if not count:
            return b"", 0, 0
        stop = first + count
        lacs = self._known_lacs(self._joined(first, stop))
        if lacs is None:
            return b"", 0, 0
        if together is not None and isinstance(self._run, PackedReadRun):
            frames = answer_read_records(self._run, first, records, lacs)
        else:
            if together is not None:
                bodies = bodies_of(records)
            frames = answer_reads(self._wire, self._run.tokens[first:stop], bodies, lacs)
        return frames, count, size_bytes

    def _read_ahead(self) -> None:
        """Have more read ahead when the client, by the entry that it got last, is where that is due."""
        key = self._joined(self._position - 1, self._position)
        reads = self._port.bookie.reads
        if reads.claim_next(key):
            # A stage that is full has better things to do.
            with contextlib.suppress(TooManyRequestsError):
                self._port.read_stage.submit(partial(reads.read_next, key))

    def _joined(self, first: int, stop: int) -> bytes:
        if isinstance(self._run, PackedReadRun):
            return self._run.packed_keys[KEY_BYTES * first : KEY_BYTES * stop]
        return b"".join(self._run.keys[first:stop])

    def _cached_bodies(self) -> tuple[list[bytes], int]:
        """Return a chunk of entries that caches have, and their bytes, looked up one by one."""
        cached = self._port.bookie.reads.cached
        bodies: list[bytes] = []
        size_bytes = 0
        for key in self._run.keys[self._position : self._position + CHUNK_ENTRIES_MAX]:
            body = cached(key)
            if body is None:
                break
            bodies.append(body)
            size_bytes += len(body)
            if size_bytes >= CHUNK_BYTES_MAX:
                break
        return bodies, size_bytes

    def _known_lacs(self, keys: bytes) -> list[int] | None:
        """Return the LACs that go with the entries of ``keys``; None when one must be read from the disk."""
        if self._wire is Wire.V2:
            return []
        ledgers = [keys[at : at + LEDGER_BYTES] for at in range(0, len(keys), KEY_BYTES)]
        known: dict[bytes, int] = {}
        for ledger in set(ledgers):
            lac = self._port.bookie.reads.known_lac(_ledger(ledger))
            if lac is None:
                return None
            known[ledger] = lac
        return [known[ledger] for ledger in ledgers]

    def next_keys(self) -> bytes:
        return self._joined(self._position, self._stop) if isinstance(self._run, PackedReadRun) else b""

    def answer(self, records: bytes, count: int, worked_s: float) -> Answer | None:
        if not isinstance(self._run, PackedReadRun):
            return None
        first = self._position
        lacs = self._known_lacs(self._joined(first, first + count))
        if lacs is None:
            return None
        frames = partial(answer_read_records, self._run, first, records, lacs)
        size_bytes = len(records) - LENGTH_BYTES * count
        return self._connection, frames, partial(self._written, first + count, count, 0, size_bytes, worked_s)

    def read(self) -> None:
        """Have entries up to the end of the chunk answered, as many as its bytes allow. On the read stage."""
        try:
            frames, written = self._read_chunk(self._stop)
        except Exception as error:  # noqa: BLE001 - as in `start`
            frames, written = bytes, partial(self._refuse_rest, code_of_any(_READING, error))
        self._port.answers.post([(self._connection, frames, written)])

    def _read_chunk(self, stop: int) -> tuple[Callable[[], bytes], Callable[[], None]]:
        """Read a chunk; return what makes its answers, and what is to be done when they are written."""
        started_s = self._port.now_s()
        first = self._position
        failed = 0
        frames, count, size_bytes = self._read_records(stop)
        if frames is None:
            frames, count, failed, size_bytes = self._read_bodies(stop)
        worked_s = self._port.now_s() - started_s
        return frames, partial(self._written, first + count, count - failed, failed, size_bytes, worked_s)

    def _read_records(self, stop: int) -> tuple[Callable[[], bytes] | None, int, int]:
        """Read a chunk without an object for each entry; return a maker of its answers, entries and bytes.

        The maker is None where the next entry is to be read by itself.
        """
        run, first = self._run, self._position
        if not isinstance(run, PackedReadRun):
            return None, 0, 0
        pieces: list[bytes] = []

        def read(start: int, stop: int) -> tuple[int, int]:
            left_bytes = CHUNK_BYTES_MAX - sum(map(len, pieces))
            found = self._port.bookie.reads.read_records(self._joined(start, stop), left_bytes)
            records, count = found or (b"", 0)
            pieces.append(records)
            return count, len(records) - LENGTH_BYTES * count

        try:
            count, size_bytes = self._in_steps(stop, read)
            lacs = self._known_lacs(self._joined(first, first + count)) if count else None
        except Exception as error:  # noqa: BLE001 - the entries are read one by one
            report("reading entries together", error)
            return None, 0, 0
        if lacs is None:
            return None, 0, 0
        return partial(answer_read_records, run, first, b"".join(pieces), lacs), count, size_bytes

    def _read_bodies(self, stop: int) -> tuple[Callable[[], bytes], int, int, int]:
        """Read a chunk; return what makes its answers, their number, failures among them, and bytes."""
        results: list[bytes | ResultCode] = []
        first = self._position

        def read(start: int, stop: int) -> tuple[int, int]:
            answers = self._read_some(self._run.keys[start:stop])
            results.extend(answers)
            return len(answers), sum([len(answer) for answer in answers if isinstance(answer, bytes)])

        count, size_bytes = self._in_steps(stop, read)
        lacs = self._lacs(self._run.keys[first : first + count])
        frames = partial(answer_reads, self._wire, self._run.tokens[first : first + count], results, lacs)
        failed = sum([not isinstance(result, bytes) for result in results])
        return frames, count, failed, size_bytes

    def _in_steps(self, stop: int, read: Callable[[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Have entries up to ``stop`` read, or as many as make a chunk; return their number and bytes.

        ``read`` reads from one place of the run to another and returns how many it has read, and their bytes.
        Fewer than it was to read are the last ones.
        """
        count = size_bytes = 0
        step = self._port.read_pace.first_step(CHUNK_BYTES_MAX)
        while self._position + count < stop and size_bytes < CHUNK_BYTES_MAX:
            start = self._position + count
            asked = min(step, stop - start)
            more, more_bytes = read(start, start + asked)
            count += more
            size_bytes += more_bytes
            if more < asked:
                break
            # As many as fit when the next ones are like these.
            average = max(1, size_bytes // count)
            step = max(1, min(CHUNK_ENTRIES_MAX, (CHUNK_BYTES_MAX - size_bytes) // average))
        return count, size_bytes

    def _read_some(self, keys: Sequence[bytes]) -> list[bytes | ResultCode]:
        try:
            answers = self._port.bookie.reads.read_many(keys)
        except Exception as error:  # noqa: BLE001 - without answers the run would keep its turn for good
            return [code_of_any(_READING, error)] * len(keys)
        results: list[bytes | ResultCode] = []
        for answer in answers:
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
            except Exception as error:  # noqa: BLE001 - as in `_read_some`
                # The entries themselves were read; the client does without the LAC.
                log_io(as_failure("reading a last add confirmed", error))
                lacs[ledger] = None
        return [lacs[ledger] for ledger in map(_ledger, keys)]

    def _written(self, position: int, count: int, failed: int, size_bytes: int, worked_s: float) -> None:
        """Go on behind a chunk that was read and answered: the run stands at ``position``."""
        self._position = position
        reported(_COUNTING, self._count_read, count, failed, size_bytes, worked_s)
        if self._position < len(self._run):
            self._connection.turns.again(self.resume, places=RUN_PLACES)
        else:
            self._end()

    def _count_read(self, count: int, failed: int, size_bytes: int, worked_s: float) -> None:
        self._port.reads_ended(count, failed, size_bytes, self._since_s, worked_s)
        self._port.read_pace.note(count + failed, worked_s, size_bytes)


def _ledger(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
