"""The record of one repair: what it changes, where the old state is kept, and what it left, as JSON.

::

    {
        "kind": "bkctl repair",
        "version": 1,
        "number": "20261123T051500Z",
        "made_by": "lastmark set",
        "state": "done",
        "time_ms": 1795411200000,
        "detail": "journal 28, offset 512",
        "directories": [".", "../../journal/current"],
        "changes": [
            {"what": "file", "path": "lastMark", "kept": "bkctl-repairs/20261123T051500Z/0"},
            {"what": "file", "path": "1f.log", "kept": null},
            {"what": "start", "path": "0/5/5.idx", "kept": "bkctl-repairs/20261123T051500Z/2"},
            {"what": "moved", "path": "1c.log", "to": "bkctl-quarantine/1c.log"},
            {"what": "database", "path": "ledgers", "kept": "bkctl-repairs/20261123T051500Z/1"},
            {"what": "directory", "path": "bkctl-quarantine"},
            {"what": "index_folder", "path": "0", "kept": "idx.BACKUP-20261123T051500.000001Z/0"},
        ],
        "kept": {"bkctl-repairs/20261123T051500Z/0": "16 8f434346648f6b96a4d01fe54ca7cb81"},
        "before": {".": {"lastMark": "16 8f434346648f6b96", "1c.log": "4711"}},
        "after": null,
    }

All paths are relative to the directory that the record belongs to. ``changes`` are in the order in which they
are made. Of a file or database ``kept`` is its old content, null where there was none, of ``start`` the first
bytes of a file of which nothing else changes; ``moved`` keeps its bytes at ``to``; a ``directory`` was not
there before. Of an ``index_folder``, a folder of folders of ``.idx`` files, ``kept`` is a folder that has all
its old files, null where there was none. The other ``kept`` has the length of each kept file, and a digest
but for tables; it is null until all is kept, and records of earlier versions have none. ``before`` and
``after`` have the files of each directory: the length, and for small files a digest; of a folder of ``.idx``
files their number and a digest. ``after`` is null until the repair has come to its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bkctl.codec.json_document import DocumentKind

KIND = "bkctl repair"
VERSION = 1
_DOCUMENT = DocumentKind("record of a repair", KIND, VERSION)
_expect = _DOCUMENT.expect

#: The files of directories: directory, name, and the length with perhaps a digest.
State = Mapping[str, Mapping[str, str]]


class RepairState(StrEnum):
    """How far a repair is.

    ``keeping``: nothing is changed yet. ``begun``: it may be changed in part. ``done``. ``undoing``: it is
    being taken back. ``undone``: it was, only the record and what it kept are left.
    """

    KEEPING = "keeping"
    BEGUN = "begun"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"


class ChangeKind(StrEnum):
    """The kinds of things that a repair changes."""

    FILE = "file"
    START = "start"
    MOVED = "moved"
    DATABASE = "database"
    DIRECTORY = "directory"
    INDEX_FOLDER = "index_folder"


@dataclass(frozen=True, slots=True)
class RepairChange:
    """One thing that a repair changes; ``kept`` is None for what was not there, ``to`` for all but a move."""

    what: ChangeKind
    path: str
    kept: str | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class RepairRecord:
    """One repair; see the module."""

    number: str
    made_by: str
    state: RepairState
    time_ms: int
    detail: str
    directories: tuple[str, ...]
    changes: tuple[RepairChange, ...]
    before: State
    after: State | None = None
    kept: Mapping[str, str] | None = None


def encode_repair_record(record: RepairRecord) -> bytes:
    """Return the record as a JSON document."""
    document = {
        "kind": KIND,
        "version": VERSION,
        "number": record.number,
        "made_by": record.made_by,
        "state": record.state.value,
        "time_ms": record.time_ms,
        "detail": record.detail,
        "directories": list(record.directories),
        "changes": [_change_object(change) for change in record.changes],
        "kept": record.kept,
        "before": record.before,
        "after": record.after,
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _change_object(change: RepairChange) -> dict[str, str | None]:
    found: dict[str, str | None] = {"what": change.what.value, "path": change.path}
    if change.what is ChangeKind.MOVED:
        found["to"] = change.to
    elif change.what is not ChangeKind.DIRECTORY:
        found["kept"] = change.kept
    return found


def decode_repair_record(data: bytes) -> RepairRecord:
    """Return the record in a document.

    Raises CorruptionError for anything that :func:`encode_repair_record` never writes; fields of later
    versions are left out.
    """
    document = _DOCUMENT.members(data)
    state, time_ms, changes = (document.get(name) for name in ("state", "time_ms", "changes"))
    _expect(state in list(RepairState), "a state", state)
    _expect(type(time_ms) is int and 0 <= time_ms < 2**63, "a time", time_ms)
    _expect(isinstance(changes, list), "a list of changes", changes)
    directories = document.get("directories")
    _expect(isinstance(directories, list), "a list of directories", directories)
    after, kept = document.get("after"), document.get("kept")
    return RepairRecord(
        _name(document.get("number")),
        _text(document.get("made_by")),
        RepairState(state),
        time_ms,
        _text(document.get("detail")),
        tuple(map(_path, directories)),
        tuple(map(_change, changes)),
        state_in(document.get("before")),
        None if after is None else state_in(after),
        None if kept is None else _files(kept),
    )


def _change(row: Any) -> RepairChange:
    _expect(isinstance(row, dict), "an object for each change", row)
    _expect(row.get("what") in list(ChangeKind), "what is changed", row.get("what"))
    what, path = ChangeKind(row["what"]), _path(row.get("path"))
    if what is ChangeKind.MOVED:
        return RepairChange(what, path, to=_path(row.get("to")))
    if what is ChangeKind.DIRECTORY:
        return RepairChange(what, path)
    kept = row.get("kept")
    return RepairChange(what, path, None if kept is None else _path(kept))


def state_in(value: Any) -> State:
    """Return a value out of JSON as the files of directories. Raises CorruptionError."""
    _expect(isinstance(value, dict), "the files of directories", value)
    return {_path(directory): _files(files) for directory, files in value.items()}


def _files(value: Any) -> Mapping[str, str]:
    _expect(isinstance(value, dict), "the files of a directory", value)
    return {_text(name): _text(facts) for name, facts in value.items()}


def _name(value: Any) -> str:
    _expect(isinstance(value, str) and value.isascii() and value.isalnum(), "a number", value)
    return str(value)


def _path(value: Any) -> str:
    # A lone surrogate, or a NUL, is in no path.
    is_path = isinstance(value, str) and bool(value) and not value.startswith("/") and value.isprintable()
    _expect(is_path, "a relative path", value)
    return str(value)


def _text(value: Any) -> str:
    _expect(isinstance(value, str) and value.isprintable(), "a text", value)
    return str(value)
