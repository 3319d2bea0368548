"""The ledgers that exist, and the proof that one is gone: one value for rebuild, repair, check and gc.

A ledger may be known from the cluster's metadata, from the old ledger rows, from old locations, from the
entry logs and from the journals. That all but one of these are silent about a ledger proves nothing, with one
exception: the metadata of the cluster prove that a ledger is gone when they are complete and are newer than
the ledger. So

* a metadata store proves it by a complete listing and by a read of the ledger's own node;
* a dump proves it when it has an end marker, the ledgers root and an instance id that is the cookie's. A
  dump without these serves to describe ledgers; it proves nothing, unless the operator trusts it;
* of a ledger whose id is not below the next id that the cluster would have generated the metadata say
  nothing: the ledger is newer, or its id was chosen by a client. In a live store it means more: a store that
  was brought back from an older copy looks like that, so nothing at all is taken for gone then;
* a dump of another cluster and the undo file of a deletion are refused;
* where no cookie says whose a directory is, nothing is taken for gone: the metadata may be another cluster's.

Source of the rules: ``org.apache.bookkeeper.bookie.ScanAndCompareGarbageCollector``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from posixpath import join
from typing import Protocol

from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE, GroupedMetadata
from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.engine.gc.policy import absent
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.metadata.api import LayoutManager, LedgerManager
from bkctl.scan.directory import COOKIE_NAME, read_small
from bkctl.scan.metadata_dump import DumpKind, MetadataDump
from bkctl.vfs import FileSystem

_NO_COOKIE = (
    "no cookie says which cluster's bookie this is, so that the metadata may be another cluster's and prove"
    " nothing: bring it back ('bkctl cookie create DIR --file FILE')"
)


class Source(enum.Enum):
    """The source from which a ledger is known; the value is the word in messages."""

    METADATA = "metadata"
    ROWS = "ledger rows"
    LOCATIONS = "locations"
    LOGS = "entry logs"
    JOURNALS = "journals"


class Cluster(Protocol):
    """A source of the cluster's ledgers. Methods raise BkctlError when the source cannot be read."""

    @property
    def instance_id(self) -> str | None:
        """The cluster's UUID; None when it is not known."""

    @property
    def is_asked(self) -> bool:
        """Whether there is a source at all."""

    @property
    def is_live(self) -> bool:
        """Whether the source is the present state, so that nothing depends on what the index has."""

    @property
    def time_ms(self) -> int | None:
        """The time whose state the source has; None when that is not known."""

    def unproved(self, instance_id: str | None) -> str | None:
        """Return why the source's silence about a ledger is no proof to a bookie of this instance, or None.

        Raises RefusedError for the metadata of another cluster, and for what is no cluster's metadata.
        """

    def next_ledger(self) -> int:
        """Return the id that would be generated next: all that were generated are lower."""

    def missing(self, ledgers: Collection[int]) -> set[int]:
        """Return those of some ledgers that are not in the cluster."""

    def unfound(self, ledgers: Collection[int]) -> set[int]:
        """Return those of some ledgers that a read of their own does not find."""

    def metadata_of(self, ledgers: Collection[int]) -> dict[int, LedgerMetadata | CorruptionError]:
        """Return the metadata of those of some ledgers that have any, many being asked for at once."""

    def ledgers_in_order(self) -> Iterator[int]:
        """Yield the id of every ledger, ascending."""


class NoCluster:
    """No source was given."""

    instance_id: str | None = None
    is_asked = False
    is_live = False
    time_ms: int | None = None

    def unproved(self, instance_id: str | None) -> str | None:
        return "no metadata were given"

    def next_ledger(self) -> int:
        return 0

    def missing(self, ledgers: Collection[int]) -> set[int]:
        return set()

    def unfound(self, ledgers: Collection[int]) -> set[int]:
        return set()

    def metadata_of(self, ledgers: Collection[int]) -> dict[int, LedgerMetadata | CorruptionError]:
        return {}

    def ledgers_in_order(self) -> Iterator[int]:
        return iter(())


