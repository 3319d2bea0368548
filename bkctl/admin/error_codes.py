"""The meaning of BookKeeper's numbers: of its client, its wire protocol, a bookie, and a bookie's process.

Words that are no names of numbers are those of :mod:`bkctl.admin.words`.

The same number means different things in different places (-102 is a wrong password in the client and a wrong
cookie in a bookie), so a number is answered with everything it can be.

Sources: ``org.apache.bookkeeper.client.api.BKException.Code``, ``BookkeeperProtocol.StatusCode``,
``BookieProtocol``, and of ``org.apache.bookkeeper.bookie`` ``BookieException.Code`` and ``ExitCode``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from bkctl.admin.words import WORDS, Word, explained
from bkctl.errors import NotFoundError
from bkctl.protocol.codes import V2_NUMBERS, V3_NUMBERS
from bkctl.types import ResultCode

#: In place of a word: all of them.
EVERY_WORD = "words"
#: Of so many texts a word may be, as "last add confirmed".
_TEXTS_MAX = 3


class Place(enum.Enum):
    """The place where a number is seen; the value is its JSON form."""

    CLIENT = "client"
    WIRE_V2 = "wire_v2"
    WIRE_V3 = "wire_v3"
    BOOKIE = "bookie"
    PROCESS = "bookie_exit"
    #: Not a place: a word has no number.
    WORD = "word"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One meaning of one number: what happened, and what an operator does about it.

    A word is explained in the same form, without a number.
    """

    place: Place
    code: int | None
    name: str
    meaning: str
    next: str


def every_code() -> Iterator[ErrorCode]:
    """Yield all error codes, by place, then as upstream numbers them."""
    yield from (ErrorCode(Place.CLIENT, *row) for row in _CLIENT)
    for place, numbers in ((Place.WIRE_V2, V2_NUMBERS), (Place.WIRE_V3, V3_NUMBERS)):
        for number, code in numbers.items():
            yield ErrorCode(place, number, code.value, *_WIRE[code])
    yield from (ErrorCode(Place.BOOKIE, *row) for row in _BOOKIE)
    yield from (ErrorCode(Place.PROCESS, *row) for row in _PROCESS)


def every_word() -> Iterator[ErrorCode]:
    """Yield all words, in the order of the alphabet."""
    yield from (_of_word(word) for word in WORDS)


def explain_all(texts: Sequence[str]) -> list[ErrorCode]:
    """Find every meaning of numbers, names and words, each meaning once; words may be of several texts.

    Raises NotFoundError, as :func:`explain`.
    """
    found: list[ErrorCode] = []
    rest = list(texts)
    while rest:
        several = next((n for n in range(_TEXTS_MAX, 1, -1) if explained(" ".join(rest[:n]))), 1)
        meanings = every_word() if rest[0] == EVERY_WORD else explain(" ".join(rest[:several]))
        found += [meaning for meaning in meanings if meaning not in found]
        del rest[:several]
    return found


def explain(wanted: str) -> list[ErrorCode]:
    """Find every meaning of a number, a name or a word: ``-101``, ``EFENCED``, ``limbo``.

    Names are found as logs write them (``BKLedgerFencedException``). Raises NotFoundError, with names and
    words that are like it.
    """
    try:
        number = int(wanted)
    except ValueError:
        found = [code for code in every_code() if _bare(code.name) == _bare(wanted)]
        if (word := explained(wanted)) is not None:
            found.append(_of_word(word))
    else:
        found = [code for code in every_code() if code.code == number]
    if not found:
        raise NotFoundError(
            f"{wanted}: neither a code of BookKeeper's nor a word that is known here{_like(wanted)}"
        )
    return found


def _of_word(word: Word) -> ErrorCode:
    return ErrorCode(Place.WORD, None, word.name, word.meaning, word.next)


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


_ASK_DOCTOR = "bkctl ledger doctor LEDGER shows which bookie lacks which entries."
_BOOKIES = "bkctl bookies list shows who is up; bkctl bookies probe asks each."

#: code, name, meaning, what to do.
_CLIENT: tuple[tuple[int, str, str, str], ...] = (
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
        f"{_ASK_DOCTOR} The bookies' logs name the file.",
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
        f"Normal for a bookie that got no entry of it; else its index lost it. {_ASK_DOCTOR}",
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
        f"Beyond the last entry that is normal. Within a closed ledger a replica is missing: {_ASK_DOCTOR}",
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

_WIRE: dict[ResultCode, tuple[str, str]] = {
    ResultCode.OK: ("It worked.", "Nothing."),
    ResultCode.NO_LEDGER: ("The bookie does not know the ledger.", f"A client says -7. {_ASK_DOCTOR}"),
    ResultCode.NO_ENTRY: (
        "The ledger is known, the entry is not there.",
        f"A client says -13. {_ASK_DOCTOR}",
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

_BOOKIE: tuple[tuple[int, str, str, str], ...] = (
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

_PROCESS: tuple[tuple[int, str, str, str], ...] = (
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
