"""A scrape of a bookie under load: the names that operators look at, with values that agree with the load."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from bkctl.admin.online.load.run import run_load
from bkctl.admin.online.load.settings import LoadSettings
from bkctl.server.embedded import EmbeddedBookie

#: features.md 5.2, as far as this bookie has the thing: name, type, labels besides quantile.
WANTED = {
    "bookie_SERVER_STATUS": ("gauge", set()),
    "bookie_WRITE_BYTES": ("counter", set()),
    "bookie_READ_BYTES": ("counter", set()),
    "bookkeeper_server_ADD_ENTRY_REQUEST": ("summary", {"success"}),
    "bookkeeper_server_READ_ENTRY_REQUEST": ("summary", {"success"}),
    "bookkeeper_server_ADD_ENTRY_IN_PROGRESS": ("gauge", set()),
    "bookkeeper_server_thread_executor_queue": ("gauge", {"thread"}),
    "bookie_journal_JOURNAL_SYNC": ("summary", {"journalIndex", "success"}),
    "bookie_journal_JOURNAL_QUEUE_SIZE": ("counter", {"journalIndex"}),
    "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE": ("counter", {"journalIndex"}),
    "bookie_journal_JOURNAL_WRITE_BYTES": ("counter", {"journalIndex"}),
    "bookie_ledger_writable_dirs": ("gauge", set()),
    "bookie_ledger_num_dirs": ("gauge", set()),
    "bookie_write_cache_size": ("gauge", {"ledgerDir", "indexDir"}),
    "bookie_write_cache_max_size": ("gauge", set()),
    "bookie_flush": ("summary", {"ledgerDir", "indexDir", "success"}),
    "bookie_read_cache_hits": ("counter", {"ledgerDir", "indexDir"}),
    "bookie_ledgers_count": ("gauge", {"ledgerDir", "indexDir"}),
    "bookie_ACTIVE_ENTRY_LOG_TOTAL": ("gauge", {"ledgerDir", "indexDir"}),
    "bookie_MAJOR_COMPACTION_TOTAL": ("counter", {"ledgerDir", "indexDir"}),
    "bookie_DELETED_LEDGER_TOTAL": ("counter", {"ledgerDir", "indexDir"}),
    "bookie_THREAD_RUNTIME": ("summary", {"ledgerDir", "indexDir", "success"}),
    "process_cpu_seconds_total": ("counter", set()),
    "process_open_fds": ("gauge", set()),
}


def scrape(bookie: EmbeddedBookie) -> tuple[dict[str, str], dict[str, float], dict[str, set[str]]]:
    """Types by name, values by name and labels, label names by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{bookie.http_port}/metrics") as answer:
        text = answer.read().decode()
    types: dict[str, str] = {}
    values: dict[str, float] = {}
    labels: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} has two type lines"
            types[name] = kind
            continue
        match = re.fullmatch(r"([A-Za-z_:0-9]+)(?:\{(.*)\})? (\S+)", line)
        assert match is not None, line
        values[line.rsplit(" ", 1)[0]] = float(match[3])
        names = set(re.findall(r'([A-Za-z]+)="', match[2] or "")) - {"quantile"}
        labels.setdefault(match[1], set()).update(names)
    return types, values, labels


def test_a_scrape_has_the_names_of_a_java_bookie_and_agrees_with_the_load(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        settings = LoadSettings(
            "127.0.0.1", bookie.port, connections=2, window=16, payload_bytes=100, seconds=0.3, warmup_s=0.0
        )
        adds = run_load(settings, reads=False)
        types, values, labels = scrape(bookie)
        for name, (kind, wanted) in WANTED.items():
            assert types.get(name) == kind, name
            assert labels[name] == wanted, name
        assert values["bookie_SERVER_STATUS"] == 1
        count = values['bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"}']
        assert adds.operations <= count <= adds.operations + 2 * 16
        assert values['bookkeeper_server_ADD_ENTRY_REQUEST_count{success="false"}'] == 0
        assert values["bookie_WRITE_BYTES"] >= count * 136
        bookie.service.set_read_only(True)  # type: ignore[union-attr]
        assert scrape(bookie)[1]["bookie_SERVER_STATUS"] == 0
