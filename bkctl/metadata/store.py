"""The one metadata store: the managers put together over a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from bkctl.clock import Clock
from bkctl.codec.ledger_path import LedgerLayout
from bkctl.metadata.api import CookieStore, LayoutManager, LedgerManager, RegistrationManager
from bkctl.metadata.auditor_election import TreeAuditorElection
from bkctl.metadata.autorecovery_api import AuditorElection, Underreplication
from bkctl.metadata.cookie_store import TreeCookieStore
from bkctl.metadata.layout_manager import TreeLayoutManager
from bkctl.metadata.ledger_manager import TreeLedgerManager
from bkctl.metadata.registration import TreeRegistrationManager
from bkctl.metadata.tree import NodeTree, join, parent_of
from bkctl.metadata.tree_walk import walk
from bkctl.metadata.underreplication import TreeUnderreplication

#: Beside the ledgers root: where Pulsar's tools keep the racks of bookies.
PULSAR_RACKS = "bookies"


class TreeMetadataStore:
    """:class:`bkctl.metadata.api.MetadataStore` over a tree, which it closes.

    ``layout`` is the kind of ledger manager that the URI names, None when it leaves that to LAYOUT.
    """

    def __init__(
        self, uri: str, tree: NodeTree, root: str, layout: LedgerLayout | None, clock: Clock
    ) -> None:
        self._uri = uri
        self._tree = tree
        self._root = root
        self._layout = TreeLayoutManager(tree, root, layout)
        self._registration = TreeRegistrationManager(tree, root, clock)
        self._cookies = TreeCookieStore(tree, root)
        self._ledgers = TreeLedgerManager(tree, root, self._layout)
        self._underreplication = TreeUnderreplication(tree, root)

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def root(self) -> str:
        return self._root

    @property
    def layout(self) -> LayoutManager:
        return self._layout

    @property
    def registration(self) -> RegistrationManager:
        return self._registration

    @property
    def cookies(self) -> CookieStore:
        return self._cookies

    @property
    def ledgers(self) -> LedgerManager:
        return self._ledgers

    @property
    def underreplication(self) -> Underreplication:
        return self._underreplication

    def pulsar_rack_mapping(self) -> bytes | None:
        node = self._tree.get(join(parent_of(self._root), PULSAR_RACKS))
        return None if node is None else node.data

    def nodes_below(self, path: str) -> Iterator[tuple[str, bytes]]:
        return ((found, node.data) for found, node in walk(self._tree, path))

    def auditor_election(self, bookie: str, lost: Callable[[], None]) -> AuditorElection:
        return TreeAuditorElection(self._tree, self._root, self._registration, bookie, lost)

    def close(self) -> None:
        self._tree.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
