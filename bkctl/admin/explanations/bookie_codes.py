"""The meaning of the numbers that a bookie answers with, logs, and ends its process with.

Sources: ``BookkeeperProtocol.StatusCode``, ``BookieProtocol``, and of ``org.apache.bookkeeper.bookie``
``BookieException.Code`` and ``ExitCode``.
"""

from __future__ import annotations

from bkctl.admin.explanations.client_codes import ASK_DOCTOR
from bkctl.types import ResultCode

#: Meaning, what to do; the number is that of the version of the protocol.
WIRE: dict[ResultCode, tuple[str, str]] = {
    ResultCode.OK: ("It worked.", "Nothing."),
    ResultCode.NO_LEDGER: ("The bookie does not know the ledger.", f"A client says -7. {ASK_DOCTOR}"),
    ResultCode.NO_ENTRY: (
        "The ledger is known, the entry is not there.",
        f"A client says -13. {ASK_DOCTOR}",
    ),
    ResultCode.BAD_REQUEST: (
        "The request makes no sense to this bookie.",
        "Check the versions of client and bookie.",
    ),
    ResultCode.IO_ERROR: (
        "The bookie could not read or write its storage; whether the entry is there is unknown.",
        "Its log names the file and offset; bkctl doctor PATH examines it.",
    ),
    ResultCode.UNAUTHORIZED: (
        "The master key (the password) is not the ledger's, or no authentication.",
        "See 'bkctl explain -102'.",
    ),
    ResultCode.BAD_VERSION: (
        "The request is of a protocol version that is not spoken here.",
        "Compare the versions of client and bookie.",
    ),
    ResultCode.FENCED: (
        "The ledger is fenced: somebody recovers it.",
        "See 'bkctl explain -101'; normal when a topic moves.",
    ),
    ResultCode.READ_ONLY: ("The bookie takes no writes.", "See 'bkctl explain -104'."),
    ResultCode.TOO_MANY_REQUESTS: (
        "A queue is full, or both write caches were for too long.",
        "bkctl top shows which.",
    ),
    ResultCode.UNKNOWN_LEDGER_STATE: (
        "The ledger is in limbo: data was lost here, a missing entry proves nothing.",
        "See 'bkctl explain limbo'. Our bookies send EIO over v2, where Java's client breaks at 107.",
    ),
}

#: Code, name, meaning, what to do; so in the next table.
BOOKIE: tuple[tuple[int, str, str, str], ...] = (
    (0, "OK", "It worked.", "Nothing."),
    (
        -1,
        "UnauthorizedAccessException",
        "The master key is not the one the ledger was made with.",
        "See the client's -102.",
    ),
    (
        -100,
        "IllegalOpException",
        "The operation is not allowed, such as one on a special entry id.",
        "Report it.",
    ),
    (-101, "LedgerFencedException", "An add to a fenced ledger.", "Normal when a topic moves."),
    (
        -102,
        "InvalidCookieException",
        "The bookie refuses to start: cookies in its directories, in the metadata store and its "
        "configuration do not agree.",
        "bkctl cookie diff --conf FILE shows the fields: directories added, lost or swapped, or another id.",
    ),
    (
        -103,
        "UpgradeException",
        "An upgrade of the file system layout failed.",
        "Only from layouts before 4.0.",
    ),
    (
        -104,
        "DiskPartitionDuplicationException",
        "Two directories lie on one disk while allowMultipleDirsUnderSameDiskPartition is false.",
        "Give each a disk of its own, or allow it.",
    ),
    (
        -105,
        "CookieNotFoundException",
        "The metadata store has no cookie for this bookie, or a directory has none.",
        "bkctl cookie diff --conf FILE; a new bookie is made by bkctl bookie init.",
    ),
    (
        -106,
        "MetadataStoreException",
        "The metadata store failed.",
        "Check the store that the metadata URI names.",
    ),
    (
        -107,
        "UnknownBookieIdException",
        "The bookie could not find out its own id.",
        "Check advertisedAddress and bookieId.",
    ),
    (
        -108,
        "OperationRejectedException",
        "The write cache was full for too long.",
        "bkctl top shows what holds it up; mostly it is the ledger disk.",
    ),
    (
        -109,
        "CookieExistsException",
        "A cookie is there already.",
        "bkctl cookie get; update it instead of creating it.",
    ),
    (
        -110,
        "EntryLogMetadataMapException",
        "The database of entry-log metadata (gcEntryLogMetadataCacheEnabled) failed.",
        "It is a cache: stop the bookie and remove metadata-cache.",
    ),
    (-111, "DataUnknownException", "The ledger is in limbo.", "See the client's -108."),
    (
        -112,
        "LedgerFencedAndDeletedException",
        "The ledger was fenced, then deleted.",
        "Nothing; garbage collection removes its entries.",
    ),
)

PROCESS: tuple[tuple[int, str, str, str], ...] = (
    (0, "OK", "The bookie ended in good order.", "Nothing."),
    (1, "INVALID_CONF", "bk_server.conf cannot be used.", "bkctl doctor --conf FILE names the keys."),
    (
        2,
        "SERVER_EXCEPTION",
        "The bookie failed to start or while it ran.",
        "Its log says why; bkctl doctor --conf FILE examines it.",
    ),
    (
        3,
        "ZK_EXPIRED",
        "The ZooKeeper session ended and could not be made again.",
        "Look for long pauses of the bookie, and check ZooKeeper.",
    ),
    (
        4,
        "ZK_REG_FAIL",
        "The bookie could not register itself.",
        "The registration of an earlier run may be left until its session times out: wait, then start again.",
    ),
    (
        5,
        "BOOKIE_EXCEPTION",
        "The storage failed: journal replay, cookie, or an I/O error.",
        "bkctl doctor --conf FILE says which of them.",
    ),
)
