"""The next step after each kind of finding of ``index check``."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import join

from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.logs.file_steps import LOG_INSTEAD, SALVAGE_FIRST, of_damaged_log, salvage_words
from bkctl.admin.next_step import NextStep, ended_by, not_ended
from bkctl.codec.entrylog import log_name

_REBUILT = (
    "if a log is damaged or gone, the rebuild is refused. Salvage a damaged log ('bkctl entrylog salvage "
    "LOG'); bring a missing log back. Only if it is lost for good: --accept-loss continues, and puts ledgers "
    "into limbo"
)
_PLACES = (
    "no command moves directories: name them in the configuration, or mount them, in the order of the cookie"
)

#: Kinds that no command ends, and what to do instead.
INSTEAD = {
    Kind.WRONG_DIRECTORY: _PLACES,
    Kind.WRONG_LOG_ID_SPACE: _PLACES,
    Kind.POSITION_UNKNOWN: "name all directories of the bookie, with their cookies: then it can be checked",
    Kind.DAMAGED_LOG: LOG_INSTEAD,
    Kind.QUARANTINED_LOCATION: (
        "the log is in quarantine, so reads of the entry fail. 'bkctl entrylog quarantine LOG DIR --release' "
        "brings it back; 'bkctl entrylog salvage LOG DIR' copies the records that can be proved"
    ),
    Kind.SALVAGED_LOCATION: (
        "the entry is lost here, and its ledger is in limbo: bring it back from the other replicas"
    ),
    Kind.LOST_INDEX: (
        "rebuild it, and name the kind of storage, because nothing here shows it (db for DbLedgerStorage, "
        "idx for Sorted- and InterleavedLedgerStorage): 'bkctl index rebuild DIR --storage KIND'"
    ),
    Kind.EMPTIED_DIRECTORY: (
        "bring the files back, or mount the disk that has them. Only if they are lost: remove the cookie "
        "(VERSION), and let 'bkctl bookie rebuild' prepare the directory as a new disk, with all of its "
        "ledgers in limbo, before the bookie starts"
    ),
    Kind.MISSING_ENTRIES: (
        "start the bookie and let 'bkctl ledger repair LEDGER' bring the entries back from the other replicas"
    ),
    Kind.OTHER_MASTER_KEY: (
        "no command decides whose entries these are: compare them with the other replicas ('bkctl ledger "
        "compare LEDGER'); if the ledger of the metadata is whole there, take this bookie out of it ('bkctl "
        "bookies recover')"
    ),
    Kind.DOUBTFUL_MASTER_KEY: (
        "give the ledgers' metadata (--metadata FILE|URI): the password there proves which of the two keys "
        "is right, and the other one is repaired. Without metadata, 'bkctl bookie start --accept-loss' "
        "uses the key in the index, and puts only this ledger into limbo"
    ),
    Kind.LIMBO: (
        "start the bookie and let 'bkctl ledger repair LEDGER' bring the entries back, which clears the "
        "flag. Clear it yourself ('bkctl index limbo LEDGER DIR --clear') only when the entries are back, "
        "or when it is certain that no bookie has them: without the flag, the bookie answers 'no such "
        "entry' for a missing entry"
    ),
    Kind.PENDING_REPLAY: "nothing to do: the next start of the bookie replays its journals and completes it",
    Kind.LEDGER_WITHOUT_ENTRIES: "nothing to do: a ledger that is empty or only fenced has none",
    Kind.INTEGRITY_FLAG: "nothing to do: Java's next start checks its data and removes the flag",
    Kind.LEAKED_LOCATION: (
        "nothing to do: the rows name a ledger that was deleted, and a rebuild leaves them out"
    ),
    Kind.BOOKIE_UNKNOWN: (
        "bring the cookie back ('bkctl cookie create DIR --file FILE'): it says which bookie this is"
    ),
    Kind.NO_JOURNAL: "name the bookie's journal directory, too: then what a replay repairs is known",
    Kind.NO_INDEX: "nothing to do: the next start of the bookie replays its journals and makes the index",
    Kind.NOT_PROVED: (
        "rebuild the index once more with metadata that are newer than the bookie's last write ('bkctl "
        "index rebuild DIR --metadata URI'). This finds the missing entries, and proves the index unless "
        "ledgers are open. Until then, 'bkctl ledger compare LEDGER' shows for each ledger whether its "
        "entries are here"
    ),
}

_KEY_OF_METADATA = (
    "name the cluster's metadata: 'bkctl index repair DIR --metadata URI' sets the key of the password there"
)

_JOURNAL_BACK = (
    "if there is a whole copy of the journal, bring it back instead. Otherwise the missing records are lost "
    "on this bookie, and all ledgers of the journal are put into limbo"
)

_REBUILD = ("index", "rebuild")


def next_step(finding: Finding, metadata: Sequence[str] = (), places: Sequence[str] = ()) -> NextStep:
    """Return what to do about a finding; ``metadata`` are the options that say who was asked.

    ``places`` are the directories of the bookie, or the folder that holds them.
    """
    kind, directory = finding.kind, finding.dir
    if kind is Kind.DAMAGED_LOG and finding.log_id is not None:
        return of_damaged_log(join(directory, log_name(finding.log_id)))
    if kind in INSTEAD:
        return not_ended(INSTEAD[kind], *_look(finding))
    if kind is Kind.DAMAGED_MASTER_KEY and not metadata:
        return not_ended(_KEY_OF_METADATA, "index", "check", directory)
    if kind in (Kind.WIDE_KEY, Kind.DAMAGED_MASTER_KEY):
        return ended_by(("index", "repair", directory, *metadata, "--yes"))
    if kind in (Kind.DAMAGED_JOURNAL_KEY, Kind.CUT_JOURNAL):
        journal = () if finding.journal_id is None else ("--journal", hex(finding.journal_id))
        words = ("journal", "salvage", *(places or (directory,)), "--in-place", *journal)
        instead = _JOURNAL_BACK if kind is Kind.CUT_JOURNAL else None
        return ended_by((*words, *metadata, "--yes"), instead=instead)
    if kind is Kind.LOCATIONS_WITHOUT_LEDGER:
        # The rows alone: no damage of a log stands in their way.
        return ended_by((*_REBUILD, directory, "--ledgers", *metadata, "--yes"))
    if finding.damaged_log is not None:
        return ended_by(salvage_words(finding.damaged_log, metadata), instead=SALVAGE_FIRST)
    return ended_by((*_REBUILD, directory, *metadata, "--yes"), instead=_REBUILT)


def _look(finding: Finding) -> tuple[str, ...]:
    kind, directory = finding.kind, finding.dir
    if kind in (Kind.QUARANTINED_LOCATION, Kind.SALVAGED_LOCATION):
        return ("entrylog", "quarantine", directory, "--list")
    if kind is Kind.LIMBO:
        return ("index", "ledgers", directory)
    if kind in (Kind.WRONG_DIRECTORY, Kind.WRONG_LOG_ID_SPACE, Kind.POSITION_UNKNOWN):
        return ("inspect", directory)
    return ()
