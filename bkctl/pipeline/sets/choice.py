"""Which set of each bookie an audit reads, and what about the sets keeps it from a judgement.

The newest complete set counts, by its manifest. A fault of a store never makes an answer better: a
bookie without a set, with a set that is too old, or with sets of two machines is named, and what is said of
it is not examined.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bkctl.errors import CorruptionError, NotFoundError
from bkctl.pipeline.sets.store import BrokenSet, CompleteSet, SetStore, time_of_set_id
from bkctl.pipeline.table_sets import lacking_directories
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.scan.json_members import members
from bkctl.vfs import FileSystem

#: Sets of a bookie that are looked at for those of another machine.
_LOOKED_AT = 10
_WHAT = "metadata dump"
#: A set may be so much younger than the clock that judges it: clocks of machines differ.
_AHEAD_MS = 10 * 60_000


#: A pass newer than the set that is read did not finish, or is at work: what it would have seen is not known.
CUT_SHORT = "sets_cut_short"


@dataclass(frozen=True, slots=True)
class SetWish:
    """Which sets are wanted: complete at ``as_of_ms``, and no older than ``max_age_ms`` then; 0 is no
    bound."""

    as_of_ms: int | None = None
    max_age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A question that cannot be judged because of the sets: the word of the verdict, and a sentence."""

    unknown: str
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The sets to read, the errors, and the notes that are only to be reported."""

    sets: tuple[CompleteSet, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as far as it is in the metadata; a field is None when the metadata do not have it."""

    instance_id: str | None = None
    bookies: frozenset[str] | None = None


def choose_sets(stores: Iterable[SetStore], wish: SetWish, now_ms: int, cluster: Cluster) -> Choice:
    """Choose the newest complete set of every bookie. Raises StorageError."""
    chosen: list[CompleteSet] = []
    problems: list[Problem] = []
    notes: list[str] = []
    missing: set[str] = set(cluster.bookies or ())
    for store in stores:
        for bookie in store.bookies():
            found = _candidates(store, bookie, wish)
            complete = [one for one in found if isinstance(one, CompleteSet)]
            if not complete:
                problems.append(_missing(bookie, store, found))
                missing.discard(bookie)
                continue
            newest = complete[0]
            cut_short = [
                f"{one.location.text}: {one.why}; an older set is read"
                for one in found[: found.index(newest)]
                if isinstance(one, BrokenSet)
            ]
            notes += cut_short
            problems += [Problem(CUT_SHORT, why) for why in cut_short]
            missing.discard(bookie)
            if _is_foreign(newest, cluster):
                problems.append(_foreign(newest, cluster.instance_id))
                continue
            problems += _problems_of(newest, complete, wish, now_ms)
            chosen.append(newest)
    for bookie in sorted(missing):
        problems.append(
            Problem("sets_missing", f"bookie {bookie}: metadata has its cookie, and there is no set of it")
        )
    problems += _several_clusters(chosen) if cluster.instance_id is None else []
    return Choice(tuple(chosen), tuple(problems), tuple(notes))


def _candidates(store: SetStore, bookie: str, wish: SetWish) -> list[CompleteSet | BrokenSet]:
    """List the newest sets of a bookie, as far as they had been made then."""
    found: list[CompleteSet | BrokenSet] = []
    complete = 0
    for one in store.sets_of(bookie):
        if isinstance(one, CompleteSet):
            if wish.as_of_ms is not None and one.manifest.ended_ms > wish.as_of_ms:
                continue
            complete += 1
        elif wish.as_of_ms is not None and (_begun_ms(one) or 0) > wish.as_of_ms:
            continue
        found.append(one)
        if complete >= _LOOKED_AT:
            break
    return found


def _begun_ms(one: BrokenSet) -> int | None:
    return time_of_set_id(one.location.path.rpartition("/")[2])


def _missing(bookie: str, store: SetStore, found: Sequence[CompleteSet | BrokenSet]) -> Problem:
    why = f"; {found[0].location.text} {found[0].why}" if found and isinstance(found[0], BrokenSet) else ""
    return Problem("sets_missing", f"bookie {bookie}: no complete set of it in {store.location.text}{why}")


def _is_foreign(one: CompleteSet, cluster: Cluster) -> bool:
    instance = one.manifest.instance_id
    return cluster.instance_id is not None and instance is not None and instance != cluster.instance_id


