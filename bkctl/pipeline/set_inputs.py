"""Sets of a store as inputs of a run: which are read, and their tables under the names of jobs' inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bkctl.errors import NotFoundError
from bkctl.pipeline.engine import Engine
from bkctl.pipeline.job import Input, Job
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.choice import Choice, SetWish, choose_sets, read_cluster
from bkctl.pipeline.sets.set_tables import TABLES
from bkctl.pipeline.sets.store import CompleteSet, SetStore
from bkctl.pipeline.survey import Survey
from bkctl.pipeline.table_sets import TableSet
from bkctl.pipeline.tables.registry import table_named
from bkctl.vfs import FileSystem

#: Tables that a set holds as stripes.
STRIPED = ("runs", "index_runs")
#: Sums over a stripe: they stand with the first of the runs that it is taken apart into.
_SUMS = ("entries", "bytes", "bad_digests", "ids_hash")


@dataclass(frozen=True, slots=True)
class Published:
    """The sets that were chosen from stores, and the notes to report about the choice."""

    sets: tuple[TableSet, ...] = ()
    choice: Choice | None = None


def published_sets(
    filesystem: FileSystem, surveyed: Survey, metadata: str | None, wish: SetWish, now_ms: int
) -> Published:
    """Choose sets of the stores among the paths. Raises NotFoundError for a place that is no store."""
    if not surveyed.stores:
        return Published()
    stores = [SetStore(located(path)) for path in surveyed.stores]
    for store in stores:
        if not store.is_there():
            raise NotFoundError(
                f"{store.location.text}: holds no sets; 'bkctl pipeline collect PATH --to URL' makes them"
            )
    choice = choose_sets(stores, wish, now_ms, read_cluster(filesystem, metadata))
    if not choice.sets:
        why = "".join(f"; {problem.why}" for problem in choice.problems[:3])
        raise NotFoundError(f"no complete set in {', '.join(surveyed.stores)}{why}")
    return Published(tuple(map(table_set, choice.sets)), choice)


def table_set(one: CompleteSet) -> TableSet:
    """Return a set as what runs read and take over from."""
    manifest = one.manifest
    return TableSet(
        path=one.location.text,
        job=None,
        started_ms=manifest.started_ms,
        ended_ms=manifest.ended_ms,
        guards=manifest.guards,
        unread_indexes=manifest.unread_indexes,
        logs_gone=manifest.logs_gone,
        bookies=manifest.bookies,
        files={name: tuple(one.files(name)) for name in manifest.tables},
        not_read=manifest.not_read,
        unread_files=tuple(file.path for file in manifest.files if file.is_unread),
        unread_tables=frozenset(manifest.not_read),
    )


def files_of(sets: Sequence[TableSet], item: Input, job: Job) -> list[str]:
    """Return the files of an input in published sets. Raises NotFoundError for a table that they lack."""
    found: list[str] = []
    for one in sets:
        if one.is_published:
            if item.name not in one.files:
                raise NotFoundError(
                    f"{one.path}: a set has no table {item.name}, which {job.name} needs: run it over the "
                    "bookie's directories"
                )
            found += one.files[item.name]
    return found


def unknown_of(sets: Sequence[TableSet], job: Job) -> list[tuple[str, str]]:
    """Return what a job cannot know because tables of published sets lack a part, and why."""
    names = {item.name for item in job.inputs}
    return [
        (f"{table}_not_read", f"of {one.path}: {why}")
        for one in sets
        for table, why in one.not_read.items()
        if table in names
    ]


def load_striped(engine: Engine, item: Input, flat: Sequence[str], striped: Sequence[str]) -> None:
    """Give an input its name: runs as they are read from files, and stripes taken apart into runs.

    The whole of table ``runs`` is named ``striped_runs`` as well, as stripes: a query that knows a ledger's
    ensemble need not take them apart.
    """
    columns = list(item.columns) or table_named(item.source).schema.names
    parts, whole = [], []
    if flat:
        engine.load(f"{item.name}_flat", flat)
        parts.append(f"SELECT {_listed(columns)} FROM {item.name}_flat r")  # noqa: S608
        constants = ", CAST(1 AS INT) AS step, CAST(1 AS INT) AS width, CAST(0 AS INT) AS phase"
        whole.append(f"SELECT {_listed(columns)}{constants} FROM {item.name}_flat r")  # noqa: S608
    if striped:
        engine.load(f"{item.name}_of_sets", striped)
        parts.append(f"SELECT {_listed(columns)} FROM {item.name}_of_sets r WHERE r.step = 1")  # noqa: S608
        parts.append(_taken_apart(f"{item.name}_of_sets", columns))
        whole.append(f"SELECT {_listed(columns)}, r.step, r.width, r.phase FROM {item.name}_of_sets r")  # noqa: S608
    engine.view(item.name, " UNION ALL ".join(parts))
    if not item.columns:
        engine.view(f"striped_{item.name}", " UNION ALL ".join(whole))


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"r.{name}" for name in columns)


def _taken_apart(source: str, columns: Sequence[str]) -> str:
    """Return the query that makes runs of stripes; the first and the last may be cut short."""
    texts = []
    for name in columns:
        if name == "first":
            texts.append("greatest(r.first, r.begins) AS first")
        elif name == "last":
            texts.append("least(r.last, r.begins + r.width - 1) AS last")
        elif name in _SUMS:
            texts.append(f"CASE WHEN r.begins <= r.first THEN r.{name} ELSE 0 END AS {name}")
        else:
            texts.append(f"r.{name}")
    # Spark takes no function of ours inside a generator, so that its bounds are columns first.
    bounds = (
        f"SELECT b.*, b.first - remainder(b.first - b.phase, b.step) AS starts, "  # noqa: S608 - our names
        f"CAST(b.step AS BIGINT) AS distance FROM {source} b WHERE b.step > 1"
    )
    begins = "each_of(steps_between(s.starts, s.last, s.distance)) AS begins"
    return f"SELECT {', '.join(texts)} FROM (SELECT s.*, {begins} FROM ({bounds}) s) r"  # noqa: S608


def load_published(engine: Engine, item: Input, files: Sequence[str]) -> None:
    """Give a table of sets its name; an empty one where there is no set."""
    if files:
        engine.load(item.name, files)
        return
    columns = ", ".join(
        f"CAST(NULL AS {'STRING' if field.type == pa.string() else 'BIGINT'}) AS {field.name}"
        for field in TABLES[item.name]
    )
    engine.view(item.name, f"SELECT * FROM (SELECT {columns}) q WHERE 1 = 0")  # noqa: S608 - names of ours


def mixed_sources(job: Job, surveyed: Survey) -> str | None:
    """Return why a job cannot compare what it is given: blocks of some bookies, entries of others."""
    if not any(item.published_only for item in job.inputs) or not (surveyed.paths or surveyed.table_sets):
        return None
    return "replicas in sets are not compared with those in directories: give sets of all bookies, or none"
