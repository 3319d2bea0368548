"""Releases of BookKeeper since 4.14: clients over our bookie, bookies on our directory, ours on theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bkctl.client.sync import BookKeeperSync
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import Jars
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.java_releases import jars_of
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

PASSWORD = b"secret"
ENTRIES = 10
FENCED = "-101"
_CLIENT_SECONDS = 120


class ReleasedBookie(BookieProcess):
    """A bookie whose Java is of a given release."""

    def __init__(self, folder: Path, metadata_uri: str, jars: Jars) -> None:
        super().__init__(folder, metadata_uri, "released-bookie")
        self._jars = jars

    def command(self, kind: str) -> list[str]:
        if kind == OURS:
            return super().command(kind)
        words = ("org.apache.bookkeeper.server.Main", "--conf", str(self.conf_path))
        program, *options = self._jars.quick_command(*words, log_level="WARN")
        # The release's start script says so, too: else 4.18.0 listens on the loopback of IPv6 alone.
        return [program, "-Djava.net.preferIPv4Stack=true", *options]


def written(uri: str) -> int:
    """Write a ledger with our client."""
    with BookKeeperSync(uri, metadata=SETTINGS) as client:
        with client.create(1, 1, 1, password=PASSWORD) as writer:
            for number in range(ENTRIES):
                writer.append(f"{writer.ledger}:{number}".encode())
        return writer.ledger


def assert_readable(uri: str, ledgers: list[int]) -> None:
    """Fail unless our client reads every entry of these ledgers, as it was written."""
    with BookKeeperSync(uri, metadata=SETTINGS) as client:
        for ledger in ledgers:
            reader = client.open(ledger, password=PASSWORD)
            assert [bytes(entry.payload) for entry in reader.read(0, reader.last_add_confirmed)] == [
                f"{ledger}:{number}".encode() for number in range(ENTRIES)
            ]


def told_by_client(jars: Jars, uri: str, ledger: int) -> list[list[str]]:
    """Run the release's client; the words of its lines."""
    command = jars.quick_command("org.apache.bookkeeper.bookie.OldClient", uri, str(ledger))
    done = subprocess.run(command, capture_output=True, text=True, timeout=_CLIENT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split() for line in done.stdout.splitlines()]


# Of the releases the oldest; all other tests have the newest.
@pytest.mark.parametrize(
    "version", one_kept("as of the oldest release", "4.14.7", "4.16.6", "4.17.3", "4.18.0")
)
def test_clients_bookies_and_directories_of_a_release(
    version: str,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Killed in between, so that each bookie replays the other's journal."""
    jars, uri = jars_of(version, "OldClient"), new_cluster(zookeeper_server)
    with ReleasedBookie(tmp_path / "bookie", uri, jars) as bookie:
        bookie.start(OURS)
        ours = written(uri)
        read, closed, fenced = told_by_client(jars, uri, ours)
        assert read == ["read", str(ours), str(ENTRIES)]
        assert (closed[0], closed[2:]) == ("closed", [str(ENTRIES)])
        assert (fenced[0], fenced[2:]) == ("fenced", [str(ENTRIES - 1), FENCED])
        ledgers = [ours, int(closed[1]), int(fenced[1])]
        bookie.kill()

        bookie.start(THEIRS)
        assert_readable(uri, ledgers)
        ledgers.append(written(uri))
        bookie.kill()

        bookie.start(OURS)
        assert_readable(uri, ledgers)
