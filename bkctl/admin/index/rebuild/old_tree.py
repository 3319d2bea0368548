"""The headers of the ``.idx`` files of an old index."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bkctl.codec.file_info import FileInfoHeader
from bkctl.engine.ledger_descriptor import is_blank


@dataclass(slots=True)
class OldTree:
    """Old files: ledger to index directory and header; None for a header that does not decode.

    ``others`` are directories with one more file of a ledger: the one at home takes over what it says.
    ``strays`` are files without a ledger, of which nothing counts; where there is no other they keep the
    place.
    """

    homes: dict[int, str]
    headers: dict[int, FileInfoHeader | None]
    others: list[tuple[int, str]] = field(default_factory=list)
    strays: dict[int, list[str]] = field(default_factory=dict)

    def take(self, ledger: int, directory: str, header: FileInfoHeader | None) -> None:
        """Note a file of a ledger. Of several files the first one counts, because Java finds that one."""
        if header is not None and not header.has_ledger:
            self.strays.setdefault(ledger, []).append(directory)
            return
        if ledger not in self.homes:
            self.homes[ledger], self.headers[ledger] = directory, header
            return
        self.others.append((ledger, directory))
        mine = self.headers[ledger]
        if mine is None or header is None:
            self.headers[ledger] = mine or header
            return
        self.headers[ledger] = replace(
            mine,
            master_key=header.master_key if is_blank(mine.master_key) else mine.master_key,
            state=mine.state | header.state,
            explicit_lac=mine.explicit_lac or header.explicit_lac,
        )

    def settle(self) -> None:
        """Give files without a ledger their place, once all files are taken."""
        for ledger, directories in self.strays.items():
            first = 0 if ledger in self.homes else 1
            self.others += [(ledger, directory) for directory in directories[first:]]

    def home(self, ledger: int, otherwise: str) -> str:
        """Return the directory that a new file of a ledger goes to: it replaces the one there."""
        return self.homes.get(ledger) or self.strays.get(ledger, [otherwise])[0]
