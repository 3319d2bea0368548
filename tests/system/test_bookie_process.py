"""A bookie as an operator has it: started from a shell, signalled, killed, started again, refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.metadata.uri import open_metadata_store
from tests import demo
from tests.demo_client import DemoClient, body_of
from tests.support.bookie_command import BookieCommand, refused_start

LEDGER = 5
SIZE = 300


def current(directory: Path, kind: str = "ledgers") -> Path:
    return directory / "bkctl-data" / kind / "current"


def journals(directory: Path) -> list[Path]:
    return sorted(current(directory, "journal").glob("*.txn"))


def write(port: int, numbers: range) -> None:
    with DemoClient(port) as client:
        outcome = client.add(LEDGER, numbers, size_bytes=SIZE)
    assert outcome.done == list(numbers)


def read_all(port: int, numbers: range) -> None:
    with DemoClient(port) as client:
        outcome = client.read(LEDGER, numbers)
    assert outcome.bodies == {number: body_of(LEDGER, number, SIZE) for number in numbers}


def test_a_first_start_needs_nothing_and_sigterm_leaves_a_clean_bookie(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        assert (bookie.row["new"], bookie.row["unclean"], bookie.row["damages"]) == (True, False, 0)
        assert bookie.row["bookie"] == f"127.0.0.1:{bookie.port}"
        assert (current(tmp_path) / "DIRTY").exists()
        write(bookie.port, range(20))
        assert bookie.end(signal.SIGTERM) == 0
        first = bookie.port
    said = [line.get("event", line["message"]) for line in bookie.log]
    assert said == ["starting", "serving", "stopping", "stopped"]
    assert {line["level"] for line in bookie.log} == {"info"}
    assert not (current(tmp_path) / "DIRTY").exists()
    with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as metadata:
        assert metadata.registration.bookies().writable == ()
        assert metadata.cookies.cookie_bookies() == [f"127.0.0.1:{first}"]
    with BookieCommand(tmp_path) as again:
        # The port, chosen by the system, is part of the id and stays.
        assert again.port == first
        assert (again.row["new"], again.row["unclean"], again.row["entries"]) == (False, False, 0)
        read_all(again.port, range(20))


def test_ctrl_c_ends_with_130_and_one_that_comes_twice_does_no_harm(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        write(bookie.port, range(5))
        assert bookie.end(signal.SIGINT, signal.SIGINT) == 130
    assert not (current(tmp_path) / "DIRTY").exists()
    assert bookie.log[-1]["message"] == "stopped"


def test_after_kill_9_every_acknowledged_entry_is_there(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        write(bookie.port, range(300))
        assert bookie.end(signal.SIGKILL) == -signal.SIGKILL
    with BookieCommand(tmp_path) as again:
        assert (again.row["unclean"], again.row["journals"], again.row["entries"]) == (True, 1, 300)
        read_all(again.port, range(300))


def test_ledger_disks_in_each_others_place_are_refused(tmp_path: Path) -> None:
    keys = {"ledgerDirectories": f"{tmp_path}/l0,{tmp_path}/l1"}
    with BookieCommand(tmp_path, **keys) as bookie:
        with DemoClient(bookie.port) as client:
            for ledger in (LEDGER, LEDGER + 1):
                assert client.add(ledger, range(10), size_bytes=SIZE).done == list(range(10))
        assert bookie.end(signal.SIGTERM) == 0
    exchange(tmp_path / "l0", tmp_path / "l1")
    for words in ((), ("--accept-loss",)):
        code, message = refused_start(tmp_path, *words, **keys)
        assert code == 4
        assert f"{tmp_path}/l0 holds the ledgers of {tmp_path}/l1 (ledger {LEDGER} is one)" in message
        assert "Mount each disk where its ledgers belong" in message
    exchange(tmp_path / "l0", tmp_path / "l1")
    with BookieCommand(tmp_path, **keys) as again:
        assert (again.row["unclean"], again.row["entries"]) == (False, 0)
        read_all(again.port, range(10))


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_a_damaged_journal_refuses_the_start_until_the_loss_is_accepted(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        write(bookie.port, range(10))
        bookie.end(signal.SIGKILL)
    (damaged,) = journals(tmp_path)
    number = parse_journal_name(damaged.name)
    assert number is not None
    content = bytearray(damaged.read_bytes())
    # A newer file behind it: a hole here is no tail of a power cut.
    (damaged.parent / journal_name(number + 1)).write_bytes(content[:512])
    at = content.index(body_of(LEDGER, 4, SIZE)) - 4
    content[at : at + 200] = b"\xff" * 200
    damaged.write_bytes(content)
    before = {path.name: path.read_bytes() for path in journals(tmp_path)}
    code, message = refused_start(tmp_path)
    assert code == 4
    assert f"{damaged}: damage at offset {at}" in message
    assert "--accept-loss" in message
    assert {path.name: path.read_bytes() for path in journals(tmp_path)} == before
    with BookieCommand(tmp_path, "--accept-loss") as accepted:
        assert (accepted.row["damages"], accepted.row["limbo_ledgers"]) == (1, 1)
        with DemoClient(accepted.port) as client:
            outcome = client.read(LEDGER, range(11))
        assert sorted(outcome.done) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert {number: code.name for number, code in outcome.refused.items()} == {
            4: "UNKNOWN_LEDGER_STATE",
            10: "UNKNOWN_LEDGER_STATE",
        }
        accepted.end(signal.SIGTERM)
    assert any(str(damaged) in line["message"] and line["level"] == "warning" for line in accepted.log)


def test_a_running_bookie_is_named_by_whoever_wants_its_directories_or_its_port(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        pid = f"(pid {bookie.process.pid})"
        name = bookie.row["bookie"]
        code, message = refused_start(tmp_path)
        assert code == 4
        assert f"port {bookie.port} is in use by" in message
        assert pid in message
        code, message = refused_start(tmp_path, bookieId=name, bookiePort="0")
        assert code == 4
        assert "journal/current: in use by" in message
        assert pid in message
        read_only = json.loads(
            urllib.request.urlopen(
                f"http://127.0.0.1:{bookie.row['http_port']}/api/v1/bookie/state", timeout=20
            ).read()
        )
        assert read_only["running"] is True


def test_another_id_than_the_cookies_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with BookieCommand(tmp_path) as bookie:
        name = bookie.row["bookie"]
        bookie.end(signal.SIGTERM)
    code, message = refused_start(tmp_path, bookieId="another")
    assert code == 4
    assert f"the cookie is that of bookie {name}" in message
    assert f"bookieId={name}" in message


def test_a_taken_http_port_is_an_error_unless_http_is_optional(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        keys = {"httpServerPort": port, "prometheusStatsHttpPort": port, "bkctlHttpServerOptional": "true"}
        with BookieCommand(tmp_path, **keys) as bookie:
            assert (bookie.row["http_port"], bookie.row["metrics_port"]) == (None, None)
            bookie.end(signal.SIGTERM)
        admin, metrics = [line["message"] for line in bookie.log if line["level"] == "warning"]
        assert f"127.0.0.1:{port}" in admin
        assert f"0.0.0.0:{port}" in metrics
        code, message = refused_start(tmp_path, httpServerPort=port)
        assert code == 7
        assert f"HTTP: cannot listen on 127.0.0.1:{port}" in message
        assert f"(pid {os.getpid()})" in message
        assert "bkctlHttpServerOptional=true" in message
    # Nothing of the refused start is left: not the port, not the locks, not the registration.
    with BookieCommand(tmp_path, httpServerPort=port, httpServerEnabled="true") as again:
        assert again.row["http_port"] == int(port)


def test_a_zookeeper_that_is_not_there_is_waited_for_a_bounded_time(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        uri = f"zk+hierarchical://127.0.0.1:{silent.getsockname()[1]}/ledgers"
        began_s = time.monotonic()
        code, message = refused_start(tmp_path, metadataServiceUri=uri)
        assert time.monotonic() - began_s < 20
    assert code == 5
    assert "ZooKeeper 127.0.0.1:" in message
    assert not (tmp_path / "bkctl-data").exists()


def test_full_disks_make_it_read_only_or_stop_it(tmp_path: Path) -> None:
    full = {"diskUsageThreshold": "0.001", "diskUsageWarnThreshold": "0.001"}
    space = shutil.disk_usage(tmp_path)
    if space.used < space.total // 500:
        # A file system in memory may be empty but for the files of this test.
        with (tmp_path / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, space.total // 500)
    with BookieCommand(tmp_path, **full) as bookie:
        with DemoClient(bookie.port) as client:
            outcome = client.add(LEDGER, range(3), size_bytes=SIZE)
        assert {code.name for code in outcome.refused.values()} == {"READ_ONLY"}
        with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as metadata:
            assert metadata.registration.bookies().read_only == (bookie.row["bookie"],)
        assert bookie.end(signal.SIGTERM) == 0
    code, message = refused_start(tmp_path, readOnlyModeEnabled="false", **full)
    assert code == 4
    assert "readOnlyModeEnabled=false" in message


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ({"bookiePort": "many"}, 2, "bookiePort: expected an int"),
        ({"bookiePrt": "4181"}, 2, "-X bookiePrt: 'bookiePrt' is not a known key; did you mean bookiePort?"),
        ({"metadataServiceUri": "embedded:///proc/version/m.db"}, 7, "/proc/version"),
    ],
    ids=["value", "key", "store"],
)
def test_the_json_log_is_json_lines_and_names_a_fatal_error_once(
    tmp_path: Path, keys: dict[str, str], code: int, said: str
) -> None:
    found, message = refused_start(tmp_path, **keys)
    assert found == code
    assert said in message


def test_log_lines_for_people_when_asked_for(tmp_path: Path) -> None:
    with BookieCommand(tmp_path, "--log-format", "text", journalReuseFiles="true") as bookie:
        bookie.end(signal.SIGTERM)
    assert "WARNING  -X journalReuseFiles: journalReuseFiles has no effect here" in bookie.stderr
    assert "serves port" in bookie.stderr


def test_notices_about_the_configuration_are_lines_of_the_log(tmp_path: Path) -> None:
    with BookieCommand(tmp_path, journalReuseFiles="true") as bookie:
        bookie.end(signal.SIGTERM)
    assert (bookie.log[0]["level"], bookie.log[0]["logger"]) == ("warning", "bkctl.config")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, message = refused_start(tmp_path, journalDirectories=f"{tmp_path}/file/journal")
    assert code == 7
    assert f"{tmp_path}/file: making the directory" in message


def test_the_demo_notices_an_entry_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BookieCommand(tmp_path) as bookie:
        with DemoClient(bookie.port) as client:
            client.add(demo.LEDGER, range(3), size_bytes=demo.ENTRY_BYTES)
            client.add(demo.LEDGER, [3], size_bytes=demo.ENTRY_BYTES - 1)
        assert demo.missing(bookie.port, [0, 1, 2]) == 0
        assert demo.missing(bookie.port, [0, 1, 2, 3, 4]) == 2
    assert "entry 3: other bytes" in capsys.readouterr().out
