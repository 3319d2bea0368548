"""Which collectors a bookie has, and what they are given."""

from __future__ import annotations

from pathlib import Path

from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.engine_rig import EngineRig, small_settings


def test_each_directory_may_compact_by_way_of_the_others(tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("l0", "l1", "l2")]
    with EmbeddedBookie(
        tmp_path / "b", overrides={"httpServerPort": "0", "ledgerDirectories": ",".join(directories)}
    ) as bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        for number, collector in enumerate(bookie.service.bookie.collectors):
            others = tuple(path for path in directories if path != directories[number])
            assert collector._settings.scratch_directories == others


def test_an_embedded_engine_without_a_cluster_never_collects() -> None:
    with EngineRig(small_settings()) as rig:
        rig.start()
        assert rig.bookie.collectors == []
