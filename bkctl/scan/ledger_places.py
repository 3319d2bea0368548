"""Which of a bookie's ledger directories a ledger belongs to, and which of them hold another one's ledgers.

DbLedgerStorage with N ledger directories looks for a ledger in the directory at its id modulo N, counted from
0, and nowhere else. Disks that are mounted in each other's place have cookies that are the same, so that only
their ledgers show it; a bookie that served them would deny ledgers that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

#: Of ten ledgers in a directory so many have to be of one position, for its disk to be known by them.
_OF_TEN = 9


def place_of(ledger: int, directories: int) -> int:
    """Return the position of the ledger directory that a ledger belongs to."""
    return ledger % directories


def count_places(ledgers: Iterable[int], directories: int) -> list[int]:
    """Return how many of some ledgers belong to each position."""
    counts = [0] * directories
    for ledger in ledgers:
        counts[place_of(ledger, directories)] += 1
    return counts


def one_of_place(ledgers: Iterable[int], home: int, directories: int) -> int:
    """Return the lowest of some ledgers that belongs to the position ``home``, as an example for people."""
    return min(ledger for ledger in ledgers if place_of(ledger, directories) == home)


def place_of_most(ledgers: Iterable[int], directories: int) -> int | None:
    """Return the position that nearly all of some ledgers belong to; None where there is none."""
    return place_of_counted(count_places(ledgers, directories))


def exchanged_places(counts: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the directories that hold another one's ledgers, each with the position whose ledgers they are.

    ``counts`` says of each directory how many of its ledgers belong to which position. A directory counts
    where nearly all of its ledgers are of one other position, and the directory there has not got them: it is
    empty, or known as another one's itself. Some ledgers in a wrong place prove nothing: they were left by a
    bookie that ran while disks were exchanged, or the number of directories was changed.
    """
    homes = [place_of_counted(count) for count in counts]
    return {
        position: home
        for position, home in enumerate(homes)
        if home is not None and home != position and _is_elsewhere(home, homes[home], counts[home])
    }


def copied_places(counts: Sequence[Sequence[int]], shared: Callable[[int, int], int]) -> dict[int, int]:
    """Return the directories that hold a copy of another one, each with the position of that one.

    ``counts`` is that of :func:`exchanged_places`, and ``shared`` says how many ledgers of one directory
    another one has as well. A directory counts where nearly all of its ledgers are of one other position, and
    the directory there has nearly all of these and at most twice as many: the copy may be an older one. A few
    ledgers in a wrong place are no copy.
    """
    homes = [place_of_counted(count) for count in counts]
    return {
        position: home
        for position, home in enumerate(homes)
        if home is not None
        and home != position
        and sum(counts[home]) <= 2 * sum(counts[position])
        and shared(position, home) * 10 >= sum(counts[position]) * _OF_TEN
    }


def describe_copy(names: Sequence[str], copied: Mapping[int, int], examples: Sequence[int]) -> str:
    """Say of which directories those of :func:`copied_places` are copies; ``examples`` are one of each."""
    found = "; ".join(
        f"{names[position]} has the same ledgers as {names[home]} (ledger {example} is one)"
        for (position, home), example in zip(copied.items(), examples, strict=True)
    )
    return f"{found}, to which they belong: a copy of one disk is mounted in the place of another"


def describe_exchange(names: Sequence[str], exchanged: Mapping[int, int], examples: Sequence[int]) -> str:
    """Say whose ledgers the directories of :func:`exchanged_places` hold; ``examples`` are one of each."""
    found = "; ".join(
        f"{names[position]} holds the ledgers of {names[home]} (ledger {example} is one)"
        for (position, home), example in zip(exchanged.items(), examples, strict=True)
    )
    return (
        f"{found}: the disks are mounted in each other's place. DbLedgerStorage looks for a ledger in the "
        f"directory at its id modulo {len(names)}"
    )


def place_of_counted(count: Sequence[int]) -> int | None:
    """Return the position that nearly all ledgers of a directory belong to; None where there is none."""
    total, most = sum(count), max(count)
    return count.index(most) if total and most * 10 >= total * _OF_TEN else None


def _is_elsewhere(position: int, home: int | None, count: Sequence[int]) -> bool:
    """Return whether the directory at a position holds nothing of its own."""
    return not sum(count) or home not in (None, position)
