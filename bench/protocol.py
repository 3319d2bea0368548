"""What parsing and answering cost: microseconds per request over a full receive buffer.

python bench/protocol.py [--rounds N] [--kib N]

Fills a buffer of ``--kib`` (256) with whole frames of one kind, parses it with ``RequestParser`` as a server
does, and builds the answers; the best of the rounds, in CPU time. ``upb`` is the same buffer decoded frame by
frame by the protobuf runtime. Sizes are of the entries, header included.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from bkctl.protocol import v2, v3  # noqa: E402
from bkctl.protocol.batch import RequestParser  # noqa: E402
from bkctl.protocol.messages import AddRequest, ReadRequest  # noqa: E402
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads  # noqa: E402

KEY = bytes(range(20))
LEDGERS = 8


def body(number: int, size: int) -> bytes:
    """An entry of ``size`` bytes of one of the ledgers."""
    head = struct.pack(">qqqq", 1000 + number % LEDGERS, number // LEDGERS, -1, size)
    return (head + bytes(size))[:size]


def filled(frame: Callable[[int], bytes], size: int) -> bytes:
    """As many frames as fit."""
    frames, length = [], 0
    while True:
        one = frame(len(frames))
        if length + len(one) > size:
            return b"".join(frames)
        frames.append(one)
        length += len(one)


def v2_add(size: int) -> Callable[[int], bytes]:
    """Frames of v2 adds by number."""
    return lambda number: v2.encode_add(KEY, body(number, size))


def v3_add(size: int) -> Callable[[int], bytes]:
    """Frames of v3 adds by number."""

    def frame(number: int) -> bytes:
        ids = (1000 + number % LEDGERS, number // LEDGERS)
        return v3.encode_request(AddRequest(*ids, KEY, body(number, size), txn_id=70_000 + number))

    return frame


def v2_read(number: int) -> bytes:
    """The frame of a v2 read."""
    return v2.encode_read(1000 + number % LEDGERS, number)


def v3_read(number: int) -> bytes:
    """The frame of a v3 read."""
    return v3.encode_request(ReadRequest(1000 + number % LEDGERS, number, txn_id=70_000 + number))


def best_us(work: Callable[[], object], rounds: int, count: int) -> float:
    """CPU microseconds per request."""
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - start)
    return min(times) / 1000 / count


def report(name: str, buffer: bytes, rounds: int, *, entry_bytes: int = 1024) -> None:
    """One line: requests, parsing from bytes, from a bytearray, one answer."""
    (run,), _ = RequestParser().parse(buffer)
    assert isinstance(run, AddRun | ReadRun)
    answer: Callable[[], object]
    if isinstance(run, AddRun):
        answer = lambda: answer_adds(run.wire, run.tokens)  # noqa: E731
    else:
        results = [bytes(entry_bytes)] * len(run)
        answer = lambda: answer_reads(run.wire, run.tokens, results, [5] * len(run))  # noqa: E731
    area = bytearray(buffer)
    count = len(run)
    parse = best_us(lambda: RequestParser().parse(buffer), rounds, count)
    copied = best_us(lambda: RequestParser().parse(area), rounds, count)
    print(f"{name:12} {count:8} {parse:9.2f} {copied:11.2f} {best_us(answer, rounds, count):9.2f}")


def report_runtime(name: str, buffer: bytes, rounds: int) -> None:
    """The same frames through the protobuf runtime."""
    payloads, position = [], 0
    while position < len(buffer):
        (length,) = struct.unpack_from(">i", buffer, position)
        payloads.append(buffer[position + 4 : position + 4 + length])
        position += 4 + length

    def decode() -> None:
        for payload in payloads:
            v3.decode_request(payload)

    print(f"{name:12} {len(payloads):8} {best_us(decode, rounds, len(payloads)):9.2f}")


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--kib", type=int, default=256)
    chosen = options.parse_args()
    size = chosen.kib << 10
    print(f"{'us each':12} {'requests':>8} {'parse':>9} {'+ copy':>11} {'answer':>9}")
    for entry_bytes in (100, 1024, 16_384):
        report(f"v2 add {entry_bytes}", filled(v2_add(entry_bytes), size), chosen.rounds)
    for entry_bytes in (100, 1024, 16_384):
        buffer = filled(v3_add(entry_bytes), size)
        report(f"v3 add {entry_bytes}", buffer, chosen.rounds)
        report_runtime("  upb", buffer, chosen.rounds)
    report("v2 read", filled(v2_read, size // 8), chosen.rounds)
    report("v3 read", filled(v3_read, size // 8), chosen.rounds)


if __name__ == "__main__":
    main()
