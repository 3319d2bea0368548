"""Bookies of ours and of Java's are damaged at random, and made whole by ``repair plan`` and ``repair run``.

``BKCTL_PLAN_SEEDS`` is how many seeds are tried, for ``make soak SOAK=plan``; ``BKCTL_SOAK_SEED`` the first.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import RefusedError
from tests.support.cluster_damage import DAMAGES, Disks, flip_bits
from tests.support.java_client import entry_of, payload
from tests.support.java_cluster import OURS
from tests.support.mixed_cluster import ENTRIES, KINDS, PLACES_OF_TWO, SIZE, MixedCluster, mixed_cluster
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.thorough("starts five bookies; tests/cli/test_repair_plan.py has each step"),
    pytest.mark.interop,
    pytest.mark.timeout(0 if "BKCTL_PLAN_SEEDS" in os.environ else 290),
]

Run = Callable[..., Any]

SEEDS = int(os.environ.get("BKCTL_PLAN_SEEDS") or 8)
FIRST_SEED = int(os.environ.get("BKCTL_SOAK_SEED") or 1)
#: A repair brings further damage to light; more plans than this would go in circles.
PLANS_MAX = 5
#: Ledger id and entry id, and the signs of both: no id is negative.
IDS_BYTES = 16
SIGN_BITS = (1 << 127, 1 << 63)
#: Losses are tried with so many seeds for one hundred of the others, and with one at least.
LOSS_SEEDS = max(1, SEEDS * 6 // 100)
#: Seeds behind which all bookies are stopped and audited.
SEEDS_BETWEEN_AUDITS = 20


@pytest.fixture(scope="module")
def cluster(
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedCluster]:
    with mixed_cluster(zookeeper_server, tmp_path_factory.mktemp("planned")) as made:
        yield made


@pytest.fixture(autouse=True)
def commands_in_this_process(run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each command of a plan would take most of the time."""

    def run(words: Sequence[str], directory: str | None = None) -> int:
        assert directory is None, "every path of these bookies is absolute"
        done = run_cli(*words[1:])
        # What a step says of single ledgers is wanted where it is not done.
        sys.stderr.write(done.stdout + done.stderr if done.exit_code not in (0, 1) else done.stderr)
        return int(done.exit_code)

    def read(words: Sequence[str]) -> tuple[int, bytes]:
        done = run_cli(*words[1:])
        return int(done.exit_code), done.stdout.encode()

    monkeypatch.setattr("bkctl.commands.repair.run.run_own_command", run)
    monkeypatch.setattr("bkctl.commands.repair.plan.read_own_command", read)


def plan_and_run(run_cli: Run, cluster: MixedCluster, bookie: str, disks: Disks, folder: Path) -> list[str]:
    """Make plans for a stopped bookie and carry them out until there is nothing to plan; return all steps."""
    conf, steps = cluster.configuration(bookie), list[str]()
    options = [word for home in disks.lost for word in ("--lost-disk", home)]
    for number in range(PLANS_MAX):
        plan = folder / f"plan-{number}.json"
        words = ("--conf", conf, "--metadata", cluster.uri, "--deep", "--out", plan, *options, "-o", "json")
        planned = run_cli("repair", "plan", *words)
        if planned.exit_code == 0:
            return steps
        assert planned.exit_code in (1, 3), (steps, planned.stdout, planned.stderr)
        rows = json.loads(planned.stdout)
        steps += [row["line"] for row in rows if row["number"]]
        options = []
        ended = run_cli("repair", "run", plan, "--yes", "-o", "json")
        if ended.exit_code != 0 and "start it" in ended.stderr:
            # Java's cannot leave limbo while it runs: one of ours runs on its directories meanwhile.
            try:
                cluster.start(bookie, OURS)
            except RefusedError:
                continue  # what it is refused for is in the next plan
            ended = run_cli("repair", "run", plan, "--yes", "-o", "json")
            cluster.stop(bookie)
        # 1 and 3 say what is lost or not proved: the audit at the end sees whether it has come back.
        if ended.exit_code not in (0, 1, 3) or "is not done" in ended.stderr:
            pytest.fail(f"{bookie}: {steps}\n{ended.stdout}\n{ended.stderr}")
    raise AssertionError(f"after {PLANS_MAX} plans there is still something to do: {steps}, {rows}")


