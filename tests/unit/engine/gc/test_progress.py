"""How far a pass is, as ``bkctl top`` asks for it while the pass runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.unit.engine.gc.gc_rig import MAJOR, GcRig, opened

_Value = TypeVar("_Value")


def noting(
    rig: GcRig, seen: list[tuple[str, float | None]], work: Callable[..., _Value]
) -> Callable[..., _Value]:
    """``work`` that first looks at the collector."""

    def looked(*arguments: object, **options: object) -> _Value:
        status = rig.collector.status()
        seen.append((status.phase, status.progress))
        return work(*arguments, **options)

    return looked


def test_logs_that_are_read_and_compacted_are_a_growing_share(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = opened()
    rig.fill([1, 2, 3])
    rig.cluster.live.remove(2)
    seen: list[tuple[str, float | None]] = []
    logs, compactions = rig.collector._logs, rig.collector._compactions
    monkeypatch.setattr(logs, "_read_log", noting(rig, seen, logs._read_log))
    monkeypatch.setattr(compactions, "_compact_log", noting(rig, seen, compactions._compact_log))
    report = rig.collect(MAJOR)
    read = [progress for phase, progress in seen if phase == "reading logs"]
    compacted = [progress for phase, progress in seen if phase == "compacting"]
    assert read == [number / report.logs for number in range(report.logs)]
    assert report.compacted_logs > 1
    assert compacted == [number / len(compacted) for number in range(len(compacted))]
    assert (rig.collector.status().phase, rig.collector.status().progress) == ("idle", None)
