"""Write conf/bk_server.conf and man/bk_server.conf.5 from the key declarations.

python conf/make.py           write the files
python conf/make.py --check   exit 1 when a committed file is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

from bkctl.config.document import conf_text, man_page

REPOSITORY = Path(__file__).resolve().parents[1]


def documents() -> dict[Path, str]:
    """Every generated file and its text."""
    return {
        REPOSITORY / "conf" / "bk_server.conf": conf_text(),
        REPOSITORY / "man" / "bk_server.conf.5": man_page(),
    }


def main() -> int:
    """Write the files, or compare them with --check."""
    check = "--check" in sys.argv[1:]
    wrong = 0
    for path, text in documents().items():
        if path.is_file() and path.read_text() == text:
            continue
        wrong += 1
        if check:
            sys.stderr.write(f"{path}: not what the keys say; run `make conf`\n")
        else:
            path.write_text(text)
    return int(check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
