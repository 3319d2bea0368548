"""Commands of ``bookkeeper shell`` that move ledgers, bookies and indexes, beside ours.

The shell works on one bookie of a cluster and ours on another, or one after the other on the same; both leave
the same behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bkctl.config.loader import load
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import EmbeddedBookie
from tests.interop.test_shell_on_clusters import nodes, root_of
from tests.interop.test_shell_side_by_side import _configured, _write_ledgers, answers, shell
from tests.support.java_cluster import SETTINGS, new_cluster, our_bookies
from tests.support.rows import from_ndjson
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]
Run = Callable[..., Any]
#: Of a bookie that does not run.
ID = "127.0.0.1:3181"
INTERLEAVED = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"


@dataclass
class Site:
    """A cluster's URI, a folder for its bookies, and our commands on it."""

    uri: str
    folder: Path
    run_cli: Run

    def ours(self, *words: object) -> list[dict[str, Any]]:
        done = self.run_cli(*map(str, words), "-o", "ndjson", env={"BKCTL_METADATA_URI": self.uri})
        assert done.exit_code == 0, done.stderr
        return from_ndjson(done.stdout)

    def conf(self, bookie: str, number: int = 0, **keys: str) -> Path:
        """Return a configuration of one of the bookies for the shell."""
        conf = _configured(self.folder, self.uri)
        text = conf.read_text().replace("bookie0", f"bookie{number}")
        words = dict(line.split("=", 1) for line in text.splitlines())
        words |= {"bookieId": bookie, "advertisedAddress": "127.0.0.1", **keys}
        words["bookiePort"] = bookie.rpartition(":")[2]
        # Java takes a key that stands there twice for a list.
        conf.write_text("".join(f"{key}={value}\n" for key, value in words.items()))
        return conf

    def placed(self) -> dict[int, list[str]]:
        """Return the bookies of each ledger."""
        with open_metadata_store(self.uri, SETTINGS) as store:
            read = {ledger: store.ledgers.read_ledger(ledger) for ledger in store.ledgers.ledgers()}
        return {
            ledger: [name for segment in stored.metadata.segments for name in segment.bookies]
            for ledger, stored in read.items()
            if stored is not None
        }

    def places_of(self, bookie: str) -> int:
        return sum(names.count(bookie) for names in self.placed().values())


