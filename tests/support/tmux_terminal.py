"""A command on a real terminal of a given size: tmux, without a status line or anybody's configuration."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pytest

CONFIGURATION = "set -g status off\nset -g remain-on-exit on\nset -g escape-time 0\n"
WAIT_S = 30.0
_POLL_S = 0.1
#: What of the environment would say other things of the terminal than it is.
_NOT_OURS = ("NO_COLOR", "COLUMNS", "LINES", "COLORTERM")
_COLOURED = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38|48)(?:;[0-9;]*)?m")


def require_tmux() -> None:
    """Skip the test where there is no tmux; with BKCTL_REQUIRE_TMUX set that is a failure."""
    if shutil.which("tmux") is None:
        reason = "tmux is not installed (apt-get install tmux)"
        if os.environ.get("BKCTL_REQUIRE_TMUX"):
            pytest.fail(reason)
        pytest.skip(reason)


class TmuxTerminal:
    """One command in one terminal; a context manager that ends both."""

    def __init__(
        self,
        command: Sequence[str],
        size: tuple[int, int],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.size = size
        # A socket's path has room for a hundred characters only.
        self._own = tempfile.mkdtemp(prefix="bkctl-tmux-")
        self._status = Path(self._own) / "status"
        configuration = Path(self._own) / "tmux.conf"
        configuration.write_text(CONFIGURATION)
        self._tmux = ["tmux", "-u", "-S", f"{self._own}/socket", "-f", str(configuration)]
        width, height = size
        variables = {"LC_ALL": "C.UTF-8", "TERM": "tmux-256color", **(environment or {})}
        assignments = [f"{name}={value}" for name, value in variables.items()]
        line = ["env", *(f"--unset={name}" for name in _NOT_OURS), *assignments, *command]
        self._ask(
            *("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(folder)),
            # What tmux tells of a command's end is at times nothing: the shell writes it down.
            f"{shlex.join(line)}; echo $? > {self._status}.new; mv {self._status}.new {self._status}",
        )

    @property
    def text(self) -> str:
        """What is on the screen, a row a line."""
        return self._ask("capture-pane", "-p").rstrip("\n")

    @property
    def rows(self) -> list[str]:
        return self.text.split("\n")

    @property
    def colours(self) -> list[str]:
        """The codes on the screen that set a colour."""
        return [found.group() for found in _COLOURED.finditer(self._ask("capture-pane", "-e", "-p"))]

    @property
    def process_id(self) -> int:
        """Of the command."""
        shell = self._ask("display-message", "-p", "#{pane_pid}").strip()
        (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(child)

    @property
    def exit_code(self) -> int | None:
        """Of the command when it has ended."""
        return int(self._status.read_text()) if self._status.exists() else None

    def press(self, *keys: str) -> None:
        """Keys by tmux's names (``Enter``, ``Escape``, ``q``)."""
        for key in keys:
            self._ask("send-keys", key)

    def resize(self, size: tuple[int, int]) -> None:
        """Another size of the terminal."""
        self._ask("resize-window", "-x", str(size[0]), "-y", str(size[1]))

    def until(self, shown: str | Callable[[str], bool], seconds: float = WAIT_S) -> str:
        """Wait until a text is on the screen, or what is there is right; the screen then."""
        end = time.monotonic() + seconds
        while True:
            text = self.text
            if shown in text if isinstance(shown, str) else shown(text):
                return text
            assert time.monotonic() < end, f"not within {seconds:g} s; on the screen:\n{text}"
            time.sleep(_POLL_S)

    def until_ended(self, seconds: float = WAIT_S) -> int:
        """Wait for the command's end; its exit code."""
        end = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            assert time.monotonic() < end, f"it has not ended; on the screen:\n{self.text}"
            time.sleep(_POLL_S)
        return code

    def _ask(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, encoding="utf-8", timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, f"tmux {words[0]}: {done.stderr}"
        return done.stdout

    def __enter__(self) -> TmuxTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=WAIT_S, check=False)
        shutil.rmtree(self._own, ignore_errors=True)
