"""``bkctl top`` without its screen: --once, streams, recordings, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.top.sample import AutorecoveryState, RecoveryWorker
from bkctl.admin.top.sample_json import decode_sample, encode_sample
from bkctl.commands.top.keys import ROW_SCHEMA, SAMPLE_SCHEMA
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.demo_client import DemoClient
from tests.support.top_samples import bookie_sample, cluster_sample

Run = Callable[..., Any]
QUICK = ("--interval", "100ms")
QUEUES = ["write", "journal", "force_write", "callback", "read", "high_priority", "long_poll", "flush"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(2, tmp_path_factory.mktemp("top")) as running:
        for bookie in running.bookies:
            with DemoClient(bookie.port) as client:
                client.add(2, range(20))
        yield running


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    return f"http://127.0.0.1:{cluster.bookies[0].http_port}"


def ids(cluster: LocalCluster) -> list[str]:
    return sorted(bookie.bookie_id for bookie in cluster.bookies)


def test_one_sample_of_one_bookie(run_cli: Run, cluster: LocalCluster, url: str) -> None:
    done = run_cli("top", "--url", url, "--once", "-o", "json", *QUICK)
    assert done.exit_code == 0
    (bookie,) = json.loads(done.stdout)["bookies"]
    assert bookie["bookie"] == cluster.bookies[0].bookie_id
    assert [queue["name"] for queue in bookie["queues"]] == QUEUES
    assert {"name", "length", "bound"} <= bookie["queues"][0].keys()
    assert [sorted(half)[:4] for half in bookie["write_cache"]] == [["bound", "bytes", "dir", "flushing"]] * 2
    assert bookie["bottleneck"] == {"stage": "none", "why": "idle"}
    # An idle bookie has rates, and no quantiles.
    assert (bookie["adds_per_s"], bookie["reads_per_s"], bookie["add_p99_ms"]) == (0.0, 0.0, None)
    assert {"read_cache_hit_rate", "journal_sync_p99_ms"} <= bookie.keys()


def test_a_bookie_that_is_down_is_shown(run_cli: Run, cluster: LocalCluster) -> None:
    """It has a cookie and is not registered."""
    with open_metadata_store(cluster.metadata_uri) as store:
        store.cookies.create_cookie("gone:3181", b"5\n")
        try:
            command = ("top", "--metadata", cluster.metadata_uri, "--once", *QUICK)
            sample, rows = run_cli(*command, "-o", "json"), run_cli(*command, "-o", "csv")
        finally:
            store.cookies.delete_cookie("gone:3181", 0)
    assert (sample.exit_code, rows.exit_code) == (3, 3)
    bookies = {bookie["bookie"]: bookie for bookie in json.loads(sample.stdout)["bookies"]}
    assert bookies.keys() == {*ids(cluster), "gone:3181"}
    assert bookies["gone:3181"]["mode"] == "down"
    assert bookies["gone:3181"]["error"] == "not registered any more; it has a cookie, so it is down"
    (row,) = [row for row in csv.DictReader(io.StringIO(rows.stdout)) if row["bookie"] == "gone:3181"]
    assert (row["mode"], row["bottleneck"]) == ("down", "unknown")


def test_the_bookies_of_a_cluster_by_its_metadata(run_cli: Run, cluster: LocalCluster) -> None:
    done = run_cli("top", "--metadata", cluster.metadata_uri, "--once", "-o", "json", *QUICK)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [bookie["bookie"] for bookie in found["bookies"]] == ids(cluster)
    assert found["discovery_error"] is None
    assert found["interval_s"] >= 0.1


def test_every_format_has_the_same_bookies(run_cli: Run, cluster: LocalCluster) -> None:
    words = ("top", "--metadata", cluster.metadata_uri, "--once", *QUICK)
    (line,) = run_cli(*words, "-o", "ndjson").stdout.splitlines()
    assert [bookie.bookie for bookie in decode_sample(line).bookies] == ids(cluster)
    rows = list(csv.DictReader(io.StringIO(run_cli(*words, "-o", "csv").stdout)))
    assert [row["bookie"] for row in rows] == ids(cluster)
    assert list(rows[0]) == [key.key for key in ROW_SCHEMA]
    assert rows[0]["mode"] == "rw"
    # Nothing is asked of the bookie, but the machine may be busy with something else.
    assert (rows[0]["bottleneck"], rows[0]["why"]) == ("none", "idle") or rows[0]["bottleneck"] == "cpu"
    table = run_cli(*words, "-o", "table").stdout
    assert all(bookie in table for bookie in ids(cluster))
    chosen = run_cli(*words, "-o", "csv", "--columns", "mode,bookie", "--sort=-bookie", "--limit", "1")
    assert chosen == (0, f"mode,bookie\nrw,{ids(cluster)[-1]}\n", "")


def test_the_environment_names_the_cluster_unless_urls_do(
    run_cli: Run, cluster: LocalCluster, url: str
) -> None:
    env = {"BKCTL_METADATA_URI": cluster.metadata_uri}
    words = ("top", "--once", "-o", "json", *QUICK)
    assert len(json.loads(run_cli(*words, env=env).stdout)["bookies"]) == 2
    assert len(json.loads(run_cli(*words, "--url", url, env=env).stdout)["bookies"]) == 1
    both = run_cli(*words, "--url", url, "--metadata", cluster.metadata_uri)
    assert [bookie["bookie"] for bookie in json.loads(both.stdout)["bookies"]] == ids(cluster)


def test_bookies_that_do_not_answer(run_cli: Run, url: str) -> None:
    nobody = "http://127.0.0.1:1"
    some = run_cli("top", "--url", url, "--url", nobody, "--once", "-o", "json", *QUICK)
    assert some.exit_code == 3
    lost = next(bookie for bookie in json.loads(some.stdout)["bookies"] if bookie["error"])
    assert (lost["bookie"], lost["error"]) == ("127.0.0.1:1", "cannot connect: Connection refused")
    assert lost["bottleneck"]["stage"] == "unknown"
    assert (lost["queues"], lost["adds_per_s"]) == ([], None)
    assert run_cli("top", "--url", nobody, "--once", *QUICK).exit_code == 5


def test_a_cluster_without_bookies_and_a_store_that_is_not_there(run_cli: Run, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    assert run_cli("bookies", "init", "--metadata", uri).exit_code == 0
    done = run_cli("top", "--metadata", uri, "--once", *QUICK)
    assert done.exit_code == 5
    assert "no bookie is registered" in done.stderr
    assert done.stdout == ""


def test_a_recording_is_played_and_appended_to(run_cli: Run, url: str, tmp_path: Path) -> None:
    path = tmp_path / "top.ndjson"
    for _ in range(2):
        assert run_cli("top", "--url", url, "--once", "--record", str(path), *QUICK).exit_code == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 4, "two samples each: the first one has no rates"
    stream = run_cli("top", "--replay", str(path), "-o", "ndjson")
    assert stream.exit_code == 0
    assert stream.stdout.splitlines() == lines
    last = run_cli("top", "--replay", str(path), "--once", "-o", "json")
    assert json.loads(last.stdout) == json.loads(lines[-1])


def test_a_recording_that_is_full_is_told_of_on_stderr(run_cli: Run, url: str, tmp_path: Path) -> None:
    words = ("top", "--url", url, "--once", "-o", "json", "--record", str(tmp_path / "r"), *QUICK)
    done = run_cli(*words, "--record-max", "1K")
    assert done.exit_code == 0
    assert "the recording has ended" in done.stderr
    assert "the recording has ended" in json.loads(done.stdout)["notice"]
    assert (tmp_path / "r").read_bytes() == b""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the screen needs a terminal; without one: 'bkctl top --once -o json'"),
        (("-o", "json"), "-o json prints one sample: add --once"),
        (("-o", "table"), "-o table prints one sample: add --once"),
        (("--once", "-o", "json", "--limit", "1"), "--limit and --no-headers choose among rows of"),
        (("--once", "-o", "ndjson", "--columns", "bookie"), "add --once, and -o table or -o csv"),
        (("-o", "ndjson", "--no-headers"), "add --once, and -o table or -o csv"),
        (("--sort", "mode"), "add --once, and -o table or -o csv"),
        (("--once", "-o", "csv", "--columns", "disk"), "--columns: no key 'disk'; there are bookie, mode,"),
        (("--once", "--url", "h:1"), "--url h:1: expected http://host:port"),
        (("--once", "--interval", "1ms"), "--interval 1 ms: from 100 ms to 1h"),
        (("--once", "--interval", "2h"), "from 100 ms to 1h"),
        (("--replay", "r", "--url", "http://h:1"), "with neither --url nor --record"),
        (("--replay", "r", "--record", "q"), "with neither --url nor --record"),
    ],
)
def test_what_is_refused(run_cli: Run, words: tuple[str, ...], message: str) -> None:
    done = run_cli("top", *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_recording_that_is_not_there(run_cli: Run, tmp_path: Path) -> None:
    done = run_cli("top", "--replay", str(tmp_path / "no"), "--once")
    assert (done.exit_code, done.stdout) == (6, "")
    (tmp_path / "bad").write_text("nothing\n")
    done = run_cli("top", "--replay", str(tmp_path / "bad"), "--once")
    assert done.exit_code == 1
    assert "bad: recording at offset 0" in done.stderr


def test_a_stream_goes_on_until_it_is_interrupted(url: str) -> None:
    command = [sys.executable, "-m", "bkctl", "top", "--url", url, "-o", "ndjson", *QUICK]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        samples = [decode_sample(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert [sample.bookies[0].adds_per_s for sample in samples] == [0.0] * 3
    assert samples[0].taken_at_ms < samples[1].taken_at_ms < samples[2].taken_at_ms


def test_a_reader_that_goes_away_ends_the_stream(url: str) -> None:
    command = [sys.executable, "-m", "bkctl", "top", "--url", url, "-o", "ndjson", *QUICK]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        stderr = process.stderr.read()
        process.wait(30)
        process.stderr.close()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 141
    assert stderr == ""


def test_the_data_side_loads_neither_textual_nor_rich(url: str) -> None:
    program = (
        "import sys; from bkctl.cli import run; code = run(sys.argv[1:]);"
        "print({'textual', 'rich', 'numpy', 'rocksdict', 'kazoo'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "top", "--url", url, "--once", "-o", "json", *QUICK],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.strip() == "set()"


def test_half_a_terminal_is_none(url: str) -> None:
    """stdout goes to a terminal, stdin does not come from one."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bkctl", "top", "--url", url],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert "the screen needs a terminal" in done.stderr


