"""The closure of repairs: what each kind of finding names as its next step ends it, or says why not.

A :class:`Case` makes one kind of finding. :func:`close` runs the finding's commands, or does by hand what it
says to do instead; the finding must be gone then, and what the index served before must be served still.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkctl.config.loader import load
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.checked_bookie import CheckedBookie
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.readable import readable
from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"
Run = Callable[..., Any]
KindOf = Callable[[Any], str]
#: The bookie may be started beside others, and collects nothing meanwhile.
_STARTED = {
    "bookiePort": "0",
    "allowEphemeralPorts": "true",
    "httpServerEnabled": "false",
    "gcWaitTime": "3600000",
    "flushInterval": "3600000",
}


class Bench:
    """Where a case has its bookie: ``root`` is the bookie's folder."""

    def __init__(self, folder: Path, patch: Any) -> None:
        self.root = folder / "bookie"
        self.folder = folder
        self.patch = patch
        self.kept: dict[str, Any] = {}
        self._doctored: DoctoredBookie | None = None

    @property
    def bookie(self) -> DoctoredBookie:
        """A copy of a bookie with configuration, cookies and metadata, made when it is first asked for."""
        if self._doctored is None:
            self._doctored = DoctoredBookie.of(DEMO, self.root)
        return self._doctored

    def checked(self, storage: str = "db", count: int = 1) -> CheckedBookie:
        """A small bookie with six ledgers in two logs, not written yet."""
        made = CheckedBookie(self.root, storage, count)
        made.fill([4, 5, 6, 7])
        made.fill([8, 9], log_id=1)
        return made

    def move_away(self, path: Path) -> None:
        """Put a file or folder where nobody finds it."""
        shutil.move(path, self.folder / f"kept-{len(self.kept)}")
        self.kept[str(path)] = self.folder / f"kept-{len(self.kept)}"

    def bring_back(self) -> None:
        """Put everything that was moved away in its place again."""
        for path, kept in self.kept.items():
            if Path(path).is_dir():
                shutil.rmtree(path)
            shutil.move(kept, path)
        self.kept.clear()

    def start_and_stop(self, *, accept_loss: bool = False) -> None:
        """Start the bookie of the configuration, and stop it in order."""
        keys = {**_STARTED, "bookieId": self.bookie.cookie.bookie_host}
        config, _ = load(str(self.bookie.conf), keys, {}, memory_bytes=64 << 20)
        bookie = EmbeddedBookie(config=config, accept_loss=accept_loss)
        bookie.start()
        bookie.stop()


Do = Callable[[Bench], object]


def _nothing(bench: Bench) -> None:
    """The kind shows on the bookie as it is."""


def _conf(bench: Bench) -> tuple[object, ...]:
    return ("--conf", bench.bookie.conf)


@dataclass(frozen=True)
class Case:
    """``make`` brings the finding about, ``words`` are what the command is given.

    ``mend`` does by hand what the finding says to do instead of a command. ``refused`` is what a command says
    that refuses, because only a person can decide; ``lasting`` findings end by nothing that there is.
    ``during`` holds while the finding is looked for. ``served`` are entries that must be served in the end,
    whether they were before or not: a log proves them.
    """

    kind: str
    make: Do = _nothing
    words: Callable[[Bench], tuple[object, ...]] = _conf
    mend: Do | None = None
    refused: str | None = None
    lasting: bool = False
    instead: str = ""
    during: Callable[[Bench], Any] | None = field(default=None)
    served: frozenset[tuple[int, int]] = frozenset()


@contextmanager
def _during(case: Case, bench: Bench) -> Iterator[None]:
    if case.during is None:
        yield
        return
    with case.during(bench):
        yield


def close(run_cli: Run, command: tuple[str, ...], kind_of: KindOf, case: Case, bench: Bench) -> None:
    """Make the finding, take its next step, and look again."""

    def found() -> list[dict[str, Any]]:
        result = run_cli(*command, *case.words(bench), "-o", "ndjson", env={"BKCTL_METADATA_URI": None})
        assert result.exit_code in (0, 1, 3), result.stderr
        return [row for row in from_ndjson(result.stdout) if kind_of(row) == case.kind]

    case.make(bench)
    with _during(case, bench):
        rows = found()
        before = readable(bench.root)
        assert rows, f"{command}: {case.kind} was not found"
        refusals = [refusal for row in rows for refusal in _ended(run_cli, row, case, bench)]
    if case.mend is not None:
        case.mend(bench)
    if case.refused is not None:
        assert any(case.refused in refusal for refusal in refusals), refusals
    elif not case.lasting:
        assert found() == []
    after = readable(bench.root)
    assert {entry: after.get(entry) for entry in before} == before
    assert case.served <= after.keys()


def _ended(run_cli: Run, row: dict[str, Any], case: Case, bench: Bench) -> Iterator[str]:
    """Run the commands of a row; what refusals say."""
    if not row["commands"]:
        assert row["instead"], row
        assert case.instead in row["instead"], row
        assert case.mend is not None or case.lasting, f"nothing ends {case.kind}"
    if row["next"] is not None:
        for line in row["next"].split(" && "):
            program, *words = shlex.split(line)
            assert program == "bkctl"
            # "--help" says that the words are ones that the program understands, whatever they would do.
            assert run_cli(*words, "--help").exit_code == 0, line
    for program, *words in row["commands"]:
        assert program == "bkctl"
        result = run_cli(*words, env={"BKCTL_METADATA_URI": None})
        if result.exit_code == 4 and case.refused is not None:
            yield result.stderr
            return
        assert result.exit_code in (0, 1, 3), (words, result.stderr)
