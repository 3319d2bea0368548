"""Commands on a ZooKeeper whose nodes belong to a user, and on roots within other roots."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

Run = Callable[..., Any]
DEMO = Path(__file__).parents[1] / "data" / "demo"


def test_nodes_of_a_user_are_for_that_user(
    run_cli: Run,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri = f"zk+hierarchical://{zookeeper_server.address}/{uuid.uuid4().hex}"
    user = {"BKCTL_METADATA_URI": uri, "BKCTL_ZK_DIGEST": "operator:secret"}
    secure = ("-X", "zkEnableSecurity=true")
    assert run_cli("bookies", "init", *secure, env=user).exit_code == 0
    assert run_cli("ledger", "list", *secure, env=user).exit_code == 0
    pipeline = ("pipeline", "run", "verify", DEMO, "--metadata", uri, "--jobs", "1", "--out")
    assert run_cli(*pipeline, tmp_path / "ours", env=user).exit_code in (0, 3)
    for env in (
        {"BKCTL_METADATA_URI": uri, "BKCTL_ZK_DIGEST": None},
        {"BKCTL_METADATA_URI": uri, "BKCTL_ZK_DIGEST": "operator:wrong"},
    ):
        refused = run_cli("ledger", "list", env=env)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert "authentication needed" in refused.stderr
        assert "secret" not in refused.stderr
        refused = run_cli(*pipeline, tmp_path / "theirs", env=env)
        assert (refused.exit_code, "authentication needed" in refused.stderr) == (4, True), refused.stderr


def test_a_user_of_sasl_is_named_whole(run_cli: Run, zookeeper_server: ZooKeeperServer) -> None:  # noqa: F811
    env = {
        "BKCTL_METADATA_URI": f"zk://{zookeeper_server.address}/ledgers",
        "BKCTL_ZK_SASL_USER": "operator",
        "BKCTL_ZK_SASL_PASSWORD": None,
    }
    result = run_cli("ledger", "list", env=env)
    assert result.exit_code == 2
    assert "BKCTL_ZK_SASL_USER and BKCTL_ZK_SASL_PASSWORD go together" in result.stderr


def test_pulsars_uri_and_a_nested_root(run_cli: Run, zookeeper_server: ZooKeeperServer) -> None:  # noqa: F811
    chroot = uuid.uuid4().hex
    with open_metadata_store(f"zk://{zookeeper_server.address}/x", MetadataSettings()) as store:
        assert isinstance(store, TreeMetadataStore)
        store._tree.create(f"/{chroot}")
        store._tree.create(f"/{chroot}/tenant")
    pulsar = {"BKCTL_METADATA_URI": f"metadata-store:zk:{zookeeper_server.address}/{chroot}/tenant"}
    made = json.loads(run_cli("bookies", "init", env=pulsar).stdout)
    assert made["root"] == f"/{chroot}/tenant/ledgers"
    java = {"BKCTL_METADATA_URI": f"zk+null://{zookeeper_server.address}/{chroot}/tenant/ledgers"}
    assert run_cli("ledger", "list", env=java).exit_code == 0
    assert run_cli("bookies", "init", env=java).exit_code == 4
