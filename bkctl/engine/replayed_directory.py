"""The journal directory that is replayed: what of it is lost or doubtful, and which of its ledgers are known.

A loss is a state of the directory: the damage of one journal, or a journal that is gone, may have taken key
records, fences and entries of any of its ledgers, and the files behind it only seem to know nothing of them.
So once a loss was accepted, records of ledgers without a row are kept in all later files, under a row that is
fenced and in limbo, and at the end every ledger of the directory is in limbo.

A record whose digest fails may be another entry than it says (``doubted_entries``). That is no reason to
refuse a start; where it is so, all ledgers of the directory are in limbo as well.

A master key that nearly is its ledger's is a damage as well, but it took no entry: accepted, it puts its own
ledger into limbo.
"""

from __future__ import annotations

import logging

from bkctl.codec.last_mark import LastMark
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.doubted_entries import DoubtedEntries
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.engine.second_keys import LedgerLives, ReplayedFile
from bkctl.errors import RefusedError
from bkctl.reporting import counted
from bkctl.scan.damage import Damage
from bkctl.vfs import FileSystem

_log = logging.getLogger(__name__)


class ReplayedDirectory:
    """Journal directory ``number`` of ``journals``, and the state that its replay hands from file to file.

    ``lossy`` says that a loss was met and accepted. ``files`` are those that are replayed.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        number: int,
        journals: int,
        ledgers: ReplayedLedgers,
        report: ReplayReport,
        *,
        accept_loss: bool,
    ) -> None:
        self.filesystem = filesystem
        self.ledgers = ledgers
        self.report = report
        self.files: list[ReplayedFile] = []
        self.lossy = False
        #: Ledgers whose records are of a life that is over, and where their present life begins.
        self.skipped_until: dict[int, LastMark] = {}
        #: Ledgers of which this replay has met a key.
        self.keyed: set[int] = set()
        self.doubted = DoubtedEntries(ledgers, report, self.is_known, self.doubt)
        self._number = number
        self._journals = journals
        self._accept_loss = accept_loss
        self._doubtful = False
        self._lives: LedgerLives | None = None

    def refuse_unless_accepted(self, what: str) -> None:
        """Raise RefusedError for a loss that may have cost acknowledged entries, unless it is accepted."""
        if not self._accept_loss:
            raise RefusedError(
                f"{what}; acknowledged entries may be lost. Bring the file back, or start with"
                " --accept-loss. Then every ledger of this journal is in limbo (a missing entry is answered"
                " as unknown) until 'bkctl index limbo --clear'"
            )
        _log.warning("%s; accepted", what)
        self.lossy = True
        self.ledgers.set_limbo(self._number, self._journals)

    def refuse_key_unless_accepted(self, what: str, ledger: int) -> None:
        """Raise RefusedError for a key that is damaged here or in the row, unless that is accepted.

        No entry was lost with it: the row's key stays, and this one ledger is in limbo.
        """
        if not self._accept_loss:
            raise RefusedError(
                f"{what}. 'bkctl index check' with --metadata shows which one is wrong, and how to repair "
                "it. Or start with --accept-loss: then the key in the index counts, and this ledger is in "
                "limbo until 'bkctl index limbo --clear'"
            )
        _log.warning("%s; accepted", what)
        self.ledgers.set_ledger_limbo(ledger)

    def doubt(self, what: str) -> None:
        """Note that a ledger of the directory may lack an entry: at the end all of them are put in limbo."""
        _log.warning(
            "%s; every ledger of this journal is in limbo (a missing entry is answered as unknown) until"
            " 'bkctl ledger repair' or 'bkctl index limbo --clear'",
            what,
        )
        self._doubtful = True

    def damaged(self, damage: Damage) -> None:
        """Note a range of a journal that cannot be read as records."""
        if damage.unsynced:
            self.report.unsynced_holes += 1
            _log.warning(
                "%s: %d bytes at offset %d were never synced (%s), as after a power cut",
                damage.path,
                damage.size_bytes,
                damage.offset,
                damage.reason,
            )
            return
        size = counted(damage.size_bytes, "byte")
        what = f"{damage.path}: damage at offset {damage.offset}, {size}: {damage.reason}"
        if damage.readable:
            _log.warning("%s; the record in it could be read", what)
            return
        self.refuse_unless_accepted(what)
        self.report.add_damage(damage)

    def is_known(self, ledger: int) -> bool:
        """Return whether entries of a ledger are kept; it has no row if it was deleted."""
        return ledger not in self.skipped_until and self.row(ledger) is not None

    def row(self, ledger: int) -> LedgerData | None:
        """Return the ledger's row; behind a loss, which may have taken its key record, one is made."""
        if self.is_lossy(ledger):
            return self.ledgers.row_behind_a_loss(ledger)
        return self.ledgers.kept_row(ledger)

    def is_lossy(self, ledger: int) -> bool:
        """Return whether something of the ledger may have been lost."""
        return self.lossy or self.ledgers.storage_of(ledger) in self.ledgers.without_rows

    @property
    def lives(self) -> LedgerLives:
        """The present lives of the ledgers in the files of this replay; reads all of them, once."""
        if self._lives is None:
            self._lives = LedgerLives(self.filesystem, self.files)
        return self._lives

    def judge(self) -> None:
        """Judge the entries that are held, and put all ledgers in limbo where something may be lost."""
        self.doubted.judge()
        if self.lossy or self._doubtful:
            # Also those that became known behind the loss.
            self.ledgers.set_limbo(self._number, self._journals)
