"""``bkctl top`` as an operator has it: on a terminal, against bookies that work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.tmux_terminal import TmuxTerminal, require_tmux
from tests.support.top_scenes import Scene, cluster_of_three, java_bookie, loaded_bookie
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

SMALL = (80, 24)
LARGE = (160, 50)
QUEUES = ("write", "journal", "force_write", "callback", "read", "high_priority", "long_poll", "flush")
SECTIONS = {
    SMALL: ("WRITE CACHE", "READ CACHE", "JOURNAL", "GC", "DISK", "FLUSH", "PROCESS", "bottleneck"),
    LARGE: (
        "CACHES",
        "JOURNAL",
        "ENTRY LOGS AND INDEX",
        "GARBAGE COLLECTION",
        "DISK",
        "PROCESS",
        "bottleneck",
    ),
}
#: Bytes to the terminal for one sample, of a screen that shows a bookie at work.
REFRESH_BYTES_MAX = 4_000
CORE_SHARE_MAX = 0.10
#: Adds a second: enough for every figure to move. The scenes last as long as this module's tests.
RATE = 200
CLUSTER_RATE = 60


@pytest.fixture(scope="module", autouse=True)
def tmux() -> None:
    require_tmux()


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with loaded_bookie(tmp_path_factory.mktemp("bookie"), RATE) as scene:
        yield scene


def works(text: str) -> bool:
    """Whether a bookie's screen shows adds, and a journal that syncs."""
    adds = re.search(r"adds/s +([\d.]+k?) ", text)
    return adds is not None and adds.group(1) != "0" and "p99 - ms" not in text.split("\n")[2]


def nothing_is_cut_off(terminal: TmuxTerminal) -> None:
    """Every row is there, none runs over, and the keys, which are drawn last, are in the last one."""
    text = terminal.until(lambda text: text.split("\n")[-1].endswith("q Quit"))
    rows = text.split("\n")
    assert len(rows) == terminal.size[1]
    assert all(len(row) <= terminal.size[0] for row in rows)
    assert rows[0].startswith(" bkctl top")


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="80x24"),
        pytest.param(
            LARGE,
            id="160x50",
            marks=pytest.mark.thorough("tests/tui/test_top_screens_as_text.py has the size"),
        ),
    ],
)
def test_a_loaded_bookie_of_ours(bookie: Scene, size: tuple[int, int]) -> None:
    with bookie.top(size) as terminal:
        text = terminal.until(works)
        nothing_is_cut_off(terminal)
        assert "bkctl bookie  rw" in terminal.rows[0]
        for queue in QUEUES:
            assert re.search(rf"^ {queue} +\S+ +\S+ +[█░]+ +\S+%", text, re.MULTILINE), queue
        for word in SECTIONS[size]:
            assert word in text
        terminal.until(lambda text: len(re.findall("[▂▃▄▅▆▇█]", text.split("\n")[2])) >= 3)
        terminal.press("2")
        terminal.until("LENGTH BEFORE")
        terminal.press("7")
        terminal.until("KIND")
        terminal.press("Down", "Enter")
        text = terminal.until("as the last collection saw them")
        nothing_is_cut_off(terminal)
        assert "/ledgers" in terminal.rows[1]
        terminal.press("Escape", "Escape")
        terminal.until("BOTTLENECK")
        terminal.press("q")
        assert terminal.until_ended() == 0


@pytest.mark.thorough("tests/tui/test_top_keys.py has sizes without a terminal")
def test_the_size_of_the_terminal_changes(bookie: Scene) -> None:
    with bookie.top(SMALL) as terminal:
        terminal.until(works)
        terminal.resize(LARGE)
        terminal.until("GARBAGE COLLECTION")
        terminal.resize((60, 15))
        terminal.until("more lines below")
        assert len(terminal.rows) == 15


