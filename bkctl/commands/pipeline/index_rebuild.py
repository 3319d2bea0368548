"""``bkctl pipeline run index-rebuild``: the one job that writes into bookies' directories."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.confirmation import ask
from bkctl.commands.frame.progress import progress
from bkctl.commands.pipeline.options import Chosen
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
    from bkctl.directories.placement import Placement
    from bkctl.pipeline.results import Outcome


def run_rebuild(chosen: Chosen, *, accept_loss: bool, dry_run: bool, yes: bool) -> Outcome:
    """Rebuild the indexes of all bookies in the paths, after asking."""
    from bkctl.admin.index.rebuild.options import RebuildOptions
    from bkctl.pipeline.index_rebuild import placements, rebuild_outcome, with_metadata
    from bkctl.pipeline.local_paths import refuse_urls
    from bkctl.pipeline.out_directory import claimed
    from bkctl.pipeline.results import write_summary

    if chosen.digest not in ("auto", "off"):
        raise UsageError(f"--digest {chosen.digest}: index-rebuild takes auto or off")
    for option, value in (
        ("--metadata-after", chosen.metadata_after),
        ("--bookie", chosen.bookie),
        ("--password", chosen.password),
    ):
        if value is not None:
            raise UsageError(f"index-rebuild does not heed {option}")
    refuse_urls("--out", chosen.out)
    refuse_urls("PATH", *chosen.paths)
    filesystem = PosixFileSystem()
    found = placements(filesystem, chosen.paths)
    options = RebuildOptions(
        memory_bytes=chosen.memory_bytes,
        digest=chosen.digest,
        accept_loss=accept_loss,
        dry_run=dry_run,
        phase=_phase,
    )
    options = with_metadata(filesystem, options, chosen.metadata)
    if not dry_run:
        directories = [directory.index_dir for placement in found for directory in placement.directories]
        ask(f"rebuild {counted(len(directories), 'index', 'indexes')}: {', '.join(directories)}", yes=yes)
    started = time.time()
    spark = chosen.on_spark(0)
    with claimed(chosen.out) as work_dir:
        results = _on_spark(chosen, options) if spark else _here(found, options, chosen.jobs)
        engine = "spark" if spark else "local"
        outcome = rebuild_outcome(results, chosen.out, work_dir, chosen.paths, engine, started)
        outcome = replace(outcome, metadata=chosen.metadata)
        write_summary(outcome)
    for result in results:
        for difference in result.differences:
            ledger = "" if difference.ledger is None else f"ledger {difference.ledger}: "
            sys.stderr.write(f"bkctl: {result.dir}: {ledger}{difference.kind}: {difference.detail}\n")
    return outcome


def _here(found: list[Placement], options: RebuildOptions, jobs: int | None) -> list[RebuildResult]:
    from bkctl.pipeline.index_rebuild import rebuild_locally

    return rebuild_locally(found, options, jobs)


def _on_spark(chosen: Chosen, options: RebuildOptions) -> list[RebuildResult]:
    from bkctl.reporting import silent_phase
    from bkctl.spark.failures import failures
    from bkctl.spark.index_rebuild import rebuild_indexes
    from bkctl.spark.local_session import session_for_work

    work = session_for_work(chosen.spark_master, chosen.memory_bytes, chosen.spark_settings)
    with work as spark, failures():
        # Directories are at work side by side: one bar for each would be no progress to look at.
        return rebuild_indexes(
            spark, chosen.paths, replace(options, phase=silent_phase), cores=chosen.jobs or 0
        )


def _phase(name: str, size_bytes: int) -> Any:
    return progress(name, size_bytes)
