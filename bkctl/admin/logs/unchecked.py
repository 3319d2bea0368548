"""Entries whose digests could not be checked, and what would make them checkable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from bkctl.reporting import counted, noun_of
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.loss import LEDGERS_NAMED
from bkctl.scan.files.verdicts import FileVerdict

#: Ledgers that a sentence names.
_LEDGERS_SHOWN = 5


@dataclass(slots=True)
class UncheckedEntries:
    """Entries of verified files, and those among them whose digests could not be checked.

    ``ledgers`` are the lowest ids of the ledgers that have such entries, at most ``LEDGERS_NAMED``.
    """

    entries: int = 0
    unchecked: int = 0
    files: int = 0
    ledgers: tuple[int, ...] = field(default=())

    @classmethod
    def of(cls, verdicts: Iterable[FileVerdict]) -> UncheckedEntries:
        """Count over the verdicts of several files."""
        found = cls()
        for verdict in verdicts:
            found.add(verdict)
        return found

    def add(self, verdict: FileVerdict) -> None:
        """Count the entries of one more file."""
        self.entries += verdict.entries
        if verdict.unchecked:
            self.unchecked += verdict.unchecked
            self.files += 1
            self.ledgers = tuple(nsmallest(LEDGERS_NAMED, {*self.ledgers, *verdict.unchecked_ledgers}))

    def sentence(self) -> str:
        """Say how many entries were not checked, and of which ledgers."""
        shown = ", ".join(map(str, self.ledgers[:_LEDGERS_SHOWN]))
        more = ", ..." if len(self.ledgers) > _LEDGERS_SHOWN else ""
        noun = noun_of(len(self.ledgers), "ledger")
        entries = counted(self.entries, "entry", "entries")
        return f"{self.unchecked} of {entries} could not be checked ({noun} {shown}{more})"

    def is_of_nobody(self, book: DigestBook) -> bool:
        """Return whether the metadata have none of the ledgers. False when not all ledgers are named."""
        if not (book.enabled and book.has_metadata) or len(self.ledgers) >= LEDGERS_NAMED:
            return False
        return all(book.digester(ledger) is None for ledger in self.ledgers)

    def remedy(self, book: DigestBook) -> str:
        """Say what is lacking, and which options would make the entries checkable."""
        if not book.enabled:
            return "--digest off checks none; leave it away"
        lacking = []
        if any(book.digester(ledger) is not None for ledger in self.ledgers):
            lacking.append("their digests are MACs: give the ledgers' password (--password-file FILE)")
        unknown = any(book.digester(ledger) is None for ledger in self.ledgers)
        password = "" if book.has_password else "; for a ledger with MAC digests its password does, too"
        if unknown and not book.has_metadata:
            lacking.append("their digest types are not known: give --metadata FILE|URI" + password)
        elif unknown:
            lacking.append(
                "the metadata that was read has no such ledger, and the entries do not show the type: it was "
                "deleted, or its id is damaged" + password
            )
        return "; ".join(lacking)

    def with_remedy(self, book: DigestBook) -> str:
        """Say how many entries were not checked, and what would make them checkable."""
        return f"{self.sentence()}: {self.remedy(book)}"
