"""Entry logs in quarantine: ``bkctl-quarantine/<hex id>.log`` with a manifest, in a ledger directory's files.

No bookie looks there: a log in quarantine is gone for ours and for Java's, whose index rows stay as they are,
so that a read of an entry in it fails and never is "no such entry".
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import join

from bkctl.codec.entrylog import log_name, parse_log_name
from bkctl.codec.quarantine_manifest import QuarantineManifest, decode_manifest, manifest_name
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.scan.directory import QUARANTINE_NAME, LogFile, read_small
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class QuarantinedLog:
    """A log in quarantine; ``manifest`` is None where there is none that can be read."""

    log: LogFile
    manifest: QuarantineManifest | None

    @property
    def is_salvaged(self) -> bool:
        """Whether what it has was copied to another log, so that it is only kept."""
        return self.manifest is not None and self.manifest.salvaged


def quarantined_logs(fs: FileSystem, current_dir: str) -> list[QuarantinedLog]:
    """Return the logs in quarantine of a ledger directory, by their ids. Raises StorageError."""
    folder = join(current_dir, QUARANTINE_NAME)
    status = fs.status(folder)
    if status is None or not status.is_dir:
        return []
    found = []
    for name in fs.names(folder):
        log_id = parse_log_name(name)
        if log_id is None or name != log_name(log_id):
            continue
        facts = fs.status(join(folder, name))
        log = LogFile(join(folder, name), log_id, facts.size_bytes if facts else 0)
        found.append(QuarantinedLog(log, _manifest(fs, join(folder, manifest_name(log_id)), log_id)))
    return sorted(found, key=lambda each: each.log.log_id)


def _manifest(fs: FileSystem, path: str, log_id: int) -> QuarantineManifest | None:
    try:
        manifest = decode_manifest(read_small(fs, path))
    except (CorruptionError, NotFoundError):
        return None
    return manifest if manifest.log_id == log_id else None
