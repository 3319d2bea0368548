"""Work shared by several processes, this one among them."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

import pytest

from bkctl.errors import CorruptionError, StorageError
from bkctl.workers import Workers
from tests.support import worker_tasks

TASKS_MAX = 3000


def test_one_process_does_everything_itself() -> None:
    steps: list[int] = []
    with Workers(1) as workers:
        results = list(workers.results(worker_tasks.where, range(3), steps.append))
    assert results == [(number, os.getpid()) for number in range(3)]
    assert sum(steps) == 30


def test_every_process_does_some_and_every_task_is_done_once() -> None:
    steps: list[int] = []
    with Workers(2, ["tests.support.worker_tasks"]) as workers:
        done: list[int] = []
        processes: set[int] = set()
        tasks = count()
        # As many tasks as it takes until the other process is up and has done one.
        for task, process in workers.results(worker_tasks.where, tasks, steps.append):
            done.append(task)
            processes.add(process)
            if len(processes) == 2:
                break
            assert len(done) < TASKS_MAX
        assert os.getpid() in processes
        again = list(workers.results(worker_tasks.where, range(20)))
    assert len(set(done)) == len(done)
    assert {task for task, _ in again} >= set(range(20))
    assert sum(steps) >= 10 * len(done)


def test_what_an_abandoned_call_left_does_not_reach_the_next() -> None:
    with Workers(2, ["tests.support.worker_tasks"]) as workers:
        for first, (_, process) in enumerate(workers.results(worker_tasks.where, count(1000))):
            assert first < TASKS_MAX
            if process != os.getpid():
                break
        again = sorted(task for task, _ in workers.results(worker_tasks.where, range(20)))
    assert again == list(range(20))


@pytest.mark.parametrize("module", ["json", "numpy", "bkctl"])
def test_workers_import_nothing_from_the_current_directory(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``bkctl index rebuild`` is run by root, in whatever directory."""
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nraise SystemExit('imported from here')\n"
    (tmp_path / f"{module}.py").write_text(trap)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(path for path in sys.path if path not in ("", "."))])
    with Workers(2, ["tests.support.worker_tasks"]) as workers:
        for first, (_, process) in enumerate(workers.results(worker_tasks.where, count())):
            assert first < TASKS_MAX
            if process != os.getpid():
                break
    assert not (tmp_path / "sprung").exists()


def test_a_failure_here_is_raised() -> None:
    with Workers(2) as workers, pytest.raises(CorruptionError, match="anywhere"):
        list(workers.results(worker_tasks.fails, range(3)))


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("error", CorruptionError, "there"),
        ("bug", RuntimeError, "oops"),
        ("death", StorageError, "before its work was done"),
    ],
)
def test_a_failure_elsewhere_is_raised(how: str, error: type[Exception], text: str) -> None:
    tasks = ((how, os.getpid()) for _ in range(TASKS_MAX))
    with Workers(2, ["tests.support.worker_tasks"]) as workers, pytest.raises(error, match=text):
        list(workers.results(worker_tasks.elsewhere_fails, tasks))


def test_a_process_that_died_while_it_was_idle_is_noticed() -> None:
    with Workers(2, ["tests.support.worker_tasks"]) as workers:
        (worker,) = workers._workers
        calls = 0
        while not worker.free:
            list(workers.results(worker_tasks.where, range(5)))
            calls += 1
            assert calls < TASKS_MAX
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(StorageError, match="before its work was done"):
            list(workers.results(worker_tasks.where, range(TASKS_MAX)))


def test_no_process_is_left() -> None:
    with Workers(3) as workers:
        processes = [worker.process for worker in workers._workers]
        assert len(processes) == 2
    assert all(process.returncode is not None for process in processes)
