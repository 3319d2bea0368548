"""The configuration files that BookKeeper and Pulsar ship mean here what they mean to Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.config.bookie import BookieConfig
from bkctl.config.keys import Kind, State
from bkctl.config.loader import load
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.values import Notice
from tests.support.stock_configurations import STOCK_CONFIGURATIONS, stock_ids

MIB = 1 << 20
#: Commented-out samples that this bookie refuses for good reasons, which other tests hold.
REFUSED = ("tls", "bookieAuth", "ledgerStorageClass", "indexDirectories")


def loaded(text: str) -> tuple[BookieConfig, list[Notice]]:
    return load("f", {}, {}, read=lambda _path: text.encode())


@pytest.mark.parametrize("path", STOCK_CONFIGURATIONS, ids=stock_ids)
def test_a_shipped_file_loads_as_it_is(path: Path) -> None:
    config, notices = load(str(path), {}, {})
    assert config.identity.port == 3181
    assert config.metadata.uri.endswith("localhost:2181/ledgers")
    assert not [str(one) for one in notices if "not a known key" in one.text]


@pytest.mark.parametrize("path", STOCK_CONFIGURATIONS, ids=stock_ids)
def test_every_line_that_is_shipped_commented_out_is_known(path: Path) -> None:
    lines = [line.lstrip("#") for line in path.read_text().splitlines()]
    _, notices = loaded("\n".join(line for line in lines if not line.startswith(REFUSED)))
    assert not [str(one) for one in notices if "not a known key" in one.text]


@pytest.mark.parametrize("path", [one for one in STOCK_CONFIGURATIONS if "pulsar" in one.name], ids=stock_ids)
def test_the_empty_sizes_of_pulsars_file_are_the_defaults(path: Path) -> None:
    config, _ = load(str(path), {}, {})
    without, _ = loaded("\n".join(line for line in path.read_text().splitlines() if not line.endswith("=")))
    assert config.storage == without.storage
    assert config.storage.write_cache_bytes_max == config.memory_bytes // 4


@pytest.mark.parametrize("path", [one for one in STOCK_CONFIGURATIONS if "pulsar" in one.name], ids=stock_ids)
def test_a_bookie_of_pulsars_file_runs_autorecovery(path: Path) -> None:
    config, notices = load(str(path), {}, {})
    assert config.autorecovery
    assert not [one for one in notices if "autoRecoveryDaemonEnabled" in one.text]


def test_a_relative_journal_directory_is_reported_at_its_line() -> None:
    _, notices = loaded("zkServers=localhost:2181\njournalDirectory=data/journal\nledgerDirectories=/l\n")
    [said] = [one for one in notices if "is relative" in one.text]
    assert said.where == "f:2"


HONOURED = sorted(name for name, key in SERVER_KEYS.items() if key.state is State.HONOURED)


@pytest.mark.parametrize("name", [name for name in HONOURED if name != "metadataServiceUri"])
def test_an_empty_text_leaves_every_key_at_its_default(name: str) -> None:
    base = "metadataServiceUri=zk://h:2181/ledgers\n"
    empty, _ = loaded(f"{base}{name}=\n")
    absent, _ = loaded(base)
    as_read = {"given": None, "values": None}
    assert {**vars_of(empty), **as_read} == {**vars_of(absent), **as_read}


def vars_of(config: BookieConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


@pytest.mark.parametrize("name", ["numReadWorkerThreads", "numHighPriorityWorkerThreads"])
def test_zero_threads_of_a_stage_are_its_default(name: str) -> None:
    assert SERVER_KEYS[name].kind is Kind.INT
    base = "metadataServiceUri=zk://h:2181/ledgers\n"
    config, notices = loaded(f"{base}{name}=0\n")
    assert config.network == loaded(base)[0].network
    assert not [str(one) for one in notices if name in one.text]
