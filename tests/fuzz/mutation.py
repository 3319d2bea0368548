"""Inputs made from others by small changes, the same ones for the same seed: for CI, and under sanitizers.

Soaks are guided by coverage (``soak``); this is not, and needs nothing but the standard library.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

_NUMBERS = (0, 1, -1, 15, 16, 20, 127, 128, 255, 256, 1023, 1024, 4096, 2**31 - 1, -(2**31), 2**32, 2**63 - 1)
_WORDS = [struct.pack(">q", number) for number in _NUMBERS] + [
    struct.pack(">i", number) for number in _NUMBERS if -(2**31) <= number < 2**31
]
_CHANGES_MAX = 5


def mutations(inputs: Sequence[bytes], words: Sequence[bytes], bytes_max: int, seed: int) -> Iterator[bytes]:
    """Yield changed inputs without end."""
    chance = random.Random(seed)
    known = [*inputs] or [b""]
    put = [*words, *words, *_WORDS]
    while True:
        data = bytearray(chance.choice(known))
        for _ in range(chance.randint(1, _CHANGES_MAX)):
            _change(data, known, put, chance)
        yield bytes(data[:bytes_max])


def _change(data: bytearray, known: Sequence[bytes], put: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    length = min(chance.choice((1, 1, 2, 4, 8, 16, 64)), max(len(data) - at, 0))
    match chance.randrange(9):
        case 0 if length:
            data[at] ^= 1 << chance.randrange(8)
        case 1 if length:
            data[at] = chance.randrange(256)
        case 2:
            del data[at : at + length]
        case 3:
            data[at:at] = data[at : at + length]
        case 4:
            word = chance.choice(put)
            data[at : at + len(word)] = word
        case 5:
            data[at:at] = chance.choice(put)
        case 6:
            del data[at:]
        case 7:
            other = chance.choice(known)
            data[at:] = other[chance.randint(0, len(other)) :]
        case _:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
