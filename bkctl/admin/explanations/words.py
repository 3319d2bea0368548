"""Words of BookKeeper and of this program's output, for an operator who meets one of them in a message.

The table of words in ARCHITECTURE.md is for readers of the code; those of its words that are seen from
outside are here as well.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is written, the other forms of it, what it means, and what to do or to read next."""

    name: str
    also: tuple[str, ...]
    meaning: str
    next: str


def same_word(text: str) -> str:
    """Return a word without what its forms differ in: case, blanks, dashes and underscores."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def explained(text: str) -> Word | None:
    """Return the word that a text is, in any of its forms; None for one that is not explained here."""
    wanted = same_word(text)
    for word in WORDS:
        forms = {same_word(form) for form in (word.name, *word.also)}
        if wanted in forms or wanted.removesuffix("s") in forms:
            return word
    return None


WORDS: tuple[Word, ...] = (
    Word(
        "ack quorum",
        ("Qa",),
        "The number of bookies that must have an entry before its writer is answered. No acknowledged entry "
        "is lost as long as fewer bookies than this are lost.",
        "bkctl ledger show LEDGER shows it.",
    ),
    Word(
        "auditor",
        (),
        "The elected process of autorecovery that finds ledgers with missing replicas and marks them as "
        "under-replicated. It copies nothing itself.",
        "bkctl autorecovery auditor names it; bkctl autorecovery trigger makes it check now.",
    ),
    Word(
        "autorecovery",
        (),
        "The auditor, which marks under-replicated ledgers, and the workers, which copy them. It can be "
        "switched off for the whole cluster.",
        "bkctl autorecovery status shows whether it is on and who does it.",
    ),
    Word(
        "CLOSED",
        (),
        "A ledger with a known last entry. It can be read and never written to again.",
        "Nothing; this is how every ledger should end.",
    ),
    Word(
        "compaction",
        ("major", "minor", "major compaction", "minor compaction"),
        "A bookie copies the live entries of an entry log to another log and removes the old one. A minor "
        "compaction takes logs with few live bytes, a major one, less often, those with more.",
        "bkctl gc explain PATH says of every log why it stays; bkctl bookie compact --minor begins one.",
    ),
    Word(
        "cookie",
        (),
        "A file VERSION in every directory of a bookie, and a copy in the metadata store: which bookie the "
        "directories belong to. A bookie does not start when they disagree.",
        "bkctl cookie diff --conf FILE shows where they disagree.",
    ),
    Word(
        "digest",
        ("checksum", "crc32c"),
        "The checksum that every entry carries, made by its writer. An entry whose digest does not check is "
        "damaged, or was written with another password.",
        "bkctl entrylog verify PATH checks every digest in the files.",
    ),
    Word(
        "DIRTY",
        (),
        "A file in a ledger directory while a bookie runs there. When no bookie runs, its last stop was not "
        "clean, and the next start replays the journals.",
        "Nothing. Do not delete it.",
    ),
    Word(
        "drain",
        ("decommission",),
        "Taking a running bookie out of the cluster: it becomes read-only, all that it holds is copied to "
        "others and verified, and its cookie is deleted last.",
        "bkctl bookies drain ID --dry-run shows what would be copied.",
    ),
    Word(
        "ensemble",
        (),
        "The bookies that hold a ledger. A writer replaces those of them that fail, so that a ledger may "
        "have several ensembles, one after the other.",
        "bkctl ledger show LEDGER shows them all.",
    ),
    Word(
        "entry log",
        ("entrylog",),
        "A file, such as 1c.log, in which a bookie keeps entries of many ledgers. The index says where in it "
        "each entry is.",
        "bkctl entrylog list PATH lists them; bkctl entrylog verify PATH checks them.",
    ),
    Word(
        "fence",
        ("fenced", "fencing"),
        "A bookie refuses further adds of the old writer to a fenced ledger, so that another client can "
        "recover and close it.",
        "Normal when a topic moves to another broker. bkctl ledger doctor LEDGER says whether it can be "
        "closed.",
    ),
    Word(
        "fragment",
        ("segment",),
        "The entries of a ledger between two changes of its ensemble. Copies are made fragment by fragment.",
        "bkctl ledger show LEDGER shows where each begins.",
    ),
    Word(
        "garbage",
        ("gc", "garbage collection"),
        "Entries of deleted ledgers. An entry log without live entries is removed; one with some of them is "
        "compacted.",
        "bkctl gc explain PATH says of every log why it stays.",
    ),
    Word(
        "IN_RECOVERY",
        ("recovery",),
        "Another client than the writer is closing the ledger: it fences it, finds the last acknowledged "
        "entry, copies what is needed, and closes it there. A client that fails leaves it in this state.",
        "bkctl ledger doctor LEDGER says what is missing; bkctl ledger recover LEDGER finishes it.",
    ),
    Word(
        "index",
        ("locations",),
        "The databases, or .idx files, that say in which entry log, and where in it, an entry is.",
        "bkctl index check PATH compares it with the entry logs.",
    ),
    Word(
        "instance id",
        ("instanceid",),
        "The id that a cluster gets when it is made. It stands in every cookie, so that a bookie of another "
        "cluster is noticed.",
        "bkctl cluster info shows it.",
    ),
    Word(
        "journal",
        ("txn",),
        "The files to which a bookie writes every entry before it answers. A start replays them from the "
        "last mark.",
        "bkctl journal verify PATH checks them.",
    ),
    Word(
        "LAC",
        ("last add confirmed", "lastAddConfirmed"),
        "Last add confirmed: every entry up to this one is acknowledged and may be read.",
        "bkctl ledger recover LEDGER --dry-run shows the one that the bookies know.",
    ),
    Word(
        "last mark",
        ("mark", "log mark"),
        "The place in the journals from which a start of the bookie replays. All that is before it is in "
        "entry logs and index.",
        "bkctl lastmark show PATH shows it.",
    ),
    Word(
        "ledger",
        (),
        "A sequence of entries with one writer, which is closed once and never changes after that. A topic "
        "of Pulsar is a chain of ledgers.",
        "bkctl ledger show LEDGER shows its metadata.",
    ),
    Word(
        "ledgers map",
        (),
        "A list at the end of an entry log of the ledgers in it and their bytes. The newest log has none "
        "yet, nor has one that was open when a bookie was killed; the log is then read as a whole.",
        "Nothing.",
    ),
    Word(
        "limbo",
        ("in limbo",),
        "The bookie may have lost entries of the ledger. For an entry that it does not have it answers "
        "'unknown' and never 'no such entry', so that a recovery asks other bookies and does not cut the "
        "ledger short.",
        "bkctl ledger repair --bookie ID copies what is missing and ends limbo; bkctl index ledgers PATH "
        "lists ledgers in limbo.",
    ),
    Word(
        "losses file",
        ("losses", "losses.json"),
        "The list of the entries that a salvage could not save, with their ledgers.",
        "bkctl ledger repair --from FILE copies them back from other bookies.",
    ),
    Word(
        "maintenance",
        (),
        "A time in which autorecovery rests for all of the cluster, because bookies are restarted on "
        "purpose.",
        "bkctl maintenance status shows whether one is on; bkctl maintenance end ends it.",
    ),
    Word(
        "master key",
        ("ledger password",),
        "A hash of the password of a ledger. Every bookie stores it with the first entry, and refuses "
        "clients that have another.",
        "Give the password of the ledger with --password-file; that of Pulsar's ledgers is empty unless "
        "configured.",
    ),
    Word(
        "metadata store",
        ("metadata",),
        "Where a cluster keeps which ledgers and bookies it has: ZooKeeper, or a file for a single bookie.",
        "bkctl cluster info shows which one a command asks.",
    ),
    Word(
        "OPEN",
        (),
        "A ledger that has a writer, or had one that went away without closing it.",
        "bkctl ledger doctor LEDGER says which; bkctl ledger recover LEDGER closes one whose writer is gone.",
    ),
    Word(
        "orphan",
        ("orphaned",),
        "A ledger that still takes space although nobody names it any more: neither Pulsar, nor, on a disk, "
        "the metadata.",
        "bkctl pulsar orphans finds those of Pulsar; bkctl pipeline run orphans those on disks.",
    ),
    Word(
        "protected",
        ("protected context",),
        "A context in which every write to the cluster asks for the context's name.",
        "Type the name, or set BKCTL_CONFIRM to it in a script.",
    ),
    Word(
        "quarantine",
        ("quarantined",),
        "A damaged entry log is moved to a folder where the bookie neither reads nor collects it. Reads of "
        "its entries fail, and clients ask other bookies.",
        "bkctl entrylog quarantine --release brings it back.",
    ),
    Word(
        "read-only",
        ("readonly", "ro"),
        "A bookie that answers reads and takes no new entries: its disks are nearly full, or it was told to.",
        "bkctl bookie status --url URL; bkctl gc explain PATH when a disk is full.",
    ),
    Word(
        "replica",
        (),
        "The copy of an entry on one bookie. The write quorum says how many there are.",
        "bkctl ledger compare LEDGER reads all of them.",
    ),
    Word(
        "salvage",
        ("salvaged",),
        "Copying the records of a damaged log or journal that are proved good to a fresh file. The old file "
        "is kept.",
        "bkctl entrylog salvage and bkctl journal salvage, with --dry-run first.",
    ),
    Word(
        "torn tail",
        (),
        "The last record of the newest journal or entry log is cut off, as a crash leaves it. Nobody was "
        "answered for it, and nothing is lost.",
        "Nothing; the next start of the bookie deals with it.",
    ),
    Word(
        "unchecked",
        (),
        "Nothing wrong was found, and not every digest could be checked, because the type of the digest or "
        "the ledger's password is not known.",
        "Give --metadata, so that they are known.",
    ),
    Word(
        "under-replicated",
        ("underreplication", "missing replica"),
        "Some bookies that should have entries of the ledger are gone or lost them. The auditor marks such "
        "ledgers, and a worker copies them.",
        "bkctl autorecovery list --explain says of each whether it can be copied.",
    ),
    Word(
        "undo file",
        ("undo",),
        "The metadata of deleted or changed ledgers as they were before.",
        "bkctl ledger restore FILE puts them back, as long as bookies have not collected the entries.",
    ),
    Word(
        "unsynced tail",
        (),
        "Zeros at the end of the newest journal, behind what was synced, as a power cut leaves them. Nobody "
        "was answered for what is missing there.",
        "Nothing; the next start of the bookie deals with it.",
    ),
    Word(
        "worker",
        ("replication worker",),
        "A process of autorecovery that copies the entries of under-replicated ledgers to other bookies.",
        "bkctl autorecovery start runs one; bkctl autorecovery list shows what is left for workers to do.",
    ),
    Word(
        "write cache",
        (),
        "Memory in which a bookie keeps new entries until a flush moves them to entry logs. The journal has "
        "them already.",
        "bkctl top shows how full it is.",
    ),
    Word(
        "write quorum",
        ("Qw",),
        "The number of bookies of the ensemble that get each entry.",
        "bkctl ledger show LEDGER shows it.",
    ),
    Word(
        "write set",
        (),
        "The bookies of the ensemble that get one particular entry; the next entry has the next ones.",
        "bkctl ledger compare LEDGER shows which bookie has which entry.",
    ),
)