class DumpedCluster:
    """A dump, with the state of the moment it was made. ``trusted``: the operator says it is complete."""

    is_asked = True
    is_live = False

    def __init__(self, dump: MetadataDump, *, name: str = "the metadata dump", trusted: bool = False) -> None:
        self.name = name
        self.ledgers: Mapping[int, LedgerMetadata] = dump.ledgers
        self.instance_id = dump.instance_id
        self._trusted = trusted
        self._end = dump.end
        self._has_root = dump.has_root

    @property
    def time_ms(self) -> int | None:
        return None if self._end is None else self._end.time_ms

    def unproved(self, instance_id: str | None) -> str | None:
        if self._end is not None and self._end.kind is DumpKind.UNDO:
            raise RefusedError(
                f"{self.name}: is an undo file of 'bkctl ledger delete'. It only has the ledgers that were "
                "deleted, and does not show which others exist. Give --metadata FILE|URI"
            )
        refuse_another(self.instance_id, instance_id, self.name)
        if self._trusted and not self._has_root:
            raise RefusedError(
                f"{self.name}: has no ledgers root, so it is only a part of a cluster (an undo file, "
                "perhaps), and proves nothing, even with --trust-dump"
            )
        if self._trusted:
            return None
        if self._end is None or self._end.next_ledger is None:
            return f"{self.name} has no end marker, so it may be incomplete (--trust-dump accepts it)"
        if not self._has_root:
            return f"{self.name} has no ledgers root"
        if self.instance_id is None or instance_id is None:
            whose = self.name if self.instance_id is None else "the cookie"
            return f"{whose} has no instance id, so it may be of another cluster (--trust-dump accepts it)"
        return None

    def next_ledger(self) -> int:
        if self._end is not None and self._end.next_ledger is not None:
            return self._end.next_ledger
        return max(self.ledgers, default=0)

    def missing(self, ledgers: Collection[int]) -> set[int]:
        return {ledger for ledger in ledgers if ledger not in self.ledgers}

    def unfound(self, ledgers: Collection[int]) -> set[int]:
        return self.missing(ledgers)

    def metadata_of(self, ledgers: Collection[int]) -> dict[int, LedgerMetadata | CorruptionError]:
        return {ledger: self.ledgers[ledger] for ledger in ledgers if ledger in self.ledgers}

    def ledgers_in_order(self) -> Iterator[int]:
        return iter(sorted(self.ledgers))


class StoredCluster:
    """A metadata store. A ledger is missing by two proofs: a complete listing, and a read of its own."""

    is_asked = True
    is_live = True
    time_ms: int | None = None

    def __init__(
        self, layout: LayoutManager, ledgers: LedgerManager, *, name: str = "the metadata store"
    ) -> None:
        self.name = name
        self._ledgers = ledgers
        self.instance_id = layout.instance_id()

    def unproved(self, instance_id: str | None) -> str | None:
        refuse_another(self.instance_id, instance_id, self.name)
        if self.instance_id != instance_id:
            whose = "the metadata store" if self.instance_id is None else "the cookie"
            return f"{whose} has no instance id, so that the other may be of another cluster"
        return None

    def next_ledger(self) -> int:
        return self._ledgers.upcoming_ledger_id()

    def missing(self, ledgers: Collection[int]) -> set[int]:
        return self.unfound(absent(ledgers, self._ledgers.ledger_ranges()))

    def unfound(self, ledgers: Collection[int]) -> set[int]:
        return set(self._ledgers.missing_ledgers(ledgers))

    def metadata_of(self, ledgers: Collection[int]) -> dict[int, LedgerMetadata | CorruptionError]:
        return {
            ledger: found if isinstance(found, CorruptionError) else found.metadata
            for ledger, found in self._ledgers.read_ledgers(ledgers)
            if found is not None
        }

    def ledgers_in_order(self) -> Iterator[int]:
        return self._ledgers.ledgers()


