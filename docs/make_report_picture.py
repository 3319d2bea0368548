"""Takes ``docs/pictures/report.png``: ``python docs/make_report_picture.py``.

Audits ``tests/data/demo`` with two of its bookies called gone, and has Chromium draw the report. No test does
this: a browser is no part of the environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs" / "pictures" / "report.png"
DEMO = "tests/data/demo"
SIZE = (900, 1250)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def report(folder: Path) -> Path:
    """Write the report of an audit."""
    path = folder / "report.html"
    audit = ["pipeline", "run", "replication-audit", f"{DEMO}/bookie1", "--metadata", f"{DEMO}/zk.json"]
    more = ["--complete", "--out", str(folder / "out"), "--report", str(path), "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "bkctl", *audit, *more],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: something is missing, which is what there is to see.
    if done.returncode not in (1, 3):
        raise SystemExit(done.stderr)
    return path


def main() -> None:
    """Write the picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as folder:
        page = report(Path(folder))
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/browser",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--screenshot={PICTURE}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
    sys.stderr.write(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