def audited(run_cli: Run, cluster: MixedCluster, folder: Path) -> Any:
    """Return the verdict of the audit over the files of all bookies, which are stopped for it."""
    cluster.stop_all()
    homes = [cluster.home(bookie) for bookie in KINDS]
    words = ("--metadata", cluster.uri, "--out", folder / "audit", "-o", "json")
    done = run_cli("pipeline", "run", "replication-audit", *homes, *words)
    shutil.rmtree(folder / "audit", ignore_errors=True)
    for bookie in KINDS:
        cluster.start(bookie)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["verdict"]


def test_every_acknowledged_entry_is_on_every_bookie_again(
    run_cli: Run, cluster: MixedCluster, tmp_path: Path
) -> None:
    for number, seed in enumerate(range(FIRST_SEED, FIRST_SEED + SEEDS), 1):
        chance = random.Random(seed)
        # Of each entry one replica is whole: ledgers with two have only one of these bookies.
        victims = [chance.choice(sorted(place)) for place in PLACES_OF_TWO]
        victims = victims if chance.random() < 0.7 else [chance.choice(victims)]
        damages = {
            bookie: chance.choices(sorted(DAMAGES), k=chance.choice((1, 1, 2, 3))) for bookie in victims
        }
        print(f"seed {seed}: {damages}", flush=True)
        disks = {}
        for bookie, names in damages.items():
            cluster.put_back(bookie)
            disks[bookie] = Disks(cluster.home(bookie) / "journal", cluster.ledger_directories(bookie))
            for name in names:
                DAMAGES[name](disks[bookie], chance)
        for bookie in victims:
            folder = tmp_path / f"{seed}-{bookie}"
            folder.mkdir()
            steps = plan_and_run(run_cli, cluster, bookie, disks[bookie], folder)
            shutil.rmtree(folder)
            # What is read now comes from the disks, and Java's bookies are Java's again.
            conf = cluster.configuration(bookie)
            healthy = run_cli("doctor", "--conf", conf, "--metadata", cluster.uri, "--deep")
            assert (healthy.exit_code, healthy.stdout) == (0, ""), (
                seed,
                steps,
                healthy.stdout,
                healthy.stderr,
            )
            cluster.start(bookie)
            try:
                cluster.assert_whole(bookie)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}; {steps}") from error
        if number % SEEDS_BETWEEN_AUDITS == 0 or number == SEEDS:
            assert audited(run_cli, cluster, tmp_path) == "clean", seed


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + LOSS_SEEDS))
def test_what_no_replica_has_any_more_is_listed_and_nothing_else(
    run_cli: Run, cluster: MixedCluster, tmp_path: Path, seed: int
) -> None:
    """All bookies of some ledgers are damaged."""
    chance = random.Random(seed)
    place = sorted(chance.choice(PLACES_OF_TWO))
    disks = {}
    # A test that failed in front of this one has left damage.
    for bookie in KINDS:
        cluster.put_back(bookie)
        if bookie not in place:
            cluster.start(bookie)
    for bookie in place:
        # Behind an orderly end everything is in the logs, and no journal has a second copy.
        cluster.start(bookie, OURS)
        cluster.stop(bookie)
        disks[bookie] = Disks(cluster.home(bookie) / "journal", cluster.ledger_directories(bookie))
        for path in (*disks[bookie].journals(), *disks[bookie].marks()):
            path.unlink()
    whole = {bookie: entries_in(cluster, disks[bookie]) for bookie in place}
    for bookie in place:
        for _ in range(6):
            flip_bits(disks[bookie], chance)
    left = {bookie: entries_in(cluster, disks[bookie], whole[bookie]) for bookie in place}
    found = {bookie: [path.read_bytes() for path in disks[bookie].logs()] for bookie in place}
    wanted = sorted(
        (ledger, entry)
        for ledger, written in cluster.ledgers.items()
        for entry in range(ENTRIES)
        if all(
            entry not in written.entries_on(bookie)
            or (bookie in place and (ledger, entry) not in left[bookie])
            for bookie in written.members
        )
    )
    assert wanted, "a seed that loses nothing shows nothing"
    for bookie in place:
        repaired_while_stopped(run_cli, cluster, bookie, tmp_path)
    for bookie in place:
        cluster.start(bookie, OURS)
    losses, ledgers = tmp_path / "losses.json", sorted(cluster.ledgers)
    words = ("--losses", losses, "--yes", "-o", "json", "--metadata", cluster.uri)
    done = run_cli("ledger", "repair", *ledgers, *words)
    assert done.exit_code == 3, done.stderr
    listed = sorted(
        (row["ledger"], entry)
        for row in json.loads(losses.read_text())["losses"]
        for first, last in row["entries"]
        for entry in range(first, last + 1)
    )
    assert listed == wanted, copies_of(set(listed) ^ set(wanted), whole, found)
    lost = set(wanted)
    for ledger, written in cluster.ledgers.items():
        assert cluster.client.metadata(ledger).last_entry == ENTRIES - 1
        opened = cluster.client.open(ledger, written.digest)
        for entry in range(ENTRIES):
            if (ledger, entry) not in lost:
                assert opened.read(entry, entry) == [entry_of(ledger, entry, SIZE)]
        opened.close()
    for bookie in place:
        cluster.put_back(bookie)
        cluster.start(bookie)


