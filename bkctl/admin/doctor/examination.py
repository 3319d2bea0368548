"""The facts that the checks are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bkctl.admin.doctor.finding import Finding
from bkctl.admin.doctor.subject import Place, Subject
from bkctl.admin.index.check.placed_entries import Stripe
from bkctl.admin.logs.digests import FindMetadata
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.config.bookie import BookieConfig
from bkctl.directories.cookie_rules import StoredCookie
from bkctl.directories.holders import Holder, holders
from bkctl.errors import NotFoundError
from bkctl.reporting import Advance, nobody
from bkctl.storage_kinds import DEFAULT, StorageKind
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Room on the file system of a directory; ``inodes_total`` 0 where it does not count them."""

    device: int
    total_bytes: int
    free_bytes: int
    inodes_total: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner (user id) and permission bits of a path."""

    user: int
    mode: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that the metadata store has about the bookie.

    ``error``: it could not be asked; then nothing else counts. ``bookie`` is the id by the configuration,
    ``stored`` the cookies under every id that it could have. ``mode`` is how it is registered: ``rw``,
    ``ro``, None when it is not.
    """

    uri: str
    bookie: str | None = None
    exists: bool = True
    instance_id: str | None = None
    stored: tuple[StoredCookie, ...] = ()
    mode: str | None = None
    error: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the store answered, and has a cluster."""
        return self.error is None and self.exists


@dataclass(frozen=True, slots=True)
class System:
    """The machine, as far as checks ask it: disks, owners, memory.

    ``disk`` and ``owner`` raise StorageError.
    """

    disk: Callable[[str], DiskFacts]
    owner: Callable[[str], Ownership]
    memory_bytes: int | None


@dataclass(slots=True)
class Examination:
    """One bookie under examination.

    ``config`` is None without a configuration (or with one that cannot be read); ``given`` are the keys that
    it sets.
    ``command_options`` are the options by which a next command finds the same configuration and cluster.
    ``users`` are the processes that use a directory, by its path, looked for once. ``unreadable`` collects
    index directories that were found unreadable, ``damaged_logs`` paths of logs, so that each is reported
    once.
    ``placed`` has the ledgers that the metadata store places on the bookie, each with the entries of closed
    ones; None when they were not asked for. ``placed_then`` has the entries that a dump places there: ledgers
    may have been deleted since, or moved.
    ``find`` looks for a ledger's metadata in the metadata store; None when there is none to ask.
    """

    filesystem: FileSystem
    system: System
    subject: Subject
    config: BookieConfig | None = None
    given: frozenset[str] = frozenset()
    cluster: ClusterFacts | None = None
    ledgers: Mapping[int, LedgerMetadata] | None = None
    metadata_file: str | None = None
    placed: Mapping[int, Sequence[Stripe]] | None = None
    placed_then: Mapping[int, Sequence[Stripe]] = field(default_factory=dict)
    find: FindMetadata | None = None
    command_options: tuple[str, ...] = ()
    deep: bool = False
    advance: Advance = nobody
    users: dict[str, list[Holder]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    damaged_logs: set[str] = field(default_factory=set)

    @property
    def kind(self) -> StorageKind:
        """The kind of storage that the configuration names; the default without one."""
        return DEFAULT if self.config is None else self.config.storage_kind

    @property
    def known_cluster(self) -> ClusterFacts | None:
        """The facts of the metadata store, None when it was not asked, did not answer or has no cluster."""
        return self.cluster if self.cluster is not None and self.cluster.is_known else None

    @property
    def is_stored(self) -> bool:
        """Whether the metadata store has a cookie of this bookie."""
        return self.known_cluster is not None and bool(self.known_cluster.stored)

    def users_of(self, place: Place) -> list[Holder]:
        """Find the processes that use a directory; none when it is gone. Raises StorageError."""
        if place.path not in self.users:
            try:
                self.users[place.path] = holders(place.path)
            except NotFoundError:
                self.users[place.path] = []
        return self.users[place.path]

    @property
    def in_use(self) -> bool:
        """Whether a process uses one of the directories. Raises StorageError."""
        return any(self.users_of(place) for place in self.subject.places if place.found is not None)


#: Findings of one check.
Run = Callable[[Examination], Iterator[Finding]]
