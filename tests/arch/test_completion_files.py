"""conf/completion holds, for packages, what ``bkctl --show-completion SHELL`` prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMPLETION = Path(__file__).resolve().parents[2] / "conf" / "completion"


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "bkctl.bash"), ("zsh", "_bkctl"), ("fish", "bkctl.fish")]
)
def test_committed_scripts_are_what_the_command_prints(
    run_cli: Callable[..., Any], shell: str, name: str
) -> None:
    printed = run_cli("--show-completion", shell)
    assert printed.exit_code == 0
    assert "bkctl" in printed.stdout
    assert printed.stdout.strip() == (COMPLETION / name).read_text().strip(), "run `make docs`"