def copies_of(
    entries: set[tuple[int, int]],
    whole: dict[str, dict[tuple[int, int], bytes]],
    logs: dict[str, list[bytes]],
) -> str:
    """Say how many whole copies of some entries each log of the damaged bookies had."""
    lines = [
        f"{key} on {bookie}: {[log.count(frames[key]) for log in logs[bookie]]} copies in its logs"
        for key in sorted(entries)
        for bookie, frames in whole.items()
        if key in frames
    ]
    return "\n".join(["the lists differ:", *lines])


def repaired_while_stopped(run_cli: Run, cluster: MixedCluster, bookie: str, folder: Path) -> None:
    """Make and run plans until nothing in them needs the bookie stopped; what is lost stays in them."""
    words = ("--conf", cluster.configuration(bookie), "--metadata", cluster.uri, "--deep", "-o", "json")
    for number in range(PLANS_MAX):
        plan = folder / f"{bookie}-{number}.json"
        rows = json.loads(run_cli("repair", "plan", *words, "--out", plan).stdout)
        if not any(row["needs"] == "stopped" for row in rows):
            return
        run_cli("repair", "run", plan, "--yes")
    raise AssertionError(f"after {PLANS_MAX} plans there is still something to do: {rows}")


def entries_in(
    cluster: MixedCluster, disks: Disks, frames: dict[tuple[int, int], bytes] | None = None
) -> dict[tuple[int, int], bytes]:
    """Return the entries that stand in the logs with their headers and digests, of ``frames`` if given.

    The size word does not count: where it alone is damaged the digest proves the entry, and a salvage has it.
    Nor does one bit of the ids. The metadata have the passwords of MAC digests.
    """
    content = b"".join(path.read_bytes() for path in disks.logs())
    if frames is not None:
        return {
            key: frame
            for key, frame in frames.items()
            if frame in content or differs_by_one_bit_of_an_id(frame, content)
        }
    found = {}
    for ledger, written in cluster.ledgers.items():
        head = 32 + {"CRC32": 8, "CRC32C": 4, "MAC": 20}[written.digest]
        for entry in range(ENTRIES):
            at = content.find(payload(ledger, entry, SIZE))
            if at >= 0:
                found[ledger, entry] = content[at - head : at + SIZE]
    return found


def differs_by_one_bit_of_an_id(frame: bytes, content: bytes) -> bool:
    """Return whether a record stands in some bytes with a flipped bit in one of its ids, not the sign's."""
    at = content.find(frame[IDS_BYTES:])
    while at >= IDS_BYTES:
        flipped = int.from_bytes(frame[:IDS_BYTES]) ^ int.from_bytes(content[at - IDS_BYTES : at])
        if flipped.bit_count() == 1 and flipped not in SIGN_BITS:
            return True
        at = content.find(frame[IDS_BYTES:], at + 1)
    return False
