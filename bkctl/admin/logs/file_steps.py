"""The next steps after what ``entrylog verify`` and ``journal verify`` say of a file."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname

from bkctl.admin.next_step import AdviceStep, NextStep, bkctl_line, not_ended
from bkctl.scan.damage import Verdict
from bkctl.scan.files.verdicts import FileVerdict

LOG_INSTEAD = (
    "what stood in the damaged bytes has to come from other replicas, or from a journal that still has it "
    "('bkctl journal scan'; 'bkctl lastmark set' in front of it lets the next start replay it); 'bkctl "
    "entrylog salvage LOG' copies the rest to a fresh log, lists what is lost and puts its ledgers into "
    "limbo. Until then leave the file where it is, its other records are served as before; 'bkctl index "
    "check' names the rows that point into the damage"
)

#: Said before a log is salvaged into which rows of an index point.
SALVAGE_FIRST = (
    "if there is a good copy of the log, bring it back instead. The salvage copies the records that "
    "digests, rows and sizes prove, lists the others and puts only their ledgers into limbo. A rebuild of "
    "the index is refused as long as the log is damaged"
)

JOURNAL_INSTEAD = (
    "bring the file back from a copy, if there is one. Damage before the last mark does no harm: nothing of "
    "it is replayed, and the bookie removes the file later. Because of damage after the mark, the next start "
    "is refused; if only digests of whole records fail, it may put ledgers into limbo. 'bkctl journal "
    "salvage' copies all readable records to a fresh directory, lists the losses and puts their ledgers into "
    "limbo"
)

_UNCHECKED_INSTEAD = (
    "give what the digests of the other entries need: --metadata FILE|URI for their types, or "
    "--password-file FILE for MACs; stderr says which of these is missing"
)

_OF_LOGS = {
    Verdict.TORN_TAIL: "nothing to do: the record was being written when its process stopped, no row names "
    "it, and the bookie goes on in another log",
    Verdict.UNCHECKED: _UNCHECKED_INSTEAD,
    Verdict.DAMAGED: LOG_INSTEAD,
}

_OF_JOURNALS = {
    Verdict.TORN_TAIL: "nothing to do: the record was being written when its process stopped and was never "
    "acknowledged; the next start replays what is in front of it",
    Verdict.UNSYNCED_TAIL: "nothing to do: what a power cut took was never acknowledged; the next start "
    "replays what is there",
    Verdict.UNCHECKED: _UNCHECKED_INSTEAD,
    Verdict.DAMAGED: JOURNAL_INSTEAD,
}


def salvage_words(path: str, metadata: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command that salvages a log, in words; ``metadata`` say who is asked."""
    return ("entrylog", "salvage", path, *metadata, "--yes")


def of_damaged_log(path: str) -> NextStep:
    """Return what to do about damage in an entry log, as a list of steps besides the one sentence."""
    steps = (
        AdviceStep("leave the log where it is for now: its other records are served as before"),
        AdviceStep(
            "see which rows of the index point into the damage",
            bkctl_line("index", "check", dirname(path) or "."),
        ),
        AdviceStep("see whether a journal still has the entries", "bkctl journal scan JOURNALS"),
        AdviceStep(
            "if one has, set the last mark in front of them: the next start replays them",
            "bkctl lastmark set BOOKIE --journal ID --offset N",
        ),
        AdviceStep(
            "if none has, copy the rest to a fresh log; what is lost is listed, and its ledgers are in limbo",
            bkctl_line("entrylog", "salvage", path, "--losses", "losses.json"),
        ),
        AdviceStep(
            "then start the bookie, and bring what is lost back from the other replicas",
            "bkctl ledger repair --from losses.json",
        ),
    )
    return not_ended(LOG_INSTEAD, "entrylog", "verify", path, steps=steps)


def of_log(verdict: FileVerdict) -> NextStep | None:
    """Return what to do about an entry log, None where there is nothing to say."""
    return _step(verdict, _OF_LOGS, ("index", "check", _folder(verdict)))


def of_journal(verdict: FileVerdict) -> NextStep | None:
    """Return what to do about a journal, None where there is nothing to say."""
    return _step(verdict, _OF_JOURNALS, ("doctor", _folder(verdict), "--only", "marks,journals"))


def _folder(verdict: FileVerdict) -> str:
    return dirname(verdict.path) or "."


def _step(verdict: FileVerdict, texts: dict[Verdict, str], look: tuple[str, ...]) -> NextStep | None:
    text = texts.get(verdict.verdict)
    if text is None:
        return None
    return not_ended(text, *(look if verdict.verdict is Verdict.DAMAGED else ()))