@dataclass(slots=True)
class KnownLedgers:
    """The ledgers that one directory may have, and where each is known from.

    ``instance_id`` and ``bookie`` are the cookie's. ``local`` maps the directory's own sources to their
    ledgers. ``unproved`` says why a ledger that the metadata do not have is not taken for gone; it is None
    while they prove it. ``rolled_back`` is set when the metadata store looks as if it had been brought back
    from an older copy, unless ``confirmed`` says that this is known to be well.
    """

    cluster: Cluster
    bookie: str | None
    instance_id: str | None
    unproved: str | None
    confirmed: bool = False
    local: dict[Source, Container[int]] = field(default_factory=dict)
    rolled_back: str | None = None
    _next_ledger: int | None = None

    @classmethod
    def of(
        cls, cluster: Cluster, cookie: Cookie | None, bookie: str | None, *, confirmed: bool = False
    ) -> KnownLedgers:
        """Bind a cluster to a bookie by its cookie. Raises RefusedError for another cluster's metadata."""
        instance_id = None if cookie is None else cookie.instance_id
        unproved = cluster.unproved(instance_id)
        if cookie is None and (unproved is None or cluster.is_live):
            # Also of a store that answers, and of a dump that the operator trusts: both may be another's.
            unproved = _NO_COOKIE
        return cls(cluster, bookie, instance_id, unproved, confirmed)

    def is_newer_than(self, time_ms: float) -> bool:
        """Return whether the metadata are of a later moment; those that an operator trusts count as such."""
        made_ms = self.cluster.time_ms
        return self.unproved is None and (self.cluster.is_live or made_ms is None or made_ms >= time_ms)

    @property
    def tells_all(self) -> bool:
        """Whether the metadata have every ledger, so that nothing depends on what the index has."""
        return self.cluster.is_live and self.unproved is None and self.rolled_back is None

    @property
    def next_ledger(self) -> int:
        """The id at and above which the metadata say nothing of a ledger that they do not have."""
        if self._next_ledger is None:
            self._next_ledger = self.cluster.next_ledger()
        return self._next_ledger

    def gone(self, ledgers: Collection[int]) -> set[int]:
        """Return those of some ledgers that are proven to exist no more. Raises BkctlError."""
        if self.unproved is not None or not ledgers:
            return set()
        return self._proven(self.cluster.missing(ledgers))

    def _proven(self, missing: set[int]) -> set[int]:
        """Pick from ledgers that the metadata do not have those that are proven to exist no more."""
        if self.unproved is not None or not missing:
            return set()
        newer = {ledger for ledger in missing if ledger >= self.next_ledger}
        if newer and self.cluster.is_live:
            if self.confirmed:
                return missing
            self._doubt(min(newer))
        return set() if self.rolled_back is not None else missing - newer

    def _doubt(self, ledger: int) -> None:
        self.rolled_back = (
            f"ledger {ledger} is here, but the metadata store does not have it, and its next ledger id "
            f"would be {self.next_ledger}. So the store was brought back from an older copy, or a client "
            "chose this id. No ledger counts as deleted"
        )

    def keeps_each(self, ledgers: Collection[int]) -> dict[int, bool | None]:
        """Return for each ledger whether it exists and its metadata name this bookie; None if not known.

        Raises BkctlError.
        """
        kept: dict[int, bool | None] = {}
        rest = iter(ledgers)
        while group := tuple(islice(rest, LEDGERS_AT_ONCE)):
            for ledger, metadata in self.cluster.metadata_of(group).items():
                # Metadata that are not to be understood are no proof.
                here = (
                    isinstance(metadata, CorruptionError)
                    or self.bookie is None
                    or names(metadata, self.bookie)
                )
                kept[ledger] = True if here else (False if self.unproved is None else None)
        unread = [ledger for ledger in ledgers if ledger not in kept]
        unfound = self.cluster.unfound(unread) if unread and self.unproved is None else set()
        gone = self._proven(unfound)
        for ledger in unread:
            exists = self.unproved is None and ledger not in unfound
            kept[ledger] = True if exists else (False if ledger in gone else None)
        return kept

    def metadata_of(self, ledgers: Collection[int]) -> Mapping[int, LedgerMetadata]:
        """Return the metadata of ledgers that have any that decode, read when they are looked up.

        Looking them up raises BkctlError.
        """
        return GroupedMetadata(self.cluster.metadata_of, ledgers)

    @property
    def reservation(self) -> str | None:
        """A reservation for whoever asked the metadata: why they prove nothing. None when they do."""
        return (self.rolled_back or self.unproved) if self.cluster.is_asked else None

    def sources(self, ledger: int) -> tuple[Source, ...]:
        """List everything here that has the ledger."""
        return tuple(source for source, ledgers in self.local.items() if ledger in ledgers)


def metadata_in(cluster: Cluster, ledger: int) -> LedgerMetadata | None:
    """Read one ledger's metadata, None when it has none or they do not decode."""
    found = cluster.metadata_of((ledger,)).get(ledger)
    return None if isinstance(found, CorruptionError) else found


def names(metadata: LedgerMetadata, bookie: str) -> bool:
    """Return whether a ledger's metadata name a bookie for any of its entries."""
    return any(bookie in segment.bookies for segment in metadata.segments)


def known_in(filesystem: FileSystem, cluster: Cluster, directories: Sequence[str]) -> KnownLedgers:
    """Bind a cluster to the bookie of some directories; their cookies are not read when nobody was asked.

    Raises RefusedError for another cluster's metadata; CorruptionError and StorageError when no cookie can be
    read that is there.
    """
    cookie = cookie_in(filesystem, directories) if cluster.is_asked else None
    bookie = cookie.bookie_host if cookie is not None and cookie.has_fields else None
    return KnownLedgers.of(cluster, cookie, bookie)


def cookie_in(filesystem: FileSystem, directories: Sequence[str]) -> Cookie | None:
    """Find the first cookie in some directories that can be read, None when there is none.

    Raises CorruptionError, StorageError when there are cookies and none of them can be read: it would be a
    guess which cluster's metadata count here.
    """
    unread: BkctlError | None = None
    for directory in directories:
        path = join(directory, COOKIE_NAME)
        try:
            return decode_cookie(read_small(filesystem, path))
        except NotFoundError:
            continue
        except CorruptionError as error:
            unread = error.located(path)
        except StorageError as error:
            unread = error
    if unread is not None:
        raise unread
    return None


def are_two_clusters(theirs: str | None, instance_id: str | None) -> bool:
    """Return whether the instance ids of metadata and of a cookie are both known, and differ."""
    return bool(theirs and instance_id and theirs != instance_id)


def refuse_another(theirs: str | None, instance_id: str | None, name: str) -> None:
    """Raise RefusedError when metadata, which are at ``name``, and a cookie are of two clusters.

    The ids of ledgers count from 0 in each cluster, so metadata of another one fit, and say what is wrong:
    sound entries would look damaged, and living ledgers deleted.
    """
    if are_two_clusters(theirs, instance_id):
        raise RefusedError(
            f"{name}: is of cluster {theirs}, but the cookie of this directory is of cluster {instance_id}."
            " Metadata of another cluster say nothing about these ledgers. Name the store of this bookie's"
            " cluster, or a dump of it, with --metadata ('-c none' ignores the context)"
        )
