"""The meaning of the numbers of BookKeeper's client.

Source: ``org.apache.bookkeeper.client.api.BKException.Code``.
"""

from __future__ import annotations

#: The advice for an entry that is missing or cannot be read.
ASK_DOCTOR = "bkctl ledger doctor LEDGER shows which bookie lacks which entries."
_BOOKIES = "bkctl bookies list shows who is up; bkctl bookies probe asks each."

#: code, name, meaning, what to do.
CLIENT: tuple[tuple[int, str, str, str], ...] = (
    (0, "OK", "It worked.", "Nothing."),
    (
        1,
        "UNINITIALIZED",
        "No answer was recorded yet; seen only inside the client.",
        "Report it as a bug of the client.",
    ),
    (
        -1,
        "ReadException",
        "A read failed on every bookie of the write set, or a bookie answered with an error that has no code "
        "of its own (EIO, EBADREQ).",
        f"{ASK_DOCTOR} The bookies' logs name the file.",
    ),
    (
        -2,
        "QuorumException",
        "Ensemble, write quorum and ack quorum do not fit each other.",
        "Ack <= write <= ensemble.",
    ),
    (-3, "NoBookieAvailableException", "There was no bookie to talk to.", _BOOKIES),
    (
        -4,
        "DigestNotInitializedException",
        "The digest could not be set up.",
        "Check digest type and password against bkctl ledger show LEDGER.",
    ),
    (
        -5,
        "DigestMatchException",
        "The bytes of an entry do not fit their digest: damaged on the bookie, or opened with another digest "
        "type or password.",
        "bkctl ledger show LEDGER shows the type; bkctl entrylog verify PATH, on the bookie that is named, "
        "finds damage.",
    ),
    (
        -6,
        "NotEnoughBookiesException",
        "Fewer writable bookies than the ensemble needs, or the placement policy rejected those that there "
        "are.",
        f"{_BOOKIES} Read-only bookies (disks over the threshold) do not count.",
    ),
    (
        -7,
        "NoSuchLedgerExistsException",
        "The bookie does not know the ledger.",
        f"Normal for a bookie that got no entry of it; else its index lost it. {ASK_DOCTOR}",
    ),
    (
        -8,
        "BookieHandleNotAvailableException",
        "No connection to the bookie: down, unreachable, a name that does not resolve, or closed by it.",
        _BOOKIES,
    ),
    (
        -9,
        "ZKException",
        "ZooKeeper failed or its session ended.",
        "Check the ensemble that the metadata URI names.",
    ),
    (
        -10,
        "LedgerRecoveryException",
        "Recovery could not finish: too few bookies answered to know what was acknowledged. The ledger stays "
        "IN_RECOVERY and nothing is lost.",
        "bkctl ledger recover LEDGER --dry-run shows who does not answer; bring it back, then recover again.",
    ),
    (
        -11,
        "LedgerClosedException",
        "The handle is closed: an append failed before, or the ledger was closed by somebody.",
        "Open a new ledger; look for the first error before this one.",
    ),
    (
        -12,
        "WriteException",
        "A bookie answered a write with an error that has no code of its own (EIO, EBADREQ).",
        "The log of the bookie names the file; bkctl doctor --url URL asks it.",
    ),
    (
        -13,
        "NoSuchEntryException",
        "Every bookie that was asked knows the ledger and does not have the entry.",
        f"Beyond the last entry that is normal. Within a closed ledger a replica is missing: {ASK_DOCTOR}",
    ),
    (
        -14,
        "IncorrectParameterException",
        "An argument is out of range, such as entry ids beyond the end.",
        "Check the call.",
    ),
    (
        -15,
        "InterruptedException",
        "The waiting thread was interrupted.",
        "Usually the client is shutting down; otherwise find out what interrupts the thread.",
    ),
    (
        -16,
        "ProtocolVersionException",
        "The bookie does not speak this protocol version.",
        "Compare the versions of client and bookie.",
    ),
    (
        -17,
        "MetadataVersionException",
        "The metadata changed between read and write: somebody else updated the ledger.",
        "Mostly another client has recovered the ledger. Read the metadata again: bkctl ledger show LEDGER.",
    ),
    (-18, "MetaStoreException", "The metadata store failed.", "Check the store that the metadata URI names."),
    (
        -19,
        "ClientClosedException",
        "The client was closed while the operation ran.",
        "Keep the client open until every operation is answered.",
    ),
    (
        -20,
        "LedgerExistException",
        "A ledger with this id exists.",
        "Choose another id, or let the client choose.",
    ),
    (
        -21,
        "AddEntryQuorumTimeoutException",
        "An append did not get its ack quorum in time (addEntryQuorumTimeoutSec).",
        "A bookie of the ensemble is slow: bkctl top names the stage.",
    ),
    (
        -22,
        "DuplicateEntryIdException",
        "A writer that gives its own entry ids gave one twice.",
        "Correct the writer: each entry id may be given once.",
    ),
    (
        -23,
        "TimeoutException",
        "A bookie did not answer in time.",
        "bkctl top shows whether journal, ledger disk or processor holds it up.",
    ),
    (
        -24,
        "SecurityException",
        "TLS or authentication failed.",
        "Check certificates and clientAuthProviderFactoryClass.",
    ),
    (
        -25,
        "NoSuchLedgerExistsOnMetadataServerException",
        "The metadata store has no such ledger: deleted, never made, or the URI names another cluster.",
        "bkctl ledger list shows those that there are; bkctl ledger restore FILE brings back one that was "
        "deleted by mistake.",
    ),
    (
        -100,
        "IllegalOpException",
        "The operation is not allowed here, such as force over protocol v2.",
        "Check the call.",
    ),
    (
        -101,
        "LedgerFencedException",
        "Somebody opened the ledger with recovery: this writer must not write any more.",
        "Normal when a topic moves to another broker. The writer opens a new ledger; nothing is lost.",
    ),
    (
        -102,
        "UnauthorizedAccessException",
        "The password is not the ledger's, or the client is not authenticated.",
        "Give the ledger's password (--password, --password-file); Pulsar's is empty unless configured.",
    ),
    (
        -103,
        "UnclosedFragmentException",
        "The fragment is still written to, so it is not copied.",
        "Close or recover the ledger first: bkctl ledger recover LEDGER.",
    ),
    (
        -104,
        "WriteOnReadOnlyBookieException",
        "The bookie is read-only: its disks are over the threshold, or it was told to be.",
        "bkctl bookie status --url URL shows its state. Free space (bkctl gc explain PATH); if it was told "
        "to, PUT /api/v1/bookie/state/readonly makes it writable again (docs/http.md).",
    ),
    (
        -105,
        "TooManyRequestsException",
        "The queues of the bookie are full, and it refused the request.",
        "bkctl top names the bottleneck.",
    ),
    (
        -106,
        "LedgerIdOverflowException",
        "All ledger ids of 31 bits are used up.",
        "Use long ledger ids (long-hierarchical).",
    ),
    (
        -107,
        "MetadataSerializationException",
        "The ledger's metadata could not be written or read.",
        "bkctl metadata show PATH shows the bytes.",
    ),
    (
        -108,
        "DataUnknownException",
        "The bookie lost data and cannot say whether it ever had the entry (limbo).",
        "Other replicas answer. bkctl ledger repair --bookie ID copies what is missing and ends limbo; see "
        "'bkctl explain limbo'.",
    ),
    (-200, "ReplicationException", "Re-replication failed.", "The log of the replication worker says why."),
    (
        -999,
        "UnexpectedConditionException",
        "Something happened that should be impossible: a bug, or a mixture of versions.",
        "Report it.",
    ),
)
