"""Images of real bookies that run again elsewhere: metadata in a ZooKeeper, cookies for the place."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from pathlib import Path

from kazoo.client import KazooClient

from bkctl.codec.cookie import decode_cookie, encode_cookie, join_dirs
from tests.support.zookeeper import ZooKeeperServer


def load_metadata(server: ZooKeeperServer, dump: Path) -> tuple[str, KazooClient]:
    """A dump's nodes under a root of their own: the URI, and a client to change them with."""
    root = f"/ledgers-{uuid.uuid4().hex[:12]}"
    client = KazooClient(server.address)
    client.start()
    for path, node in sorted(json.loads(dump.read_text()).items()):
        if not node["ephemeral"]:
            client.create(path.replace("/ledgers", root, 1), base64.b64decode(node["data"]))
    return f"zk+hierarchical://{server.address}{root}", client


def adopt_cookies(client: KazooClient, root: str, bookie: str, folder: Path) -> None:
    """Have the cookies of a folder that was moved name the new place, as an operator would do it."""
    cookie = decode_cookie((folder / "ledgers/current/VERSION").read_bytes())
    moved = encode_cookie(
        replace(
            cookie,
            journal_dirs=str(folder / "journal"),
            ledger_dirs=join_dirs([str(folder / "ledgers")]),
        )
    )
    for name in ("journal", "ledgers"):
        (folder / name / "current/VERSION").write_bytes(moved)
    client.set(f"{root}/cookies/{bookie}", moved)
