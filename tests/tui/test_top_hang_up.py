"""A terminal that goes away ends `bkctl top`, controlling terminal or not."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bkctl.tui.hang_up import EXIT_CODE, has_hung_up

WAIT_S = 60


def test_a_closed_other_end_is_seen(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        assert not has_hung_up(terminal)
        os.close(ours)
        assert has_hung_up(terminal)
    assert has_hung_up(terminal)
    assert has_hung_up(None)


@pytest.mark.parametrize("size", [(0, 0), (24, 80)])
def test_the_screen_ends_without_its_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    ours, theirs = pty.openpty()
    if size != (0, 0):
        import termios

        termios.tcsetwinsize(theirs, size)
    # A session of its own, and this is not its controlling terminal: nobody sends SIGHUP.
    command = [sys.executable, "-m", "bkctl", "top", "--url", "http://127.0.0.1:9", "--interval", "200ms"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, cwd=tmp_path
    ) as top:
        os.close(theirs)
        try:
            drawn = b""
            while b"\x1b[?1049h" not in drawn:  # the alternate screen: it is up
                drawn += os.read(ours, 65536)
            os.close(ours)
            assert top.wait(WAIT_S) == EXIT_CODE == 128 + signal.SIGHUP
        finally:
            top.kill()
