"""The colours of charts say what a part of a bar means."""

from __future__ import annotations

import re

import pytest

from bkctl.pipeline.job import Job, Plot
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.plots import Bar, bar_chart

GREEN, RED, GREY, LIGHT_GREY = "#5a9a5a", "#b64a4a", "#82868d", "#b9bcc2"
PLOTS = [
    pytest.param(job, plot, id=f"{job.name}: {plot.title}") for job in JOBS.values() for plot in job.plots
]


def colours_of(text: str) -> list[str]:
    return re.findall(r'<rect [^>]*fill="([^"]+)"', text)


def test_what_is_lost_is_red_and_what_is_not_known_is_grey() -> None:
    (plot,) = [plot for plot in JOBS["replication-audit"].plots if len(plot.values) > 1]
    bars = [Bar("b1", (3.0, 2.0, 1.0, 1.0)), Bar("b2", (0.0, 0.0, 0.0, 5.0))]
    found = colours_of(bar_chart(plot.title, plot.values, bars, meanings=plot.meanings))
    legend = [GREEN, RED, GREY, LIGHT_GREY]
    assert found == [*legend, *legend, LIGHT_GREY]


def test_amounts_without_a_meaning_have_colours_of_their_own() -> None:
    found = colours_of(bar_chart("t", ("a", "b"), [Bar("x", (1.0, 1.0))]))
    assert len(set(found)) == 2
    assert not {GREEN, RED, GREY, LIGHT_GREY} & set(found)


@pytest.mark.parametrize(("job", "plot"), PLOTS)
def test_every_part_of_a_stack_has_a_meaning(job: Job, plot: Plot) -> None:
    assert len(plot.meanings) in ((len(plot.values),) if len(plot.values) > 1 else (0, 1))
    for name, meaning in zip(plot.values, plot.meanings, strict=False):
        assert (meaning == "unknown") == any(
            word in name for word in ("unknown", "unchecked", "not_examined", "undecided")
        )
        if "missing" in name or "lost" in name:
            assert meaning == "bad"
