"""A real bookie's directories, moved: configuration, cookies and metadata say where they lie now."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie, join_dirs
from bkctl.metadata.uri import open_metadata_store
from tests.support.stored_metadata import create_ledgers

#: Of the disk that tests run on nothing is to be said.
_DISKS = "diskUsageThreshold=0.99\ndiskUsageWarnThreshold=0.99\n"


@dataclass
class DoctoredBookie:
    """``root`` holds ``journal``, ``ledgers``, ``bk_server.conf`` and the embedded metadata."""

    root: Path
    uri: str
    cookie: Cookie
    source_dump: Path

    @classmethod
    def of(cls, source: Path, root: Path, metadata_file: Path | None = None) -> DoctoredBookie:
        """A copy of a bookie with one journal and one ledger directory, stopped in order.

        The ledgers' metadata is that of a dump, the ``zk.json`` beside the bookie unless another is named.
        """
        root.mkdir(parents=True)
        for name in ("journal", "ledgers"):
            shutil.copytree(source / name, root / name)
        (root / "ledgers/current/DIRTY").unlink(missing_ok=True)
        uri = f"embedded://{root}/metadata.db"
        with open_metadata_store(uri) as store:
            instance = store.layout.initialise_cluster()
            old = decode_cookie((root / "ledgers/current/VERSION").read_bytes())
            cookie = replace(
                old,
                journal_dirs=str(root / "journal"),
                ledger_dirs=join_dirs([str(root / "ledgers")]),
                instance_id=instance,
            )
            store.cookies.create_cookie(cookie.bookie_host, encode_cookie(cookie))
            create_ledgers(store, dump := metadata_file or source.parent / "zk.json")
        bookie = cls(root, uri, cookie, dump)
        for name in ("journal", "ledgers"):
            bookie.stamp(name, cookie)
        bookie.configure(_adapted((source / "bk_server.conf").read_text()))
        return bookie

    @property
    def dump(self) -> Path:
        """A dump of the bookie's cluster: that of the source, under this cluster's instance id."""
        assert self.cookie.instance_id is not None, "the cluster has one"
        nodes = json.loads(self.source_dump.read_text())
        instance = base64.b64encode(self.cookie.instance_id.encode()).decode()
        nodes["/ledgers/INSTANCEID"] = {"data": instance, "version": 0, "ephemeral": False}
        path = self.root.parent / f"{self.root.name}-zk.json"
        path.write_text(json.dumps(nodes))
        return path

    @property
    def conf(self) -> Path:
        return self.root / "bk_server.conf"

    @property
    def journal(self) -> Path:
        return self.root / "journal/current"

    @property
    def ledgers(self) -> Path:
        return self.root / "ledgers/current"

    def stamp(self, name: str, cookie: Cookie) -> None:
        """Give a directory a cookie."""
        (self.root / name / "current/VERSION").write_bytes(encode_cookie(cookie))

    def configure(self, lines: str) -> None:
        """Write the configuration: where things are, and these lines."""
        self.conf.write_text(
            f"journalDirectories={self.root}/journal\nledgerDirectories={self.root}/ledgers\n"
            f"metadataServiceUri={self.uri}\n{_DISKS}{lines}"
        )

    def change_store(self, change: Callable[[Cookie], Cookie | None]) -> None:
        """Change the stored cookie, or remove it."""
        bookie = self.cookie.bookie_host
        with open_metadata_store(self.uri) as store:
            stored = store.cookies.read_cookie(bookie)
            assert stored is not None
            new = change(decode_cookie(stored.data))
            if new is None:
                store.cookies.delete_cookie(bookie, stored.version)
            else:
                store.cookies.update_cookie(bookie, encode_cookie(new), stored.version)


def _adapted(conf: str) -> str:
    """The lines of a configuration that do not depend on the place."""
    places = ("journalDir", "ledgerDir", "metadataServiceUri", "diskUsage")
    return "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith(places))
