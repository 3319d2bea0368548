"""Conversions that are killed at one step after the other, and what the next run makes of each.

``python -m tests.support.killed_conversions FOLDER SOURCE TARGET COUNT STRIDE NEAR`` makes a bookie below the
folder and converts it again and again, each time in a process that ends without a word at the next call
that opens, makes, renames or removes something there, so many further on: NEAR at the change of names, STRIDE
elsewhere. Nothing is lost with such a kill but the process. One that is complete by then is undone. It prints
a line for what went wrong, and at the end one with the number of kills: before, within and after the change.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from bkctl.admin.conversion.bookie_places import kind_here
from bkctl.admin.conversion.conversion import ConversionOptions, convert_bookie
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.repairs.repair_chain import last_repair
from bkctl.admin.repairs.repair_undo import undo
from bkctl.directories.half_converted import is_half_converted
from bkctl.directories.holders import DirectoryLock
from bkctl.engine.db_storage import opening as db_opening
from bkctl.engine.interleaved_storage import opening as idx_opening
from bkctl.errors import RefusedError
from bkctl.kvstore import rocksdb, rocksdb_store
from bkctl.scan.directory import CONVERSION_NAME
from bkctl.storage_kinds import StorageKind, kind_named
from bkctl.vfs import PosixFileSystem
from tests.support.convertible_bookie import LOG_BYTES, ConvertibleBookie

#: Imported before the forks; no database is opened in this process, whose threads would not survive them.
LOADED = (db_opening, idx_opening, rocksdb, rocksdb_store)
KILLED = 9
_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link")
_STEPS_MAX = 5_000


def forked(work: Callable[[], None]) -> int:
    """Run something in a process of its own: its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the process ends
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, root: Path) -> None:
    """End this process at so many calls from now that change something, or look at it, below a folder."""
    left = [step]
    below = f"{root}/"

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS or not str(arguments[0]).startswith(below):
            return
        if event == "open" and not (
            isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            return
        left[0] -= 1
        if left[0] < 0:
            os._exit(KILLED)

    sys.addaudithook(hook)


def content(root: Path) -> dict[str, bytes]:
    """All files but halves of small ones, which nobody reads."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".tmp"
    }


def refusal(directories: tuple[str, ...]) -> str:
    """Say why another command may not write to directories."""
    try:
        with DirectoryLock(*directories):
            return "it may"
    except RefusedError as error:
        return str(error)


class Kills:
    def __init__(self, folder: Path, source: StorageKind, target: StorageKind, count: int) -> None:
        self._root, self._pristine = folder / "bookie", folder / "pristine"
        self._source, self._target, self._count = source, target, count
        self._bookie = ConvertibleBookie(self._root, count)
        self._expected = folder / "expected"
        self.counts = {"before": 0, "within": 0, "after": 0}

    def make(self) -> None:
        made = ConvertibleBookie.make(self._root, self._source, self._count)
        shutil.copytree(self._root, self._pristine)
        self._expected.write_bytes(pickle.dumps(made))

    def _convert(self, target: StorageKind) -> None:
        options = ConversionOptions(LOG_BYTES, RebuildOptions())
        convert_bookie(PosixFileSystem(), self._bookie.places(), target, options)

    def _killed(self, step: int) -> None:
        killed_at(step, self._root)
        self._convert(self._target)

    def _go_on(self, target: StorageKind) -> None:
        self._convert(target)
        left = list(self._root.rglob(f"{CONVERSION_NAME}*"))
        assert not left, left
        if target == self._source:
            assert content(self._root) == content(self._pristine)
        made = pickle.loads(self._expected.read_bytes())
        made.check(target)

    def _undo(self) -> None:
        system, places = PosixFileSystem(), self._bookie.places()
        with DirectoryLock(*places.locked):
            undo(system, last_repair(system, places.locked))
        assert content(self._root) == content(self._pristine)

    def round(self, step: int) -> bool:
        """Kill at one step, and go on or back; False when it came to its end before the kill."""
        shutil.rmtree(self._root)
        shutil.copytree(self._pristine, self._root)
        code = forked(lambda: self._killed(step))
        if code == 0:
            return False
        assert code == KILLED, f"step {step}: the conversion ended with {code}"
        system, places = PosixFileSystem(), self._bookie.places()
        is_half = any(is_half_converted(system, path) for path in places.every)
        has_cookies = all((Path(path) / "VERSION").exists() for path in places.every)
        assert is_half == (not has_cookies), f"step {step}"
        where = "within" if is_half else "before" if kind_here(system, places) == self._source else "after"
        self.counts[where] += 1
        if is_half:
            assert "bkctl bookie convert --to" in refusal(places.every), f"step {step}"
        if where == "after" and forked(self._undo):
            raise AssertionError(f"step {step}: complete, and not undone")
        target = self._source if is_half and step % 2 else self._target
        if forked(lambda: self._go_on(target)):
            raise AssertionError(f"step {step}, killed {where}: not made good")
        return True


def main() -> None:
    folder, (count, stride, near) = Path(sys.argv[1]), map(int, sys.argv[4:])
    kills = Kills(folder, kind_named(sys.argv[2]), kind_named(sys.argv[3]), count)
    assert forked(kills.make) == 0
    step, is_near = 0, False
    while kills.round(step):
        if kills.counts["within"] + kills.counts["after"] and not is_near:
            # The change of names began behind the last step in front of it: its steps are tried.
            is_near, step = True, max(step - stride, 0)
            kills.counts.update(within=0, after=0)
        step += near if is_near and not kills.counts["after"] else stride
        assert step < _STEPS_MAX
    print("kills", *kills.counts.values())


if __name__ == "__main__":
    main()
