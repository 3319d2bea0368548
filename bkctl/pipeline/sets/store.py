"""Find where sets are published, and which of them are complete.

::

    <store>/bkctl-sets.json                         it is a store of sets
    <store>/<bookie>/<time>-<random>/manifest.json  a complete set; written last
    <store>/<bookie>/<time>-<random>/<table>/part-<random>.parquet
    <store>/<bookie>/<time>-<random>/progress/      what a pass that was ended had read

Nothing in a store is changed and nothing is renamed. A set that is not wanted any more is removed as a whole,
by the store's own rules of expiry or by hand.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.pipeline.locations import Location
from bkctl.pipeline.sets.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    Manifest,
    bookie_of_name,
    decode_manifest,
    encode_manifest,
    name_in_path,
)
from bkctl.pipeline.survey import STORE_MARK

PROGRESS = "progress"
_MARK_TEXT = b'{"format":1}\n'


@dataclass(frozen=True, slots=True)
class CompleteSet:
    """A set whose manifest is whole and whose files are all there."""

    location: Location
    manifest: Manifest

    def files(self, table: str) -> list[str]:
        """Return the files of a table, as engines load them."""
        return [self.location.text_of(part.name) for part in self.manifest.tables.get(table, ())]


@dataclass(frozen=True, slots=True)
class BrokenSet:
    """A set that is not complete, and why."""

    location: Location
    bookie: str
    why: str


class SetStore:
    """Sets of many bookies in one directory. Every method raises StorageError."""

    def __init__(self, location: Location) -> None:
        self.location = location

    def is_there(self) -> bool:
        """Return whether sets have been published here."""
        return self.location.holds(STORE_MARK)

    def claim(self) -> None:
        """Make the directory a store. Raises RefusedError where something else is."""
        if self.is_there():
            return
        names = self.location.names()
        if names:
            raise RefusedError(
                f"--to {self.location.text}: holds {names[0]}, but no sets; choose another directory"
            )
        self.location.write(STORE_MARK, _MARK_TEXT)

    def bookies(self) -> list[str]:
        """Return the bookies of which there are sets, complete or not."""
        return sorted(bookie_of_name(name) for name in self.location.names() if name != STORE_MARK)

    def set_ids(self, bookie: str) -> list[str]:
        """Return the sets of a bookie, the newest first."""
        return sorted(self.location.child(name_in_path(bookie)).names(), reverse=True)

    def place_of(self, bookie: str, set_id: str) -> Location:
        """Return the directory of a set."""
        return self.location.child(name_in_path(bookie)).child(set_id)

    def read(self, bookie: str, set_id: str) -> CompleteSet | BrokenSet:
        """Look at a set."""
        place = self.place_of(bookie, set_id)
        try:
            data = place.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)
        except NotFoundError:
            return BrokenSet(place, bookie, "has no manifest: its pass did not finish, or is at work")
        try:
            manifest = decode_manifest(data, place.text_of(MANIFEST_NAME))
        except CorruptionError as error:
            return BrokenSet(place, bookie, str(error))
        if manifest.bookie != bookie:
            return BrokenSet(place, bookie, f"its manifest is of bookie {manifest.bookie}")
        sizes = place.sizes()
        for parts in manifest.tables.values():
            for part in parts:
                if sizes.get(part.name) != part.bytes:
                    found = "is not there" if part.name not in sizes else f"has {sizes[part.name]} bytes"
                    return BrokenSet(place, bookie, f"{part.name} {found}, its manifest says {part.bytes}")
        return CompleteSet(place, manifest)

    def sets_of(self, bookie: str) -> Iterator[CompleteSet | BrokenSet]:
        """Give the sets of a bookie, the newest first."""
        for set_id in self.set_ids(bookie):
            yield self.read(bookie, set_id)

    def newest(self, bookie: str) -> CompleteSet | None:
        """Return the newest complete set of a bookie."""
        return next((one for one in self.sets_of(bookie) if isinstance(one, CompleteSet)), None)

    def publish(self, manifest: Manifest) -> CompleteSet:
        """Make a set complete: everything else of it has been written."""
        place = self.place_of(manifest.bookie, manifest.set_id)
        place.write(MANIFEST_NAME, encode_manifest(manifest))
        return CompleteSet(place, manifest)


def new_set_id(started_ms: int) -> str:
    """Return a name for a set; names are in the order of their times."""
    when = datetime.datetime.fromtimestamp(started_ms / 1000, datetime.UTC)
    return f"{when:%Y%m%dT%H%M%S}{started_ms % 1000:03d}Z-{secrets.token_hex(4)}"


def time_of_set_id(set_id: str) -> int | None:
    """Return when the pass of a set began, by its name; None of a name that another program gave."""
    try:
        when = datetime.datetime.strptime(set_id.partition("-")[0], "%Y%m%dT%H%M%S%fZ")
    except ValueError:
        return None
    return int(when.replace(tzinfo=datetime.UTC).timestamp() * 1000)