WORDS = {bool: "bool", int: "int", float: "number", str: "string"}


def keys_of(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """The keys of a printed sample with the words for their types, a list's by its first object."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield f"{path}{name}", "object"
            yield from keys_of(value, f"{path}{name}.")
        elif isinstance(value, list):
            yield f"{path}{name}", "array of objects"
            yield from keys_of(value[0], f"{path}{name}[].")
        else:
            yield f"{path}{name}", "null" if value is None else WORDS[type(value)]


def test_the_schema_names_every_key_of_a_sample_in_order_with_its_type(run_cli: Run) -> None:
    workers = (RecoveryWorker(host="h", ledgers=1),)
    sample = replace(
        cluster_sample(3, bookie_sample("b")),
        autorecovery=AutorecoveryState(enabled=True, ledgers=1, workers=workers),
    )
    found = list(keys_of(json.loads(encode_sample(sample))))
    assert [key.key for key in SAMPLE_SCHEMA] == [name for name, _ in found]
    for key, (name, word) in zip(SAMPLE_SCHEMA, found, strict=True):
        assert word in (key.type.removesuffix(" or null"), "null"), name
        assert word != "null" or key.type.endswith(" or null"), name
    printed = json.loads(run_cli("top", "--schema", "-o", "json").stdout)
    assert [row["key"] for row in printed] == [key.key for key in SAMPLE_SCHEMA]
    assert all(row["meaning"] for row in printed)
