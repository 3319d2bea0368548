"""A bookie over databases whose directories lie apart, each on a disk of its own."""

from __future__ import annotations

from pathlib import Path

from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from tests.support.truthful_bookie import HOST, INSTANCE, TruthfulBookie

NAME = "bk server"


def take_apart(
    bookie: TruthfulBookie, disks: Path, named: str | None = None, *, name: str = NAME
) -> TruthfulBookie:
    """Move a bookie's directories to ``disks``/``j0``, ``j1``, ``l0``, ``l1``, ``i0``, ``i1``.

    The second journal directory was never used. ``named`` is what their paths begin with in the cookie,
    ``name`` the last name of each; the disk's where it is empty.
    """
    for disk in ("j0", "j1", "l0", "l1", "i0", "i1"):
        (disks / disk / name).mkdir(parents=True)
    (bookie.root / "j" / "current").rename(disks / "j0" / name / "current")
    (disks / "j1" / name / "current").mkdir()
    for number in (0, 1):
        logs, index = (disks / f"{kind}{number}" / name / "current" for kind in "li")
        bookie.current(number).rename(logs)
        index.mkdir()
        for database in ("locations", "ledgers"):
            (logs / database).rename(index / database)
        (logs / "lastMark").rename(logs / "lastMark.0")
    prefix = f"{disks}/" if named is None else named
    journals, ledgers, indexes = (
        [f"{prefix}{kind}{number}/{name}".rstrip("/") for number in (0, 1)] for kind in "jli"
    )
    cookie = Cookie(5, HOST, ",".join(journals), join_dirs(ledgers), INSTANCE, join_dirs(indexes))
    for current in disks.glob(f"*/{name}/current" if name else "*/current"):
        (current / "VERSION").write_bytes(encode_cookie(cookie))
    return bookie
