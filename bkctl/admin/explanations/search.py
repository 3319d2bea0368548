"""Find what a number, a name or a word means. A number is answered with everything that it can be."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from bkctl.admin.explanations.meaning import Meaning, every_code, every_word, of_word
from bkctl.admin.explanations.words import WORDS, explained
from bkctl.errors import NotFoundError

#: In place of a word: all of them.
EVERY_WORD = "words"
#: Of so many texts a word may be, as "last add confirmed".
_TEXTS_MAX = 3


def explain_all(texts: Sequence[str]) -> list[Meaning]:
    """Find every meaning of numbers, names and words, each meaning once; words may be of several texts.

    Raises NotFoundError, as :func:`explain`.
    """
    found: list[Meaning] = []
    rest = list(texts)
    while rest:
        several = next((n for n in range(_TEXTS_MAX, 1, -1) if explained(" ".join(rest[:n]))), 1)
        meanings = every_word() if rest[0] == EVERY_WORD else explain(" ".join(rest[:several]))
        found += [meaning for meaning in meanings if meaning not in found]
        del rest[:several]
    return found


def explain(wanted: str) -> list[Meaning]:
    """Find every meaning of a number, a name or a word: ``-101``, ``EFENCED``, ``limbo``.

    Names are found as logs write them (``BKLedgerFencedException``). Raises NotFoundError, with names and
    words that are like it.
    """
    try:
        number = int(wanted)
    except ValueError:
        found = [code for code in every_code() if _bare(code.name) == _bare(wanted)]
        if (word := explained(wanted)) is not None:
            found.append(of_word(word))
    else:
        found = [code for code in every_code() if code.code == number]
    if not found:
        raise NotFoundError(
            f"{wanted}: neither a code of BookKeeper's nor a word that is known here{_like(wanted)}"
        )
    return found


def _bare(name: str) -> str:
    """Strip from a name what Java's class names put around it."""
    last = name.strip().rpartition(".")[2].rpartition("$")[2].lower()
    return last.removeprefix("bk").removesuffix("exception")


def _like(wanted: str) -> str:
    part = _bare(wanted)
    names = sorted({code.name for code in every_code() if len(part) >= 3 and part in _bare(code.name)})
    words = get_close_matches(part, [word.name for word in WORDS], n=2)
    if alike := [*words, *names][:5]:
        return f"; did you mean {' or '.join(alike)}?"
    return f"; 'bkctl explain' lists the codes, 'bkctl explain {EVERY_WORD}' the words"
