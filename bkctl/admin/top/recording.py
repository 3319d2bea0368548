"""Recordings of samples: a file of JSON lines, one a sample, that is appended to and played again.

Each line is given to the system whole and at once, so that whoever follows the file sees whole samples. A
last line that a kill has cut short is passed over when the recording is played, and marked as such when it is
appended to.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from dataclasses import replace

from bkctl.admin.top.sample import ClusterSample, EntryLogState
from bkctl.admin.top.sample_json import decode_sample, encode_sample
from bkctl.admin.top.source import SampleSource
from bkctl.errors import (
    CorruptionError,
    NotFoundError,
    RefusedError,
    as_storage_errors,
    storage_error,
)

#: A sample of a thousand bookies has some megabytes.
LINE_BYTES_MAX = 32 << 20
#: The end of a line that was cut short, so that it is never taken for a whole one.
_CUT_SHORT = b" # cut short\n"


class RecordingSource:
    """Another source, every sample of which is appended to a file before it is given on.

    The file is not made larger than ``bytes_max``: the recording ends there, or when the disk is full, and
    the samples say so (``notice``); what is watched goes on. Raises StorageError, and RefusedError for a file
    that is no recording.
    """

    def __init__(self, source: SampleSource, path: str, bytes_max: int) -> None:
        self._source = source
        self._path = path
        self._bytes_max = bytes_max
        self._ended: str | None = None
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._end_last_line()
        except OSError as error:
            self._close()
            raise storage_error(error, path, "cannot record there") from error
        except RefusedError:
            self._close()
            raise

    @property
    def title(self) -> str:
        """The title of the source that is recorded."""
        return self._source.title

    async def sample(self) -> ClusterSample:
        """Return the next sample of the source that is recorded, and write it to the file."""
        sample = await self._source.sample()
        if self._ended is None:
            self._append(f"{encode_sample(sample)}\n".encode())
        return sample if self._ended is None else replace(sample, notice=self._ended)

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        """Return the entry logs of a ledger directory from the source that is recorded."""
        return await self._source.logs(bookie, ledger_dir)

    async def close(self) -> None:
        """Close the recording and the source of its samples."""
        self._close()
        await self._source.close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _end_last_line(self) -> None:
        size_bytes = os.fstat(self._file).st_size
        if size_bytes and os.pread(self._file, 1, 0) not in (b"{", b"\n"):
            raise RefusedError(f"{self._path}: is not a recording; nothing was appended to it")
        if size_bytes and os.pread(self._file, 1, size_bytes - 1) != b"\n":
            os.write(self._file, _CUT_SHORT)

    def _append(self, line: bytes) -> None:
        size_bytes = os.fstat(self._file).st_size
        if size_bytes + len(line) > self._bytes_max:
            self._ended = f"{self._path}: the recording has ended, it has its {self._bytes_max:,} bytes"
            return
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._ended = f"{self._path}: the recording has ended: {error.strerror}"
            return
        if written < len(line):
            self._ended = f"{self._path}: the recording has ended, the disk took part of a sample only"
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size_bytes)


class Recording:
    """A file of samples, played; see :class:`~bkctl.admin.top.source.Replay`.

    Only where the lines begin and end is kept in memory. Raises NotFoundError, StorageError, and
    CorruptionError when no line holds a sample.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._starts: array[int] = array("q")
        self._ends: array[int] = array("q")
        self._position = -1
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._find_lines()
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such recording") from None
        except OSError as error:
            self._close()
            raise storage_error(error, path) from error
        except CorruptionError:
            self._close()
            raise

    @property
    def title(self) -> str:
        """The file."""
        return self._path

    @property
    def count(self) -> int:
        """Samples, 1 or more."""
        return len(self._starts)

    @property
    def position(self) -> int:
        """Number of the sample given last; -1 before the first one."""
        return self._position

    @property
    def at_end(self) -> bool:
        """Whether the last sample was given."""
        return self._position == self.count - 1

    async def sample(self) -> ClusterSample:
        """Return the next sample; at the end the last one again."""
        return self.step(1)

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        """Refuse to give entry logs: a recording has none."""
        raise RefusedError(f"{self._path}: a recording does not hold the entry logs of {bookie} {ledger_dir}")

    async def close(self) -> None:
        """Close the file."""
        self._close()

    def step(self, by: int) -> ClusterSample:
        """Return the sample ``by`` further on or, negative, back."""
        return self.seek(self._position + by)

    def seek(self, position: int) -> ClusterSample:
        """Return the sample with this number, or the nearest.

        Raises CorruptionError when its line holds none.
        """
        position = min(max(position, 0), self.count - 1)
        start, end = self._starts[position], self._ends[position]
        with as_storage_errors(self._path):
            line = os.pread(self._file, end - start, start)
        try:
            sample = decode_sample(line)
        except ValueError as error:
            raise self._damaged(start, str(error)) from None
        self._position = position
        return sample

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _find_lines(self) -> None:
        """Find where lines begin, and where the last one ends; those that were cut short are passed over."""
        offset = 0
        with open(self._file, "rb", closefd=False) as lines:
            while line := lines.readline(LINE_BYTES_MAX):
                if self._is_sample(line, offset):
                    self._starts.append(offset)
                    self._ends.append(offset + len(line))
                offset += len(line)
        if not self._starts:
            raise CorruptionError("recording", expected="samples, a line each", found="none", path=self._path)

    def _is_sample(self, line: bytes, offset: int) -> bool:
        if not line.endswith(b"\n"):
            if len(line) == LINE_BYTES_MAX:
                raise self._damaged(offset, f"a line of more than {LINE_BYTES_MAX:,} bytes")
            try:
                decode_sample(line)
            except ValueError:
                return False
            return True
        if not line.strip() or line.endswith(_CUT_SHORT):
            return False
        if not (line.startswith(b"{") and line.rstrip().endswith(b"}")):
            raise self._damaged(offset, "a line that is no JSON object")
        return True

    def _damaged(self, offset: int, what: str) -> CorruptionError:
        return CorruptionError("recording", expected="a sample", found=what, path=self._path, offset=offset)