@pytest.mark.thorough("tests/tui/test_top_themes.py has them without a terminal")
@pytest.mark.parametrize(
    ("environment", "words"),
    [({"NO_COLOR": "1"}, ()), ({"TERM": "dumb"}, ()), ({}, ("--no-color",))],
    ids=["NO_COLOR", "TERM=dumb", "--no-color"],
)
def test_without_colours_it_says_the_same(
    bookie: Scene, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    with bookie.top(SMALL, *words, environment=environment) as terminal:
        text = terminal.until(works)
        assert terminal.colours == []
        assert "[1 Overview]" in text
        terminal.press("Escape")
        terminal.until("▸bookie-1")
        assert terminal.colours == []


@pytest.mark.thorough("tests/tui/test_top_themes.py has them without a terminal")
def test_with_colours_they_are_the_terminals_own(bookie: Scene) -> None:
    with bookie.top(SMALL) as terminal:
        terminal.until(works)
        assert terminal.colours
        assert not [code for code in terminal.colours if "38;2" in code or "48;2" in code]


@pytest.mark.thorough("tests/tui/test_top_themes.py has it without a terminal")
@pytest.mark.parametrize(
    ("environment", "words"), [({"LC_ALL": "C"}, ()), ({}, ("--ascii",))], ids=["locale", "option"]
)
def test_without_unicode_it_draws_with_ascii(
    bookie: Scene, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    with bookie.top(SMALL, *words, environment=environment) as terminal:
        assert terminal.until(works).isascii()


@pytest.mark.thorough("measures what a screen costs, for ten seconds")
def test_it_costs_little_of_the_machine_and_of_the_line(bookie: Scene) -> None:
    with bookie.top(SMALL, "--interval", "1s") as terminal:
        terminal.until(works)
        cpu_s, sent, shown = _cost(terminal)
        for _ in range(8):
            shown = _next_sample(terminal, shown)
        cpu_after_s, sent_after, _ = _cost(terminal)
    assert (cpu_after_s - cpu_s) / 8 < CORE_SHARE_MAX
    assert (sent_after - sent) / 8 < REFRESH_BYTES_MAX


def _cost(terminal: TmuxTerminal) -> tuple[float, int, str]:
    """Processor seconds and bytes written so far, and the time on the screen."""
    process = Path(f"/proc/{terminal.process_id}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    written = re.search(r"wchar: (\d+)", (process / "io").read_text())
    assert written is not None
    return ticks / os.sysconf("SC_CLK_TCK"), int(written.group(1)), terminal.rows[0].split()[-1]


def _next_sample(terminal: TmuxTerminal, before: str) -> str:
    """Wait for the next time on the screen."""
    text = terminal.until(lambda text: text.split("\n")[0].split()[-1] != before)
    return text.split("\n")[0].split()[-1]


@pytest.mark.thorough("tests/tui has recordings without a terminal")
def test_a_recording_is_made_and_played(bookie: Scene, tmp_path: Path) -> None:
    recording = tmp_path / "top.ndjson"
    with bookie.top(SMALL, "--interval", "500ms", "--record", str(recording)) as terminal:
        terminal.until(works)
        terminal.until(lambda _: recording.read_bytes().count(b"\n") >= 4)
        terminal.press("q")
        assert terminal.until_ended() == 0
    with Scene(["--replay", str(recording)]).top(SMALL, "--interval", "100ms") as terminal:
        terminal.until("at end")
        terminal.press("g")
        terminal.until("go to (")
        terminal.press("1", "Enter")
        terminal.until("replay 1/")
        terminal.press(".")
        terminal.until("replay 2/")
        nothing_is_cut_off(terminal)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with cluster_of_three(tmp_path_factory.mktemp("cluster"), CLUSTER_RATE) as scene:
        yield scene


def row_of(bookie: str) -> Callable[[str], str]:
    """Finds a bookie's row on a screen; empty when there is none."""

    def found(text: str) -> str:
        return next((row for row in text.split("\n")[2:] if row[1:].startswith(bookie)), "")

    return found


@pytest.mark.thorough("starts three bookies; tests/tui has clusters without a terminal")
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "160x50"])
def test_a_cluster_of_three(cluster: Scene, size: tuple[int, int]) -> None:
    with cluster.top(size) as terminal:
        for number in (1, 2, 3):
            row = row_of(f"bookie-{number} ")
            terminal.until(lambda text, row=row: bool(re.search(r" rw +[1-9]", row(text))))
        nothing_is_cut_off(terminal)
        assert "3 bookies" in terminal.rows[0]
        terminal.press("s", "s", "r")
        terminal.until("ADD/S▴")
        terminal.until(lambda text: text.split("\n")[2][1:].startswith("bookie-3"))
        terminal.press("/")
        terminal.until("filter:")
        terminal.press("e", "-", "2", "Enter")
        terminal.until("1 shown, filter e-2")


@pytest.mark.thorough("starts three bookies; tests/tui has lost ones")
def test_a_bookie_that_dies_is_lost_and_comes_back_by_itself(cluster: Scene) -> None:
    row = row_of("bookie-2 ")
    with cluster.top(SMALL) as terminal:
        terminal.until(lambda text: " rw " in row(text))
        cluster.bookies["bookie-2"].kill()
        terminal.until(lambda text: " LOST last data" in row(text))
        terminal.until("not registered any more")
        assert "1 LOST" in terminal.rows[0]
        cluster.bookies["bookie-2"].start()
        terminal.until(lambda text: " rw " in row(text))
        terminal.until(lambda text: "LOST" not in text)


@pytest.mark.thorough("starts a Java bookie; tests/interop/test_top_with_java.py has its figures")
@pytest.mark.interop
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "160x50"])
def test_a_java_bookie(
    tmp_path: Path,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    size: tuple[int, int],
) -> None:
    with java_bookie(tmp_path, zookeeper_server, RATE) as scene, scene.top(size) as terminal:
        text = terminal.until(works, 60)
        nothing_is_cut_off(terminal)
        assert "Java bookie  rw" in terminal.rows[0]
        assert all(re.search(rf"^ {queue} ", text, re.MULTILINE) for queue in QUEUES)
        terminal.press("7")
        terminal.until("KIND")
        terminal.press("Down", "Enter")
        terminal.until("entrylog list")
