"""Links, FIFOs, devices and the like at names that a command reads or writes, and what must hold afterwards.

A :class:`Trap` is one such name of one command. Outside the bookie's folder lies what links lead to: the
:class:`Outside`, which no command may change, and of which no byte may come into the bookie's folder or onto
the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.closure import DEMO
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.forked_commands import Ended, ForkedCommands

#: A command on a small bookie takes tenths of a second; one that waits for a FIFO does not end at all.
LIMIT_S = 60.0
SECRET = "only-root-may-read-this"
#: Whoever plants, where the tests run as root: nobody.
PLANTER = 65534
IS_ROOT = os.geteuid() == 0

#: Every command whose names are tried; {R} is the bookie's folder. Its first words are the command's name.
_CONF = "--conf {R}/bk_server.conf"
_START = "-X bookiePort=0 -X allowEphemeralPorts=true -X bookieId=127.0.0.1:4100 -X httpServerEnabled=false"
COMMANDS = tuple(
    line.split()
    for line in f"""
inspect {{R}}
inspect {{R}}/ledgers/current/0.log
inspect {{R}}/journal/current/VERSION
entrylog list {{R}}
entrylog show {{R}}/ledgers/current/0.log --walk
entrylog scan {{R}} --payload hex
entrylog verify {{R}}
entrylog salvage {{R}}/ledgers/current/0.log --yes
entrylog quarantine {{R}}/ledgers/current/0.log --yes
journal list {{R}}
journal scan {{R}} --payload hex
journal verify {{R}}
journal salvage {{R}} --out {{R}}/out/fresh --losses {{R}}/out/losses --yes
index scan {{R}}
index ledgers {{R}}
index get 1 100 {{R}}
index check {{R}} {_CONF}
index rebuild {{R}} {_CONF} --jobs 1 --yes
index rebuild {{R}} {_CONF} --jobs 1 --yes --drop-old --locations
index rebuild {{R}} --dry-run --jobs 1
index repair {{R}} {_CONF} --yes
index limbo 1 {{R}} --yes
index stats {{R}}
index compact {{R}} --yes
space {{R}}
gc explain {{R}} {_CONF}
gc plan {{R}} {_CONF} --threshold 0.99
gc run {{R}} {_CONF} --threshold 0.99 --delete-ledgers --confirm-deletions --yes
gc run {{R}} {_CONF} --threshold 0.99 --delete-ledgers --confirm-deletions --yes --scratch {{R}}/scratch
bookie start {_CONF} {_START}
bookie init {_CONF} -X journalDirectories={{R}}/j2 -X ledgerDirectories={{R}}/l2 -X bookieId=new
bookie check-conf {_CONF} --all
bookie rebuild {_CONF} --yes
bookie convert {_CONF} --to interleaved --jobs 1 --yes
bookie convert {_CONF} --drop-old --yes
bookie format {_CONF} --yes
cluster init {_CONF} --metadata embedded://{{R}}/out/new.db
ledger delete 2 {_CONF} --yes --undo-file {{R}}/out/undo
metadata dump {_CONF} --out {{R}}/out/dump.json
doctor {_CONF} --deep
doctor {{R}}
cookie get {{R}}
cookie diff {_CONF}
cookie generate {_CONF} --out {{R}}/out/VERSION
lastmark show {{R}}
lastmark set {{R}} --journal 0 --offset 0 --yes
repair plan {{R}} --out {{R}}/out/plan.json
repair log {{R}}
repair undo {{R}} --yes
repair forget {{R}} --yes
pipeline collect {{R}} --to {{R}}/out/sets --jobs 1
pipeline run index-audit {{R}} --out {{R}}/out/audit --jobs 1 --engine local --report {{R}}/out/report.html
pipeline run index-rebuild {{R}} --out {{R}}/out/rebuild --jobs 1 --engine local --yes
""".strip().splitlines()
)

#: Commands that name no file of a bookie's, each with its reason.
_OF_A_LIVE_BOOKIE = "asks bookies over the network; of files it opens the configuration alone"
_OF_THE_STORE = "opens only what the operator names: the configuration, the metadata store, a file"
_BACKED_UP = "makes a backup whose name has the time, as cookie generate makes a cookie"
_OF_CONTEXTS = "opens the file of contexts in the configuration directory of its user, and no other"
EXCLUDED = {
    "autorecovery auditor": _OF_THE_STORE,
    "autorecovery delay": _OF_THE_STORE,
    "autorecovery disable": _OF_THE_STORE,
    "autorecovery enable": _OF_THE_STORE,
    "autorecovery list": _OF_A_LIVE_BOOKIE,
    "autorecovery start": _OF_A_LIVE_BOOKIE,
    "autorecovery status": _OF_THE_STORE,
    "autorecovery trigger": _OF_THE_STORE,
    "maintenance begin": _OF_THE_STORE,
    "maintenance end": _OF_THE_STORE,
    "maintenance status": _OF_THE_STORE,
    "bookies drain": _OF_A_LIVE_BOOKIE,
    "bookies init": "the old name of 'cluster init', which is tried",
    "bookies list": _OF_THE_STORE,
    "bookies recover": _OF_A_LIVE_BOOKIE,
    "bookies replace-id": _OF_A_LIVE_BOOKIE + "; its undo file, which may be a default name, follows no link",
    "cookie create": _OF_THE_STORE,
    "cookie update": _BACKED_UP,
    "cookie delete": _BACKED_UP,
    "cluster info": _OF_THE_STORE,
    "context add": _OF_CONTEXTS,
    "context use": _OF_CONTEXTS,
    "context list": _OF_CONTEXTS,
    "context show": _OF_CONTEXTS,
    "context remove": _OF_CONTEXTS,
    "ledger list": _OF_THE_STORE,
    "ledger show": _OF_THE_STORE,
    "ledger restore": _OF_THE_STORE,
    "metadata show": _OF_THE_STORE,
    "pulsar orphans": _OF_THE_STORE,
    "bookie status": _OF_A_LIVE_BOOKIE,
    "bookie gc": _OF_A_LIVE_BOOKIE,
    "bookie compact": _OF_A_LIVE_BOOKIE,
    "bookies info": _OF_A_LIVE_BOOKIE,
    "bookies probe": _OF_A_LIVE_BOOKIE,
    "ledger create": _OF_A_LIVE_BOOKIE,
    "ledger write": _OF_A_LIVE_BOOKIE,
    "ledger read": _OF_A_LIVE_BOOKIE,
    "ledger tail": _OF_A_LIVE_BOOKIE,
    "ledger recover": _OF_A_LIVE_BOOKIE,
    "ledger fence": _OF_A_LIVE_BOOKIE,
    "ledger doctor": _OF_A_LIVE_BOOKIE,
    "ledger compare": _OF_A_LIVE_BOOKIE,
    "repair run": "runs other commands; its log beside the operator's plan follows no link",
    "ledger repair": _OF_A_LIVE_BOOKIE + "; its list of losses is a new file",
    "bench add": _OF_A_LIVE_BOOKIE,
    "bench read": _OF_A_LIVE_BOOKIE,
    "top": "asks bookies; a recording is a file that the operator names",
    "pipeline list": "opens no file",
    "pipeline spark-submit": "prints a command; opens no file",
    "pipeline export": "opens sets; writes files of names of its own, as 'pipeline collect' does",
    "pipeline trend": "opens sets and results of runs; writes a report as 'pipeline run' does",
    "explain": "opens no file",
    "version": "opens no file",
}

#: What makes the folder ready for them.
PREPARED = (
    f"ledger delete 1 {_CONF} --yes --undo-file {{R}}/undo".split(),
    f"cookie generate {_CONF} --out {{R}}/cookie".split(),
    ["lastmark", "set", "{R}", "--journal", "0", "--offset", "0", "--yes"],
)
#: Files that an operator names, as bytes of his own: a pipe is fine there, and so is a link.
HANDED_OVER = {"bk_server.conf", "metadata.db", "cookie", "undo", "out", "scratch"}
#: Parts of names that nobody can foretell.
_RANDOM = re.compile(r"[0-9a-f]{12}|[0-9]{8}T[0-9]{6}")

#: What is planted. Of a twin the content is that of what was there before, so that a command goes on.
KINDS = ("file", "folder", "nothing", "twin", "zeros", "fifo", "device", "socket", "empty folder")


@dataclass(frozen=True)
class Trap:
    """``kind`` planted at ``name``, below the bookie's folder, before ``words`` are run.

    ``by_another``: whoever planted is another user than the one who runs the command.
    """

    words: tuple[str, ...]
    name: str
    kind: str
    by_another: bool

    def __str__(self) -> str:
        whose = "another user's" if self.by_another else "an own"
        return f"{whose} {self.kind} at {self.name}: {' '.join(self.words)}"


class Outside:
    """A file that nobody else may read, a folder with one, and what is a twin of a bookie's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "victim"
        self.directory = folder / "folder"
        self.twin = folder / "twin"

    def restore(self) -> None:
        """Make it anew, without a twin."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.directory.mkdir(parents=True)
        for path in (self.file, self.directory / "kept"):
            path.write_text(f"{SECRET}\n" * 40)
            path.chmod(0o600)
        self.folder.chmod(0o755)

    def facts(self) -> list[tuple[object, ...]]:
        """Everything about it that a command could change."""
        found: list[tuple[object, ...]] = []
        for path in sorted((self.folder, *self.folder.rglob("*"))):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            kept = (status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns)
            found.append((str(path), *kept, content))
        return found

    def take(self, path: Path) -> None:
        """Make a twin of what is at a path, or of a file where there is nothing."""
        if path.is_dir():
            shutil.copytree(path, self.twin)
        elif path.is_file():
            shutil.copy2(path, self.twin)
        else:
            self.twin.write_bytes(b"")


def plant(trap: Trap, root: Path, outside: Outside) -> None:
    """Put it there, in the place of what is there."""
    path = root / trap.name
    made = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    if trap.kind == "twin":
        outside.take(path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    _make(trap.kind, path, outside)
    if trap.by_another:
        for mine in (path, *made):
            os.chown(mine, PLANTER, PLANTER, follow_symlinks=False)


def _make(kind: str, path: Path, outside: Outside) -> None:
    targets = {
        "file": outside.file,
        "folder": outside.directory,
        "nothing": outside.directory / "made",
        "twin": outside.twin,
        "zeros": Path("/dev/zero"),
    }
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            # Names of sockets are short.
            here = os.open(path.parent, os.O_RDONLY)
            try:
                listener.bind(f"/proc/self/fd/{here}/{path.name}")
            finally:
                os.close(here)
    else:
        path.mkdir()


def complaints(trap: Trap, ended: Ended, root: Path, outside: Outside, before: object) -> list[str]:
    """Everything that a command did which it must not do."""
    found = []
    if ended.code is None:
        found.append(f"does not end within {LIMIT_S:.0f} s")
    elif ended.code not in range(8):
        found.append(f"exit code {ended.code}")
    said = ended.stdout + ended.stderr
    bad = ("Traceback", "a bug in bkctl", "no more memory")
    found += [f"says {word!r}" for word in bad if word in said]
    if outside.facts() != before:
        found.append("changes what lies outside")
    if SECRET in said:
        found.append("prints what lies outside")
    found += [f"copies what lies outside to {path}" for path in _copies(root)]
    if ended.code in (4, 7) and not _names(said, trap.name):
        found.append("does not name the path")
    return found


def _names(said: str, name: str) -> bool:
    """Whether a text names a path, or what it lies in, or something in it."""
    parts = Path(name).parts
    return any(part in said for part in parts)


def _copies(root: Path) -> list[Path]:
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode) and SECRET.encode() in path.read_bytes():
                    found.append(path)
    return found


def names_of(commands: ForkedCommands, words: Sequence[str], root: Path) -> list[str]:
    """Return the names below a bookie's folder that a command uses, its databases' included."""
    before = _tree(root)
    ended = commands.run(words, str(root.parent), LIMIT_S, trace=True)
    assert ended.code in (0, 1, 3), (words, ended)
    after = _tree(root)
    names = {os.path.relpath(name, root) for name in ended.names if name.startswith(f"{root}/")}
    databases = {os.path.dirname(name) for name in names if os.path.basename(name) == "CURRENT"}
    names |= {name for name in before | after if os.path.dirname(name) in databases} | (before ^ after)
    return sorted(name for name in names if not _RANDOM.search(name))


def _tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


class PlantedBookie:
    """A small bookie that is made again for every trap, and the process that runs the commands."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "bookie"
        self._template = folder / "template"
        self._outside = Outside(folder / "outside")
        self._commands = ForkedCommands()
        self._names: dict[tuple[str, ...], list[str]] = {}

    def __enter__(self) -> PlantedBookie:
        self._commands.__enter__()
        DoctoredBookie.of(DEMO, self.root)
        for name in ("out", "scratch"):
            (self.root / name).mkdir()
        for words in PREPARED:
            ended = self._run(words)
            assert ended.code == 0, ended
        self.root.rename(self._template)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.__exit__(kind, error, trace)

    def names(self, words: tuple[str, ...]) -> list[str]:
        """Return the names that something can be planted at: not what the operator hands to the command."""
        if words not in self._names:
            self._renew()
            found = names_of(self._commands, self._filled(words), self.root)
            self._names[words] = [name for name in found if name not in HANDED_OVER]
        return self._names[words]

    def complaints(self, trap: Trap) -> list[str]:
        """Plant it, run the command, and return everything that it did which it must not do."""
        self._renew()
        self._outside.restore()
        plant(trap, self.root, self._outside)
        before = self._outside.facts()
        ended = self._run(trap.words)
        return complaints(trap, ended, self.root, self._outside, before)

    def _run(self, words: Sequence[str]) -> Ended:
        return self._commands.run(self._filled(words), str(self.root.parent), LIMIT_S)

    def _filled(self, words: Sequence[str]) -> list[str]:
        return [word.replace("{R}", str(self.root)) for word in words]

    def _renew(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self._template, self.root)
