"""The switches of autorecovery: whether it works, the patience with lost bookies, checks done, maintenance.

Source: ``org.apache.bookkeeper.meta.ZkLedgerUnderreplicationManager``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from bkctl.codec.maintenance import Maintenance, decode_maintenance, encode_maintenance
from bkctl.codec.underreplication import (
    DISABLED,
    LOST_BOOKIE_DELAY,
    MAINTENANCE,
    CheckKind,
    check_path,
    decode_check_completed,
    decode_delay_s,
    encode_check_completed,
    encode_delay_s,
)
from bkctl.metadata.api import AlreadyExistsError
from bkctl.metadata.autorecovery_nodes import AutorecoveryNodes
from bkctl.metadata.subscription import Subscription
from bkctl.metadata.tree import NodeExistsError, NodeMissingError, require_node


class TreeSwitches(AutorecoveryNodes):
    """The switches of :class:`bkctl.metadata.autorecovery_api.Underreplication` over a tree."""

    def enabled(self) -> bool:
        if self._tree.get(self._path(DISABLED)) is not None:
            return False
        require_node(self._tree, self._root)
        return True

    def set_enabled(self, enabled: bool) -> None:
        require_node(self._tree, self._root)
        path = self._path(DISABLED)
        if enabled:
            with contextlib.suppress(NodeMissingError):
                self._tree.delete(path)
        else:
            with contextlib.suppress(NodeExistsError):
                self._tree.create_with_parents(path, b"", below=self._root)

    def lost_bookie_recovery_delay_s(self) -> int | None:
        return self._value_in_cluster(LOST_BOOKIE_DELAY, decode_delay_s)

    def lost_bookie_recovery_delay_written(self) -> tuple[int, int] | None:
        found = self._with_node(LOST_BOOKIE_DELAY, decode_delay_s)
        return None if found is None else (found[0], found[1].version)

    def set_lost_bookie_recovery_delay(self, seconds: int) -> None:
        # Java leaves this one to everybody, also in a cluster with access control.
        self._write(LOST_BOOKIE_DELAY, lambda _: encode_delay_s(seconds), open_to_all=True)

    def initial_lost_bookie_recovery_delay(self, seconds: int) -> int:
        self._write(
            LOST_BOOKIE_DELAY,
            lambda stored: encode_delay_s(seconds) if stored is None else None,
            open_to_all=True,
        )
        found = self._value(LOST_BOOKIE_DELAY, decode_delay_s)
        return seconds if found is None else found

    def checked_at(self, kind: CheckKind) -> int | None:
        return self._value_in_cluster(check_path(kind), decode_check_completed)

    def set_checked_at(self, kind: CheckKind, completed_ms: int, *, guard: str | None = None) -> None:
        self._write(check_path(kind), lambda _: encode_check_completed(completed_ms), guard=guard)

    def maintenance(self) -> tuple[Maintenance, int] | None:
        found = self._with_node(MAINTENANCE, decode_maintenance)
        return None if found is None else (found[0], found[1].version)

    def begin_maintenance(self, maintenance: Maintenance) -> None:
        require_node(self._tree, self._root)
        path = self._path(MAINTENANCE)
        try:
            self._tree.create_with_parents(path, encode_maintenance(maintenance), below=self._root)
        except NodeExistsError:
            raise AlreadyExistsError(f"{self._tree.name}: a maintenance has begun already ({path})") from None

    def end_maintenance(self, version: int) -> None:
        with contextlib.suppress(NodeMissingError):
            self._tree.delete(self._path(MAINTENANCE), version)

    def watch_enabled(self, changed: Callable[[], None]) -> Subscription:
        return self._tree.watch_node(self._path(DISABLED), changed)

    def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Subscription:
        return self._tree.watch_node(self._path(LOST_BOOKIE_DELAY), changed)
