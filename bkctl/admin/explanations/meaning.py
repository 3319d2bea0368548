"""Meanings of BookKeeper's numbers, by the place where they are seen, and of words, in one form.

The same number means different things in different places (-102 is a wrong password in the client and a wrong
cookie in a bookie).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.admin.explanations.bookie_codes import BOOKIE, PROCESS, WIRE
from bkctl.admin.explanations.client_codes import CLIENT
from bkctl.admin.explanations.words import WORDS, Word
from bkctl.protocol.codes import V2_NUMBERS, V3_NUMBERS


class Place(enum.Enum):
    """The place where a number is seen; the value is its JSON form."""

    CLIENT = "client"
    WIRE_V2 = "wire_v2"
    WIRE_V3 = "wire_v3"
    BOOKIE = "bookie"
    PROCESS = "bookie_exit"
    #: Not a place: a word has no number.
    WORD = "word"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One meaning of one number: what happened, and what an operator does about it.

    A word is explained in the same form, without a number.
    """

    place: Place
    code: int | None
    name: str
    meaning: str
    next: str


def every_code() -> Iterator[Meaning]:
    """Yield all error codes, by place, then as upstream numbers them."""
    yield from (Meaning(Place.CLIENT, *row) for row in CLIENT)
    for place, numbers in ((Place.WIRE_V2, V2_NUMBERS), (Place.WIRE_V3, V3_NUMBERS)):
        for number, code in numbers.items():
            yield Meaning(place, number, code.value, *WIRE[code])
    yield from (Meaning(Place.BOOKIE, *row) for row in BOOKIE)
    yield from (Meaning(Place.PROCESS, *row) for row in PROCESS)


def every_word() -> Iterator[Meaning]:
    """Yield all words, in the order of the alphabet."""
    return map(of_word, WORDS)


def of_word(word: Word) -> Meaning:
    """Return a word in the form of the numbers."""
    return Meaning(Place.WORD, None, word.name, word.meaning, word.next)
