"""A run's counts for Prometheus: every sample has a type, and reads back as what the run says."""

from __future__ import annotations

from pathlib import Path

from bkctl.pipeline.textfile import write_textfile
from tests.support.sets import DEMO, ran


def test_the_counts_of_a_run_are_gauges(tmp_path: Path) -> None:
    outcome = ran("orphans", [DEMO], tmp_path / "o")
    path = tmp_path / "orphans.prom"
    write_textfile(outcome, str(path))
    lines = path.read_text().splitlines()
    assert f'bkctl_pipeline_count{{job="orphans",count="ledgers"}} {outcome.counts["ledgers"]}' in lines
    assert 'bkctl_pipeline_exit_code{job="orphans"} 0' in lines
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.partition("{")[0] for line in lines if not line.startswith("#")} == typed
    assert [entry.name for entry in tmp_path.iterdir() if "writing" in entry.name] == []
