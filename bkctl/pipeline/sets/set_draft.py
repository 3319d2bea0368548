"""A set while its bookie is collected: the files written so far, and what of it is not known."""

from __future__ import annotations

import platform
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bkctl import __version__, _kernels
from bkctl.errors import BkctlError, StorageError
from bkctl.pipeline.locations import Location
from bkctl.pipeline.results import CLEAN, FOUND, UNEXAMINED
from bkctl.pipeline.sets.log_pass import Keep
from bkctl.pipeline.sets.manifest import PARTLY_READ, UNREADABLE, IndexState, Manifest, PartFile, SetFile
from bkctl.pipeline.sets.parts import PartWriters
from bkctl.pipeline.sets.set_tables import OF_LOGS, OF_THE_REST, TABLES
from bkctl.pipeline.sets.store import CompleteSet
from bkctl.pipeline.table_sets import lacking_directories, twin_directories
from bkctl.pipeline.tables.places import cookie_of
from bkctl.pipeline.tables.unread_notes import UnreadFile
from bkctl.reporting import counted
from bkctl.scan.directory import COOKIE_NAME, read_small
from bkctl.vfs import FileSystem


class SetDraft:
    """A set of a bookie, in its place in the store. ``rows`` are those of its table ``bookies``.

    ``files`` are those that were read, ``guards`` say what is not known, ``damages`` counts those of journals
    and indexes.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        place: Location,
        bookie: str,
        set_id: str,
        rows: list[dict[str, Any]],
        started_s: float,
    ) -> None:
        self._filesystem = filesystem
        self._place = place
        self._bookie = bookie
        self._set_id = set_id
        self._rows = rows
        self._started_s = started_s
        self._parts: dict[str, list[PartFile]] = defaultdict(list)
        self._not_read: dict[str, str] = {}
        self.files: list[SetFile] = []
        self.guards: list[str] = []
        self.damages = 0
        self.indexes: list[IndexState] = []
        self.last_marks: list[dict[str, Any]] = []

    def counting(self, writers: PartWriters) -> Keep:
        """Return what writes rows of journals and indexes; of these all of ``verification`` are damage."""

        def keep(table: str, batches: Iterable[pa.RecordBatch]) -> None:
            for batch in batches:
                self.damages += batch.num_rows if table == "verification" else 0
                writers.add(table, (batch,))

        return keep

    def take(self, parts: dict[str, PartFile]) -> None:
        """Note files of tables that were written."""
        for table, part in parts.items():
            self._parts[table].append(part)

    def read_again(self, table: str, read: Callable[[Keep], str | None]) -> None:
        """Write a table for which entry logs are read once more; of which one may be that cannot be read."""
        try:
            with PartWriters(self._place, OF_THE_REST) as writers:
                why = read(writers.add)
                self.take(writers.close())
        except StorageError as error:
            if not self._unread_logs(UNREADABLE):
                raise
            why = f"table {table} is empty: {error}"
        if why is not None:
            self._not_read[table] = why
            self.guards.append(why)

    def loadable(self, table: str) -> list[str]:
        """Return the files of a table so far; one without rows where there is none."""
        if not self._parts[table]:
            self._parts[table].append(_empty_part(self._place, table, TABLES[table]))
        return [self._place.text_of(part.name) for part in self._parts[table]]

    def heed_journals(self, unread: Sequence[UnreadFile]) -> None:
        """Take over which journals could not be read, or not whole."""
        states = {one.path: PARTLY_READ if one.opened else UNREADABLE for one in unread}
        self.files = [
            replace(file, state=states[file.path]) if file.path in states else file for file in self.files
        ]
        self.guards += (f"{one.why}; what it holds is not known" for one in unread)
        for table, lacking in (
            ("journal_entries", unread),
            ("unflushed", [one for one in unread if one.behind_mark]),
        ):
            if lacking:
                files = counted(len(lacking), "journal or last mark", "journals or last marks")
                self._not_read[table] = f"{files} could not be read, or not whole"

    def _unread_logs(self, state: str) -> list[SetFile]:
        return [file for file in self.files if file.kind == "entry_log" and file.state == state]

    def manifest(
        self, unread: dict[str, str], gone: int, digest_known: str, base: CompleteSet | None
    ) -> Manifest:
        """Return the manifest of what was gathered; ``unread`` are directories whose index was left out, and
        ``gone`` counts the logs that went away."""
        verdict = self._verdict(unread, gone)
        for table in TABLES:
            self.loadable(table)
        return Manifest(
            bookie=self._bookie,
            set_id=self._set_id,
            instance_id=self._instance_id(),
            host=socket.gethostname(),
            cookie=self._cookie_text(),
            dirs=tuple(sorted(row["dir"] for row in self._rows)),
            started_ms=int(self._started_s * 1000),
            ended_ms=int(time.time() * 1000),
            version=__version__,
            kernel=f"{platform.system()} {platform.release()}, {_kernels.IMPL} kernels",
            digest_known=digest_known,
            verdict=verdict,
            guards=tuple(dict.fromkeys(self.guards)),
            unread_indexes=tuple(sorted(unread)),
            logs_gone=gone,
            not_read=self._not_read,
            last_marks=tuple(self.last_marks),
            tables={name: tuple(self._parts[name]) for name in TABLES},
            files=tuple(sorted(self.files, key=lambda file: (file.kind, file.dir, file.id))),
            bookies=tuple(self._rows),
            base=None if base is None else base.manifest.set_id,
            indexes=tuple(self.indexes),
        )

    def _verdict(self, unread: dict[str, str], gone: int) -> str:
        """Return what the set says of its bookie, and note as guards why no more is known."""
        for why in twin_directories(self._rows).values():
            self.guards.append(f"bookie {self._bookie}: {why}; are there two copies of it? Name one of them")
            self._not_read["bookies"] = why
        damage = [file for file in self.files if not file.whole]
        partly = self._unread_logs(PARTLY_READ)
        for file in partly:
            self.guards.append(f"{file.path} could not be read whole: what is lacking is not known")
        if partly:
            # Of a log whose ledgers map was read all ledgers are known. Its row says what its header does.
            lacking = {"runs", "blocks"} | (set() if all(file.sealed for file in partly) else {"log_ledgers"})
            self._not_read |= dict.fromkeys(
                lacking, f"{counted(len(partly), 'entry log')} could not be read whole"
            )
        unreadable = self._unread_logs(UNREADABLE)
        for file in unreadable:
            self.guards.append(f"{file.path} could not be read: what it holds is not known")
        if unreadable:
            # Table "verification" has a damage for each.
            of_none = (table for table in OF_LOGS if table != "verification")
            self._not_read |= dict.fromkeys(
                of_none, f"{counted(len(unreadable), 'entry log')} could not be read"
            )
        not_given = list(lacking_directories(self._rows))
        self.guards += not_given
        verdict = FOUND if damage or self.damages else CLEAN
        return UNEXAMINED if gone or unread or not_given or self._not_read else verdict

    def _instance_id(self) -> str | None:
        for row in self._rows:
            cookie = cookie_of(self._filesystem, row["dir"])
            if cookie is not None and cookie.instance_id:
                return cookie.instance_id
        return None

    def _cookie_text(self) -> str | None:
        for row in self._rows:
            try:
                data = read_small(self._filesystem, f"{row['dir']}/{COOKIE_NAME}")
            except BkctlError:
                continue
            return data.decode("utf-8", "replace")
        return None


def _empty_part(place: Location, table: str, schema: pa.Schema) -> PartFile:
    """Write a file without rows, so that the columns of the table are known."""
    import pyarrow.parquet as pq

    name = f"{table}/part-{secrets.token_hex(8)}.parquet"
    with place.opened(name) as stream:
        pq.write_table(schema.empty_table(), stream)
        size = int(stream.tell())
    return PartFile(name, 0, size)
