"""Repairs of a bookie that suffered any damage: what a log or a journal still proves is served, or unknown.

A truthful bookie is damaged at random; then come ``index check``, the commands that its findings name,
rebuilds, salvages, marks that are set, logs in quarantine and out of it, undos, a collection and a start,
with a dump that may be old, a part or another cluster's. Afterwards an entry that is still proved is served,
or its absence is answered as unknown; never as "no such entry". A repair that is undone leaves every byte as
before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

from bkctl.errors import (
    BkctlError,
    BookieIOError,
    CorruptionError,
    LedgerLimboError,
    NoEntryError,
    NoLedgerError,
    RefusedError,
    StorageError,
)
from tests.support.grades import times
from tests.support.readable import readable
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import LIVE, Entry, TruthfulBookie, dumps, started
from tests.support.truthful_damage import DAMAGES

Run = Callable[..., Any]
_KINDS = (("db", 1), ("db", 2), ("idx", 1), ("idx", 2))
#: Of each kind of storage; an example takes some tenths of a second.
EXAMPLES = settings().max_examples // len(_KINDS) if "SOAK_EXAMPLES" in os.environ else times(2, 6)
_VERBS = (
    "entrylog salvage",
    "entrylog quarantine",
    "journal salvage",
    "lastmark back",
    "lastmark on",
    "index limbo",
)
_NUMBERS = st.integers(0, 999)
_REBUILDS = st.sampled_from([(), ("--locations",), ("--ledgers",), ("--all",)])
_COLLECTIONS = st.sampled_from([None, (), ("--threshold", "0.9"), ("--delete-ledgers",)])


@dataclass(frozen=True)
class Verb:
    """A repair of logs, journals or marks; ``number`` chooses which, ``undone``: it is taken back at once."""

    name: str
    number: int
    undone: bool


@dataclass(frozen=True)
class Repair:
    """What is done after the damage. ``follow``: the commands that the findings name are run."""

    dump: str | None
    follow: bool
    rebuild: tuple[str, ...] | None
    accept_loss: bool
    collection: tuple[str, ...] | None
    verbs: tuple[Verb, ...]


DAMAGED = st.lists(st.tuples(st.sampled_from(sorted(DAMAGES)), _NUMBERS, _NUMBERS), max_size=4)
REPAIRED = st.builds(
    Repair,
    dump=st.sampled_from([None, "whole", "old", "partial", "foreign"]),
    follow=st.booleans(),
    rebuild=st.none() | _REBUILDS,
    accept_loss=st.booleans(),
    collection=_COLLECTIONS,
    verbs=st.lists(
        st.builds(Verb, st.sampled_from(_VERBS), st.integers(0, 99), st.booleans()), max_size=3
    ).map(tuple),
)


@pytest.fixture(scope="module")
def templates() -> Iterator[Path]:
    """One bookie of each kind, and the dumps."""
    folder = Path(tempfile.mkdtemp(prefix="repairs-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(templates: Path) -> Callable[[tuple[str, int]], TruthfulBookie]:
    return cache(lambda kind: TruthfulBookie.make(templates / f"{kind[0]}{kind[1]}", *kind))


@pytest.fixture(scope="module")
def dumped(templates: Path) -> dict[str, Path]:
    return dict(dumps(templates))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", _KINDS, ids=[f"{storage}{count}" for storage, count in _KINDS])
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(damages=DAMAGED, repair=REPAIRED)
def test_what_is_proved_is_served_or_unknown(
    run_cli: Run,
    made: Callable[[tuple[str, int]], TruthfulBookie],
    dumped: dict[str, Path],
    templates: Path,
    kind: tuple[str, int],
    damages: list[tuple[str, int, int]],
    repair: Repair,
) -> None:
    root = templates / "example"
    shutil.rmtree(root, ignore_errors=True)
    bookie = made(kind).copy(root)
    for name, one, two in damages:
        DAMAGES[name](bookie, one, two)
    dump = None if repair.dump is None else dumped[repair.dump]
    _Trial(run_cli, bookie, repair, dump).run()


class _Trial:
    """One example: the bookie is damaged already."""

    def __init__(self, run_cli: Run, bookie: TruthfulBookie, repair: Repair, dump: Path | None) -> None:
        self._run_cli = run_cli
        self._bookie = bookie
        self._repair = repair
        self._dump = ("--metadata", str(dump)) if dump is not None else ()
        known = bookie.known_ledgers()
        self._known = set(LIVE) & (set(LIVE) if known is None or repair.dump == "whole" else known)
        self._proved = bookie.proved_by_logs() | bookie.proved_by_journals()
        self._readable = self._served_offline()
        self._repaired = repair.follow

    def run(self) -> None:
        self._repairs()
        for verb in self._repair.verbs:
            self._does(verb)
        self._collects()
        if self._bookie.storage == "db":
            self._starts()
        else:
            self._is_complete_where_clean()

    def _command(self, *words: str) -> int:
        result = self._run_cli(*words, env={"BKCTL_METADATA_URI": None})
        note(f"{' '.join(words)}\n  -> {result.exit_code} {result.stderr}")
        # Of several directories without a cookie their order has to be given by a person; so has a ledger
        # directory without a cookie, a log or a mark, which may be one of an index alone.
        unordered = result.exit_code == 2 and (
            "no cookie with their order" in result.stderr
            or ("no entry log in it" in result.stderr and not self._has_cookies())
        )
        assert unordered or result.exit_code in (0, 1, 3, 4, 6, 7), (words, result.stderr)
        self._nothing_was_lost(words)
        return int(result.exit_code)

    def _has_cookies(self) -> bool:
        """Whether every ledger directory has its cookie still."""
        directories = range(self._bookie.directories)
        return all((self._bookie.current(number) / "VERSION").exists() for number in directories)

    def _served_offline(self) -> dict[Entry, bytes]:
        """What the index finds of ledgers that exist, as it was written."""
        found = readable(self._bookie.root)
        bodies = self._bookie.truth.bodies
        return {
            entry: body for entry, body in found.items() if entry[0] in LIVE and body == bodies.get(entry)
        }

    def _nothing_was_lost(self, words: tuple[str, ...]) -> None:
        after = self._served_offline()
        lost = {entry for entry, body in self._readable.items() if after.get(entry) != body}
        assert not lost, f"{words}: {sorted(lost)[:5]} of {len(lost)} were served before"
        self._readable = after

    def _check(self) -> list[dict[str, Any]]:
        words = ("index", "check", str(self._bookie.root), *self._dump, "-o", "ndjson")
        result = self._run_cli(*words, env={"BKCTL_METADATA_URI": None})
        if result.exit_code == 4 and self._dump:
            # Another cluster's metadata are refused by name; the operator goes on without them.
            assert "Metadata of another cluster" in result.stderr
            assert self._repair.dump == "foreign"
            self._dump = ()
            return self._check()
        assert result.exit_code in (0, 1, 3), result.stderr
        return from_ndjson(result.stdout)

    def _repairs(self) -> None:
        if self._repair.follow:
            for _ in range(2):
                done: set[tuple[str, ...]] = set()
                for row in self._check():
                    for _, *words in row["commands"]:
                        if tuple(words) not in done:
                            done.add(tuple(words))
                            # What is refused needs a person: a log brought back, or the loss accepted.
                            self._repaired &= self._command(*words) not in (2, 4)
        if self._repair.rebuild is not None:
            more = ("--accept-loss",) if self._repair.accept_loss else ()
            # Of .idx files all is rebuilt at once.
            parts = self._repair.rebuild if self._bookie.storage == "db" else ()
            words = ("index", "rebuild", str(self._bookie.root), *parts, *self._dump, *more)
            self._command(*words, "--storage", self._bookie.storage, "--yes")

    def _does(self, verb: Verb) -> None:
        words = self._words_of(verb)
        if words is None:
            return
        before = self._files()
        code = self._verb(*words)
        if code not in (0, 1):
            assert self._files() == before, words
            return
        event(f"{verb.name} ended with {code}")
        if verb.undone:
            if self._files() != before:
                assert self._verb("repair", "undo", str(self._bookie.root), "--yes") == 0, words
            assert self._files() == before, words
        elif verb.name == "entrylog quarantine":
            # Meanwhile nothing that is common may cost the entries that are to come back.
            self._verb("gc", "run", str(self._bookie.root), "--yes")
            self._verb("index", "check", str(self._bookie.root))
            assert self._verb(*words, "--release") == 0
        elif verb.name == "journal salvage":
            fresh, old = self._bookie.root / "fresh", self._bookie.root.parent / "old-journal"
            shutil.rmtree(old, ignore_errors=True)
            self._bookie.journal.parent.rename(old)
            fresh.rename(self._bookie.journal.parent)
        self._nothing_was_lost(words)

    def _words_of(self, verb: Verb) -> tuple[str, ...] | None:
        logs, journals, root = self._bookie.logs(), self._bookie.journals(), str(self._bookie.root)
        if verb.name.startswith("entrylog"):
            return (*verb.name.split(), str(logs[verb.number % len(logs)]), "--yes") if logs else None
        if verb.name == "journal salvage":
            return ("journal", "salvage", root, "--out", f"{root}/fresh", "--yes")
        if verb.name == "index limbo":
            return ("index", "limbo", str(LIVE[verb.number % len(LIVE)]), root, "--yes")
        if not journals:
            return None
        journal = journals[verb.number % len(journals)]
        offset = journal.stat().st_size if verb.name == "lastmark on" else 0
        more = ("--accept-loss",) if verb.name == "lastmark on" else ()
        place = ("--journal", hex(int(journal.stem, 16)), "--offset", str(offset))
        return ("lastmark", "set", root, *place, *more, "--yes")

    def _verb(self, *words: str) -> int:
        """Run a repair; what it refuses, also because the directories cannot be told apart, is no failure."""
        result = self._run_cli(*words, env={"BKCTL_METADATA_URI": None})
        note(f"{' '.join(words)}\n  -> {result.exit_code} {result.stderr}")
        assert result.exit_code in (0, 1, 2, 3, 4, 6, 7), (words, result.stderr)
        assert "a bug in bkctl" not in result.stderr, (words, result.stderr)
        return int(result.exit_code)

    def _files(self) -> dict[str, bytes]:
        root = self._bookie.root
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def _collects(self) -> None:
        words = self._repair.collection
        if words is None:
            return
        # Who trusts a dump says that it is complete; without a dump nothing says what exists.
        trusts = bool(self._dump) and self._repair.dump != "partial"
        dump = (*self._dump, "--trust-dump") if trusts else self._dump
        words = tuple(word for word in words if trusts or word != "--delete-ledgers")
        confirmed = ("--confirm-deletions",) if self._repair.accept_loss else ()
        self._command("gc", "run", str(self._bookie.root), *words, *dump, *confirmed, "--yes")

    def _starts(self) -> None:
        root, directories = self._bookie.root, self._bookie.directories
        lossy = [False, True] if self._repair.accept_loss else [False]
        for accept_loss in lossy:
            try:
                with started(root, directories, accept_loss=accept_loss) as engine:
                    self._reads(engine.reads.read)
                event("started" if not accept_loss else "started with a loss")
                return
            except (RefusedError, StorageError, CorruptionError) as error:
                note(f"start: {error}")
        event("refused")

    def _reads(self, read: Callable[[int, int], bytes]) -> None:
        wanted = [entry for entry in self._proved if self._must_be_told(entry)]
        for entry in sorted(wanted):
            try:
                # A record whose bytes were changed is served as it is: its reader checks the digest.
                assert read(*entry)[:16] == self._bookie.truth.bodies[entry][:16], entry
            except (LedgerLimboError, BookieIOError):
                continue
            except (NoEntryError, NoLedgerError) as error:
                raise AssertionError(f"{entry} is proved, and the answer is {error!r}") from error
            except BkctlError as error:
                raise AssertionError(f"{entry}: {error!r}") from error

    def _must_be_told(self, entry: Entry) -> bool:
        """Whether something tells that the entry exists. Without repairs a row that is gone tells nothing:
        a bookie looks at its index alone, and for that it is a deleted ledger's, or was never there."""
        if entry[0] not in self._known:
            return False
        return self._repaired or entry in self._readable

    def _is_complete_where_clean(self) -> None:
        """No bookie of ours starts on ``.idx`` files; where the check finds no damage nothing is missing that
        the next replay does not bring back."""
        rows = self._check()
        if not rows or any(row["severity"] == "damage" for row in rows):
            return
        wanted = self._bookie.proved_by_logs() - self._bookie.proved_by_journals()
        missing = {entry for entry in wanted if entry[0] in self._known} - set(self._readable)
        assert not missing, sorted(missing)[:5]
