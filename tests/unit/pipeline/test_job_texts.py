"""Jobs are declared as they are written: names, counts and columns that exist."""

from __future__ import annotations

import re

import pytest

from bkctl.errors import UsageError
from bkctl.pipeline.job import Job, Parameters
from bkctl.pipeline.jobs.catalogue import JOBS, job_named
from bkctl.pipeline.survey import KIND_OF
from bkctl.pipeline.tables.registry import TABLES

every_job = pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))


@every_job
def test_tables_of_the_text_are_the_declared_results(job: Job) -> None:
    written = [statement.name for statement in job.statements() if statement.kind == "table"]
    assert sorted(written) == sorted(result.name for result in job.results)
    assert written[-1] == "summary"


@every_job
def test_names_are_defined_once_and_differ_from_inputs(job: Job) -> None:
    names = [statement.name for statement in job.statements() if statement.kind != "expand"]
    names += [item.name for item in job.inputs]
    assert len(names) == len(set(names))


@every_job
def test_counts_that_decide_are_in_the_summary(job: Job) -> None:
    counts = {column.name for column in job.result("summary").columns}
    assert {*job.found, *job.unexamined} <= counts
    assert not set(job.found) & set(job.unexamined)


@every_job
def test_inputs_are_tables_that_exist(job: Job) -> None:
    for item in job.inputs:
        if item.name == "bookies" or item.published_only:
            continue
        assert set(item.columns) <= set(TABLES[item.source].schema.names)
        assert item.snapshot is not None or item.source == "verification" or item.source in KIND_OF
        assert item.wanted_by is None or item.wanted_by in job.parameters


@every_job
def test_plots_show_columns_of_results(job: Job) -> None:
    for plot in job.plots:
        columns = {column.name for column in job.result(plot.table).columns}
        assert {*plot.labels, *plot.values} <= columns


@every_job
def test_options_of_a_job_are_used_by_its_text(job: Job) -> None:
    for name in job.parameters:
        if name in ("entries", "bookies_gone"):
            continue
        assert re.search(rf"\bp\.{name}\b", job.sql), name


def test_an_unknown_job_is_refused_with_a_proposal() -> None:
    with pytest.raises(UsageError, match="did you mean replication-audit"):
        job_named("replication_audit")
    with pytest.raises(UsageError, match="did you mean index-rebuild"):
        job_named("index_rebuild")
    with pytest.raises(UsageError, match=r"there are inventory, verify.*, index-rebuild$"):
        job_named("x")


def test_a_bookie_id_that_would_change_the_query_is_refused() -> None:
    with pytest.raises(UsageError, match="no id of a bookie"):
        Parameters(bookies_gone=("a' OR 1 = 1",))
    assert "'[::1]:3181'" in Parameters(bookies_gone=("[::1]:3181",)).views()["gone_bookies"]
