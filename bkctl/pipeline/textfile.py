"""The counts of a run as a file for the textfile collector of Prometheus' node exporter, for alarms.

::

    bkctl_pipeline_count{job="replication-audit",count="slots_missing"} 0
    bkctl_pipeline_exit_code{job="replication-audit"} 0
    bkctl_pipeline_started_seconds{job="replication-audit"} 1700000000
"""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.pipeline.results import Outcome, write_whole

_KINDS = (
    ("bkctl_pipeline_count", "A count of the job's summary."),
    ("bkctl_pipeline_exit_code", "0 clean, 1 something was found, 3 a part could not be judged."),
    ("bkctl_pipeline_started_seconds", "When the run began, seconds since 1970."),
    ("bkctl_pipeline_run_seconds", "How long the run took."),
)


def textfile(outcome: Outcome) -> str:
    """Return the text."""
    samples: dict[str, list[tuple[str, float]]] = {
        "bkctl_pipeline_count": list(_counts(outcome)),
        "bkctl_pipeline_exit_code": [(f'job="{outcome.job}"', outcome.exit_code)],
        "bkctl_pipeline_started_seconds": [(f'job="{outcome.job}"', outcome.started_ms / 1000)],
        "bkctl_pipeline_run_seconds": [(f'job="{outcome.job}"', outcome.seconds)],
    }
    lines = []
    for name, text in _KINDS:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{labels}}} {value}" for labels, value in samples[name]]
    return "\n".join(lines) + "\n"


def _counts(outcome: Outcome) -> Iterator[tuple[str, float]]:
    for name, value in outcome.counts.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f'job="{outcome.job}",count="{name}"', value


def write_textfile(outcome: Outcome, path: str) -> None:
    """Write the file, whole or not at all. Raises StorageError."""
    write_whole(path, textfile(outcome))