@pytest.fixture
def site(
    tmp_path: Path,
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> Site:
    return Site(new_cluster(zookeeper_server), tmp_path, run_cli)


def test_a_new_bookie(site: Site, zookeeper_server: ZooKeeperServer) -> None:  # noqa: F811
    """The shell looks whether there may be one, and its first start makes it; ours makes it."""
    conf = site.conf(ID)
    assert answers(conf, "initbookie")["initbookie"][0] == 0
    site.ours("bookie", "init", "--conf", conf)
    assert list(nodes(zookeeper_server, f"{root_of(site.uri)}/cookies")) == ["", f"/{ID}"]
    # Now there is one, for both.
    code, said = answers(conf, "initbookie")["initbookie"]
    assert code != 0, said
    assert site.run_cli("bookie", "init", "--conf", conf).exit_code == 4


def test_a_cookie_for_one_more_directory(
    site: Site,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    """The shell changes the cookies of its bookie at once; ours are changed by one start that is told so.

    Ours refuses it for DbLedgerStorage, which would not find its ledgers again.
    """
    with our_bookies(site.folder, site.uri, 2, ledgerStorageClass=INTERLEAVED) as bookies:
        ids = list(bookies)
    for number in range(2):
        (site.folder / f"bookie{number}/more/current").mkdir(parents=True)
    homes = [site.folder / f"bookie{number}" for number in range(2)]
    confs = []
    for number, (bookie, home) in enumerate(zip(ids, homes, strict=True)):
        directories = f"{home}/ledgers,{home}/more"
        conf = site.conf(bookie, number, ledgerDirectories=directories, ledgerStorageClass=INTERLEAVED)
        confs.append(conf.rename(site.folder / f"{number}.conf"))
    shell(confs[0], "updatecookie -e")
    assert site.ours("cookie", "diff", "--conf", confs[0]) == []
    assert site.run_cli("cookie", "diff", "--conf", confs[1]).exit_code == 1
    config, _ = load(str(confs[1]), {"allowStorageExpansion": "true"}, {}, working_directory="/")
    with EmbeddedBookie(config=config):
        pass
    assert site.ours("cookie", "diff", "--conf", confs[1]) == []
    cookies = nodes(zookeeper_server, f"{root_of(site.uri)}/cookies")

    def cookie(number: int) -> str:
        found = cookies[f"/{ids[number]}"].decode()
        for name in ("ledgers", "more"):
            assert (homes[number] / name / "current/VERSION").read_text() == found
        return found.replace(str(homes[number]), "HOME").replace(ids[number], "ID")

    assert cookie(0) == cookie(1)
    assert "HOME/more" in cookie(0)


@pytest.mark.thorough("runs six bookies; tests/cli/test_bookies_drain.py has it without the shell")
def test_bookies_that_are_lost_or_taken_out_of_service(
    site: Site,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    """Two are recovered, two more decommissioned: one by the shell and one by ours each time."""
    with our_bookies(
        site.folder, site.uri, 6, autoRecoveryDaemonEnabled="true", httpServerPort="0"
    ) as bookies:
        site.ours("autorecovery", "disable")
        for _ in range(3):
            _write_ledgers(site.uri)
        recovered, ours, decommissioned, drained, *_ = bookies
        conf = site.conf(drained, 3)
        bookies[recovered].stop()
        shell(conf, f"recover -f {recovered}")
        assert site.places_of(recovered) == 0
        bookies[ours].stop()
        site.ours("bookies", "recover", ours, "--yes")
        assert site.places_of(ours) == 0
        site.ours("autorecovery", "enable")
        bookies[decommissioned].stop()
        shell(conf, f"decommissionbookie -bookieid {decommissioned}")
        site.ours("bookies", "drain", drained, "--yes")
        bookies[drained].stop()
        for gone in (decommissioned, drained):
            assert site.places_of(gone) == 0
        cookies = nodes(zookeeper_server, f"{root_of(site.uri)}/cookies")
        assert not {f"/{decommissioned}", f"/{drained}"} & set(cookies)
        for ledger in site.placed():
            assert [row["entry"] for row in site.ours("ledger", "read", ledger)] == [0, 1, 2, 3, 4]


@pytest.mark.thorough("tests/cli/test_bookies_replace_id.py has it without the shell")
def test_ids_that_the_shell_has_changed_are_changed_back(site: Site) -> None:
    with our_bookies(site.folder, site.uri, 2) as bookies:
        _write_ledgers(site.uri)
        before, (one, other) = site.placed(), tuple(bookies)
        port = one.rpartition(":")[2]
        for change, other_id in (
            (f"updateBookieInLedger -sb {one} -db moved:3181", "moved:3181"),
            ("updateledgers -bookieId hostname", f"localhost:{port}"),
        ):
            conf = site.conf(one, useHostNameAsBookieID="true")
            conf.write_text(conf.read_text().replace(f"bookieId={one}\n", "").replace("advertised", "#"))
            bookies[one].stop()
            shell(conf, change)
            bookies[one].start()
            changed = {
                ledger: [other_id if name == one else name for name in names]
                for ledger, names in before.items()
            }
            assert site.placed() == changed, change
            site.ours("bookies", "replace-id", other_id, one, "--yes", "--undo-file", site.folder / other_id)
            assert site.placed() == before
        # Both ask bookies that run: the shell by writing a ledger.
        assert "succeeded" in shell(site.conf(other, 1), "bookiesanity")["bookiesanity"]
        assert {row["bookie"] for row in site.ours("bookies", "probe")} == set(bookies)


@pytest.fixture
def interleaved(site: Site) -> list[Path]:
    """Return the folders of two stopped bookies with ``.idx`` files."""
    with our_bookies(site.folder, site.uri, 2, ledgerStorageClass=INTERLEAVED):
        _write_ledgers(site.uri)
    return [site.folder / f"bookie{number}" for number in range(2)]


def test_idx_files_are_made_anew(site: Site, interleaved: list[Path]) -> None:
    bookie, _ = interleaved
    conf = site.conf(ID, ledgerStorageClass=INTERLEAVED)
    before = site.ours("index", "scan", bookie)
    assert len(before) == 15
    files = sorted((bookie / "ledgers/current").rglob("*.idx"))
    for remake in ("shell", "ours"):
        for path in files:
            path.unlink()
        if remake == "shell":
            shell(conf, "regenerate-interleaved-storage-index-file -l 0,1,2 -password ''")
        else:
            done = site.run_cli("index", "rebuild", bookie, "--storage", "idx", "--yes")
            assert done.exit_code == 1, "without an index nobody knows the last explicit LAC"
        assert site.ours("index", "scan", bookie) == before, remake


def test_storages_are_converted(site: Site, interleaved: list[Path]) -> None:
    """The shell converts one bookie to and fro, and ours the other."""
    theirs, mine = interleaved

    def rows(place: Path) -> list[tuple[object, ...]]:
        found = site.ours("index", "scan", place)
        return [tuple(row[key] for key in ("ledger", "entry", "log_id", "offset")) for row in found]

    before = rows(theirs), rows(mine)
    assert len(before[0]) == 15
    for to, verb in (("db", "convert-to-db-storage"), ("interleaved", "convert-to-interleaved-storage")):
        shell(site.conf(ID), verb)
        site.ours("bookie", "convert", "--to", to, "--conf", site.conf(ID, 1), "--yes")
        assert (rows(theirs), rows(mine)) == before, to
