"""Captures the screens of ``docs/top.md`` again: ``python docs/make_top_screens.py [SCENE...]``.

Runs ``bkctl top`` in tmux against bookies under load: ``bookie`` (one of ours), ``cluster`` (three processes)
and ``java`` (a released bookie, which needs Maven). Without a word all of them; a minute each.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.support.top_scenes import Scene, cluster_of_three, java_bookie, loaded_bookie  # noqa: E402
from tests.support.zookeeper import running_zookeeper  # noqa: E402

PAGE = REPOSITORY / "docs" / "top.md"
SMALL = (80, 24)
LARGE = (160, 50)
#: How long there are samples before a picture is taken, so that sparklines have something to show.
SETTLED_S = 40.0
Screens = Iterator[tuple[str, str]]


def bookie(folder: Path) -> Screens:
    """One bookie of ours: overview, queues, a ledger directory."""
    with loaded_bookie(folder) as scene, scene.top(SMALL) as terminal:
        terminal.until("[1 Overview]")
        time.sleep(SETTLED_S)
        yield "bookie-80x24", terminal.text
        terminal.press("2")
        yield "queues-80x24", terminal.until("LENGTH BEFORE")
        terminal.press("7")
        terminal.until("KIND")
        terminal.press("Down", "Enter")
        terminal.until("as the last collection saw them")
        yield "directory-80x24", terminal.until(lambda text: text.endswith("q Quit"))


def cluster(folder: Path) -> Screens:
    """Three bookies; then one of them is gone."""
    with cluster_of_three(folder) as scene:
        with scene.top(SMALL) as terminal:
            terminal.until("3 bookies")
            time.sleep(SETTLED_S)
            yield "cluster-80x24", terminal.text
        yield "lost-80x24", _lost(scene)


def _lost(scene: Scene) -> str:
    with scene.top(SMALL) as terminal:
        terminal.until("3 bookies")
        time.sleep(SETTLED_S / 4)
        scene.bookies["bookie-2"].kill()
        terminal.until("not registered any more")
        terminal.press("Down")
        return terminal.until("▸bookie-2")


def java(folder: Path) -> Screens:
    """A Java bookie."""
    with running_zookeeper() as server, java_bookie(folder, server) as scene:
        for size in (SMALL, LARGE):
            with scene.top(size) as terminal:
                terminal.until("Java bookie")
                time.sleep(SETTLED_S)
                yield _name("java", size), terminal.text


SCENES: dict[str, Callable[[Path], Screens]] = {"bookie": bookie, "cluster": cluster, "java": java}


def _name(scene: str, size: tuple[int, int]) -> str:
    return f"{scene}-{size[0]}x{size[1]}"


def replaced(page: str, name: str, screen: str) -> str:
    """The page with another picture behind the comment ``<!-- screen: NAME -->``."""
    block = re.compile(rf"(<!-- screen: {re.escape(name)} -->\n```text\n).*?(\n```)", re.DOTALL)
    page, count = block.subn(lambda found: found.group(1) + screen + found.group(2), page)
    if count != 1:
        raise SystemExit(f"{PAGE}: {count} places for the screen {name}, expected 1")
    return page


def main() -> None:
    """Take the pictures that are asked for and put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", choices=[[], *SCENES], metavar="SCENE")
    for scene in parser.parse_args().scenes or SCENES:
        with tempfile.TemporaryDirectory(prefix="demo-") as folder:
            for name, screen in SCENES[scene](Path(folder)):
                PAGE.write_text(replaced(PAGE.read_text(), name, screen))
                sys.stderr.write(f"{name}\n")


if __name__ == "__main__":
    main()
