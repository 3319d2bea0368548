"""Refusals of ``gc run``: where live entries would look dead, and where a deletion is likely a mistake."""

from __future__ import annotations

from bkctl.admin.gc.survey import Survey
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc import policy
from bkctl.errors import RefusedError
from bkctl.reporting import counted
from bkctl.scan.ledger_places import place_of_most
from bkctl.scan.ledgers_of_logs import ledgers_of_logs
from bkctl.vfs import WritableFileSystem

_SETTINGS = GcSettings()


def refuse_incomplete_index(found: Survey) -> None:
    """Raise RefusedError where the index may lack rows: an entry without one would look dead."""
    where, way_out = found.space.dir, "nothing was removed"
    has_logs = any(log.size_bytes for log in found.space.logs)
    if has_logs and (found.index_is_lost or not found.space.index_dirs):
        raise RefusedError(
            f"{where}: the ledger index has no row, so every entry in"
            f" {counted(len(found.space.logs), 'log')} would look dead; {way_out}. Rebuild the index ('bkctl"
            " index rebuild --all'). If these ledgers were deleted, prove it with --metadata"
        )
    if found.unseen is not None:
        raise RefusedError(f"{where}: {found.unseen}; {way_out}")
    if found.rebuilds:
        raise RefusedError(
            f"{found.rebuilds[0]}: a rebuild of the index has begun and has not ended; {way_out}. Run it to "
            "its end, or move this directory away"
        )
    if found.index.damage:
        damage = found.index.damage[0]
        raise RefusedError(
            f"{damage.path}: row {damage.key_hex}: {damage.reason}; {way_out}. Run 'bkctl index rebuild "
            "--ledgers'"
        )
    if found.index.needs_integrity_check:
        raise RefusedError(
            f"{where}: is marked for a data integrity check, so its index is not complete; {way_out}. Start "
            "the bookie once"
        )
    if found.unreplayed.damage:
        damage_place = found.unreplayed.damage[0]
        raise RefusedError(
            f"{damage_place.path}: damage at {damage_place.offset}, after the last mark, so it is not known "
            f"which ledgers the journals bring back; {way_out}. Run 'bkctl journal verify'"
        )
    if found.dirty and not found.unreplayed.journals_found:
        raise RefusedError(
            f"{where}: its bookie did not shut down cleanly, and its journals were not found; {way_out}. "
            "Name the journal directory, too, or start the bookie once"
        )


def refuse_exchanged_logs(filesystem: WritableFileSystem, found: Survey) -> None:
    """Raise RefusedError when the logs are those of another ledger directory: no row here speaks for them.

    A conversion leaves such logs, too, beside those that its rows speak for.
    """
    space = found.space
    if space.position is None or space.directories < 2:
        return
    home = place_of_most(ledgers_of_logs(filesystem, space.logs), space.directories)
    if home in (None, space.position):
        return
    if found.index.ledgers.isdisjoint(ledgers_of_logs(filesystem, space.logs, len(space.logs))):
        raise RefusedError(
            f"{space.log_dirs[0]}: its logs hold ledgers of directory {home} of the cookie's list, but this "
            f"is directory {space.position} (counted from 0), so every entry would look dead; nothing was "
            "removed. Mount each disk where its ledgers belong"
        )


def refuse_unproved_deletions(found: Survey) -> None:
    """Raise RefusedError when the metadata that are to prove ledgers gone prove nothing."""
    known = found.known
    if known.unproved is not None:
        raise RefusedError(f"{found.space.dir}: {known.unproved}; nothing was removed")
    if known.rolled_back is not None:
        raise RefusedError(
            f"{found.space.dir}: {known.rolled_back}; nothing was removed. If such ledgers were really"
            " deleted, add --confirm-deletions"
        )


def refuse_many_deletions(found: Survey, gone: list[int]) -> None:
    """Raise RefusedError where so many ledgers would go that a mistake is likelier."""
    rows = len(found.index.ledgers)
    if policy.too_many(len(gone), rows, _SETTINGS):
        raise RefusedError(
            f"{found.space.dir}: {len(gone)} of {counted(rows, 'ledger')} of the index are not in the "
            "metadata. If they really were deleted, add --confirm-deletions. If not, these are the "
            "metadata of another cluster, or were emptied"
        )
    unknown = len(found.dead.difference(found.index.ledgers))
    if not found.known.tells_all and policy.too_many(unknown, rows + unknown, _SETTINGS):
        raise RefusedError(
            f"{found.space.dir}: the logs hold {counted(unknown, 'ledger')} that the index does not know, "
            f"and it knows {rows}. Give --metadata, so that no entry is removed because of a lost index, or "
            "add --confirm-deletions"
        )
