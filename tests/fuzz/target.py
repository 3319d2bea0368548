"""What a fuzz target is: a function of any bytes that raises nothing unless it has found something.

A target states its oracle in its body: bytes decode, or the error that is documented comes; what was decoded
is the same after a round trip; a machine that is fed in pieces says what it says when it is fed at once; a
compiled function returns what its twin in Python returns.
"""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bkctl.errors import CorruptionError

_Value = TypeVar("_Value")

#: Memory that an input may take, beyond what the target allows for each of its bytes; caches fill, too.
SPARE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` examines one input; ``seeds`` are inputs to begin with, ``words`` what belongs into inputs.

    ``bytes_per_byte`` bounds the memory that an input of so many bytes takes at its peak, ``bytes_max`` the
    length of inputs. A ``sanitized`` target is run over the compiled kernels with sanitizers, too. Of a soak
    a target gets time by its ``weight``.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()
    bytes_per_byte: int = 400
    bytes_max: int = 4096
    weight: int = 1
    sanitized: bool = False

    def memory_bound(self, data: bytes) -> int:
        """Return the memory that this input may take."""
        return SPARE_BYTES + self.bytes_per_byte * len(data)

    def run_within_memory(self, data: bytes) -> None:
        """Examine an input, and the memory that it takes."""
        tracemalloc.start()
        try:
            self.run(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= self.memory_bound(data), f"{peak} bytes of memory for {len(data)} bytes of input"


def check_error(error: CorruptionError, size_bytes: int) -> None:
    """Assert that an error about ``size_bytes`` bytes points into them and can be shown."""
    assert 0 <= error.offset <= size_bytes, error
    assert error.what
    assert str(error)


def check_message(error: Exception, start: str = "") -> None:
    """Assert that an error says something."""
    assert str(error)
    assert str(error).startswith(start)


def decodes(
    data: bytes, decode: Callable[[bytes], _Value], encode: Callable[[_Value], bytes] | None = None
) -> _Value | None:
    """Return what ``decode`` makes of the bytes, None where they are corrupt.

    With ``encode``, assert that the value is the same after a round trip.
    """
    try:
        value = decode(data)
    except CorruptionError as error:
        check_error(error, len(data))
        return None
    if encode is not None:
        again = decode(encode(value))
        assert again == value, (again, value)
    return value


def cut(data: bytes, where: bytes) -> list[bytes]:
    """Return ``data`` in pieces, the lengths of which ``where`` says over and over."""
    steps = [step + 1 for step in where] or [len(data) + 1]
    pieces, at, turn = [], 0, 0
    while at < len(data):
        pieces.append(data[at : at + steps[turn % len(steps)]])
        at += steps[turn % len(steps)]
        turn += 1
    return pieces


_OTHER_VALUES: list[object] = [None, True, -1, 10**40, 1e300, "text", "", [], [5], {}, {"a": 1}]


def json_variants(value: object) -> Iterator[object]:
    """Yield the value with each of its parts replaced by what has another type or is beyond every bound."""
    yield from (copy.deepcopy(other) for other in _OTHER_VALUES)
    if isinstance(value, dict):
        for name, part in value.items():
            yield {key: each for key, each in value.items() if key != name}
            yield from ({**value, name: variant} for variant in json_variants(part))
    if isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], variant, *value[at + 1 :]] for variant in json_variants(part))


def json_seeds(value: object) -> list[bytes]:
    """Return a JSON value and its variants as bytes."""
    return [json.dumps(each).encode() for each in (value, *json_variants(value))]


def one_of(data: bytes, choices: Sequence[Callable[[bytes], Any]]) -> None:
    """Let the first byte choose which function gets the others."""
    if data:
        choices[data[0] % len(choices)](data[1:])


def seeds_of(choices: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return the seeds of a target that uses :func:`one_of`, each behind the byte that chooses."""
    return [bytes((number,)) + seed for number, seeds in enumerate(choices) for seed in seeds]