def _foreign(one: CompleteSet, instance_id: str | None) -> Problem:
    return Problem(
        "sets_foreign",
        f"{one.location.text} is of another cluster (instance {one.manifest.instance_id}, metadata is of "
        f"{instance_id}): it is left out",
    )


def _problems_of(
    newest: CompleteSet, complete: Sequence[CompleteSet], wish: SetWish, now_ms: int
) -> Iterable[Problem]:
    manifest = newest.manifest
    age_ms = (wish.as_of_ms if wish.as_of_ms is not None else now_ms) - manifest.started_ms
    if wish.max_age_ms and age_ms > wish.max_age_ms:
        yield Problem(
            "sets_stale",
            f"{newest.location.text} is {_hours(age_ms)} old: --max-age is {_hours(wish.max_age_ms)}",
        )
    if age_ms < -_AHEAD_MS:
        yield Problem(
            "sets_ahead",
            f"{newest.location.text} is of {_hours(-age_ms)} from now by the clock of {manifest.host}: while "
            "it is there, every set made after it counts as older than it; remove it if that clock was wrong",
        )
    yield from _lost_directories(newest, complete)
    origin = _origin(newest)
    mine = [one.manifest.started_ms for one in complete if _origin(one) == origin]
    for other in complete:
        if _origin(other) != origin and other.manifest.started_ms > min(mine):
            yield Problem(
                "sets_twin",
                f"bookie {manifest.bookie} is collected on {manifest.host} and on {other.manifest.host} "
                f"({other.location.text}): are there two copies of it?",
            )
            return


def _lost_directories(newest: CompleteSet, complete: Sequence[CompleteSet]) -> Iterable[Problem]:
    """Give a problem where a set lacks directories that its bookie's cookie names and that sets before it
    have: their disk may be gone."""
    before = {path for one in complete for path in one.manifest.dirs}
    gone = sorted(before.difference(newest.manifest.dirs))
    if gone and any(lacking_directories(newest.manifest.bookies)):
        yield Problem(
            "sets_partial",
            f"{newest.location.text} lacks {', '.join(gone)}, which sets of bookie {newest.manifest.bookie} "
            "before it have: what is in them now is not known",
        )


def _origin(one: CompleteSet) -> tuple[str, tuple[str, ...]]:
    return one.manifest.host, one.manifest.dirs


def _hours(age_ms: int) -> str:
    return f"{age_ms / 3_600_000:.1f} h"


def _several_clusters(chosen: Sequence[CompleteSet]) -> Iterable[Problem]:
    known = sorted({one.manifest.instance_id for one in chosen if one.manifest.instance_id})
    if len(known) > 1:
        yield Problem("sets_foreign", f"the sets are of {len(known)} clusters: instances {', '.join(known)}")


def read_cluster(filesystem: FileSystem, metadata: str | None) -> Cluster:
    """Read the cluster of metadata and its bookies with a cookie; nothing of a directory of tables.

    Raises as opening a store or a dump does.
    """
    if metadata is None:
        return Cluster()
    if is_uri(metadata):
        from bkctl.metadata.login import logged_in
        from bkctl.metadata.uri import open_metadata_store

        with open_metadata_store(metadata, logged_in(os.environ)) as store:
            return Cluster(store.layout.instance_id(), frozenset(store.cookies.cookie_bookies()))
    facts = filesystem.status(metadata)
    if facts is None:
        raise NotFoundError(f"{metadata}: no such file or directory")
    return Cluster() if facts.is_dir else _dumped_cluster(filesystem, metadata)


def _dumped_cluster(filesystem: FileSystem, path: str) -> Cluster:
    import base64

    instance: str | None = None
    bookies: set[str] = set()
    file = filesystem.open(path)
    try:
        for member in members(file, _WHAT):
            parts = member.name.rsplit("/", 2)
            if parts[-1] == "INSTANCEID" and isinstance(member.value, dict):
                data = base64.b64decode(str(member.value.get("data") or ""), validate=False)
                instance = data.decode("utf-8", "replace") or None
            elif len(parts) == 3 and parts[1] == "cookies":
                bookies.add(parts[2])
    except CorruptionError as error:
        raise error.located(path) from None
    finally:
        file.close()
    return Cluster(instance, frozenset(bookies) or None)


def parse_time(text: str) -> int:
    """Return a time in milliseconds since 1970: ISO 8601, UTC unless it says, or such a number.

    Raises ValueError.
    """
    if text.isdigit():
        return int(text)
    when = datetime.datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return int(when.timestamp() * 1000)
