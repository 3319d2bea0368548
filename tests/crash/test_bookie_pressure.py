"""Slow and full disks: memory under its bounds, the right codes, nothing lost, service back by itself."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.bookie_process import BookieProcess
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.grades import one_kept
from tests.support.served_engine import ServedEngine
from tests.support.waiting import WAIT_S, until
from tests.support.wire_client import WireClient, add_request

MIB = 1 << 20
#: Entries that are read all the time, more than fit into the caches.
READ = 1200


class Flood:
    """One client that always has a window of adds outstanding, to a ledger of its own."""

    def __init__(self, port: int, ledger: int, payload: bytes, window: int) -> None:
        self.acknowledged: list[int] = []
        self.codes: Counter[ResultCode] = Counter()
        self.errors: list[BaseException] = []
        self._ended = threading.Event()
        self._client = WireClient(port, Wire.V2)
        self._ledger = ledger
        self._payload = payload
        self._window = window
        self._thread = threading.Thread(target=self._run, name=f"flood-{ledger}")
        self._thread.start()

    def _run(self) -> None:
        try:
            entry = 0
            while not self._ended.is_set() or self._client.connection.outstanding:
                count = 0 if self._ended.is_set() else self._window - self._client.connection.outstanding
                adds = range(entry, entry + count)
                self._client.send([(add_request(self._ledger, each, self._payload), each) for each in adds])
                entry += count
                for answer in self._client.receive():
                    code = answer.response.code  # type: ignore[attr-defined]
                    self.codes[code] += 1
                    if code is ResultCode.OK:
                        assert isinstance(answer.context, int)
                        self.acknowledged.append(answer.context)
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the test tells
            self.errors.append(error)
        finally:
            self._client.close()

    def end(self) -> None:
        """Wait for what is outstanding."""
        self._ended.set()
        self._thread.join()
        assert not self.errors, self.errors


class Reader:
    """A client that reads the same entries again and again, in random order; whatever it gets but them."""

    def __init__(self, port: int, ledger: int, payload: bytes, count: int) -> None:
        self.good = 0
        self.wrong: list[object] = []
        self._ended = threading.Event()
        self._arguments = (port, ledger, payload, count)
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        port, ledger, payload, count = self._arguments
        chance = random.Random(ledger)
        try:
            with WireClient(port, Wire.V2) as client:
                while not self._ended.is_set():
                    entries = chance.sample(range(count), 50)
                    client.send([(ReadRequest(ledger, entry), entry) for entry in entries])
                    for answer in client.receive_all():
                        assert isinstance(answer.context, int)
                        if answer.response.body == entry_body(ledger, answer.context, payload):  # type: ignore[attr-defined]
                            self.good += 1
                        else:
                            self.wrong.append(answer.response)
        except Exception as error:  # noqa: BLE001 - the top of a thread: the test tells
            self.wrong.append(error)

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()


class HeldBytes:
    """The most that the parts of a bookie held at any moment that was looked at."""

    def __init__(self, rig: EngineRig, served: ServedEngine) -> None:
        self.most: dict[str, int] = {}
        self._rig = rig
        self._served = served

    def look(self) -> None:
        """Look once."""
        bookie = self._rig.bookie
        caches = bookie.storages[0].caches
        flushing = caches.flushing
        now = {
            "active": caches.active.size_bytes,
            "flushing": 0 if flushing is None else flushing.size_bytes,
            "held": bookie.writes._held.size_bytes,
            "journal": sum(journal._queue._bytes for journal in bookie.journals),
            "adds": self._served.server.adds.meter.length,
        }
        for name, value in now.items():
            self.most[name] = max(value, self.most.get(name, 0))


@pytest.mark.parametrize("slow", one_kept("one of both disks", "both", "journal", "flush"))
def test_a_slow_disk_costs_no_memory_and_is_got_over(slow: str) -> None:
    journal = JournalSettings(preallocation_bytes=0, queue_bytes_max=MIB, queue_entries_max=2000)
    writes = HeldAddsSettings(held_entries_max=200, held_bytes_max=MIB // 2)
    rig = EngineRig(
        small_settings(write_cache_bytes=2 * MIB, journal=journal, writes=writes, throttle_ms_max=100)
    )
    with ServedEngine(rig, NetworkSettings(adds_in_progress_max=2000)) as served:
        if slow != "flush":
            rig.system.inject(FaultRule("sync", ".txn", latency_s=0.15, error_number=None))
        if slow != "journal":
            rig.system.inject(FaultRule("sync", ".log", latency_s=0.6, error_number=None))
        held = HeldBytes(rig, served)
        floods = [Flood(served.port, ledger, bytes(4000), 800) for ledger in range(1, 5)]
        ends_s = time.monotonic() + 2.5

        def is_enough() -> bool:
            # On a slow machine it takes longer until the first one is refused.
            is_refused = slow == "journal" or any(
                flood.codes[ResultCode.TOO_MANY_REQUESTS] for flood in floods
            )
            return time.monotonic() > ends_s + (0 if is_refused else WAIT_S)

        while not is_enough():
            held.look()
            # The engine's clock is a manual one: adds are held for as long as it says.
            rig.clock.advance(0.01)
            rig.bookie.writes.poke()
            time.sleep(0.01)
        rig.system.heal()
        for flood in floods:
            flood.end()
        codes = sum((flood.codes for flood in floods), Counter[ResultCode]())
        assert set(codes) <= {ResultCode.OK, ResultCode.TOO_MANY_REQUESTS}
        if slow != "journal":
            assert codes[ResultCode.TOO_MANY_REQUESTS], "nothing was refused"
        # A run of one packet may go over a bound that was not reached before.
        packet = MIB // 2
        assert held.most["active"] <= MIB + packet
        assert held.most["flushing"] <= MIB + packet
        assert held.most["held"] <= MIB // 2 + packet
        assert held.most["journal"] <= MIB + packet
        assert held.most["adds"] <= 2000 + 4 * 70
        with WireClient(served.port) as client:
            assert client.add(1, 1 << 30) is ResultCode.OK
            for ledger, flood in enumerate(floods, 1):
                client.send([(ReadRequest(ledger, entry), entry) for entry in flood.acknowledged])
                for answer in client.receive_all():
                    assert isinstance(answer.context, int)
                    assert answer.response.code is ResultCode.OK  # type: ignore[attr-defined]
        with rig.cut_off() as after:
            after.start()
            for ledger, flood in enumerate(floods, 1):
                for entry in flood.acknowledged:
                    assert after.bookie.reads.read(ledger, entry) == entry_body(ledger, entry, bytes(4000))


MOUNTED = 'mkdir -p "$1" && mount -t tmpfs -o size=40m tmpfs "$1" && shift && exec "$@"'


def test_a_full_disk_of_a_real_bookie(tmp_path: Path) -> None:
    """On a mount of 40 MB: full while it writes, read-only, room again, writable; then the same once more."""
    probe = ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(tmp_path / "probe"), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no mounts in a user namespace here")
    disk = tmp_path / "disk"
    keys = {
        "journalDirectories": str(disk / "journal"),
        "ledgerDirectories": str(disk / "ledgers"),
        "diskCheckInterval": "200",
    }
    inside = ("unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(disk))
    with BookieProcess(tmp_path, keys, inside=inside) as bookie:
        port = int(str(bookie.start()["port"]))
        seen = Path(f"/proc/{bookie.process_id}/root{disk}")
        kept: dict[int, list[int]] = {}
        payload = bytes(range(256)) * 20
        with WireClient(port) as client:
            assert all(client.add(99, entry, payload) is ResultCode.OK for entry in range(READ))
        reader = Reader(port, 99, payload, READ)
        for turn in range(2):
            ballast = seen / "ballast"
            free = shutil.disk_usage(seen).free
            ballast.write_bytes(bytes(max(0, free - 6 * MIB)))
            flood = Flood(port, 100 + turn, payload, 100)
            until(lambda flood=flood: flood.codes[ResultCode.READ_ONLY] > 0, "the disk does not get full")  # type: ignore[misc]
            flood.end()
            assert set(flood.codes) <= {ResultCode.OK, ResultCode.READ_ONLY, ResultCode.TOO_MANY_REQUESTS}
            assert bookie.is_running
            assert flood.acknowledged
            kept[100 + turn] = flood.acknowledged
            check_kept(port, kept, payload)
            ballast.unlink()

            def takes_adds(ledger: int = 200 + turn) -> bool:
                with WireClient(port) as client:
                    return client.add(ledger, 0) is ResultCode.OK

            until(takes_adds, bookie.log.read_text()[-3000:])
            check_kept(port, kept, payload)
        reader.end()
        assert reader.good > READ
        assert not reader.wrong
        assert bookie.resident_bytes < 400 * MIB
        assert bookie.stop() == 0
    assert "Traceback" not in bookie.log.read_text()


def check_kept(port: int, kept: dict[int, list[int]], payload: bytes) -> None:
    with WireClient(port, Wire.V2) as client:
        for ledger, entries in kept.items():
            client.send([(ReadRequest(ledger, entry), entry) for entry in entries])
            for answer in client.receive_all():
                assert isinstance(answer.context, int)
                body = answer.response.body  # type: ignore[attr-defined]
                assert body == entry_body(ledger, answer.context, payload), answer.response
