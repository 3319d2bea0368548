"""The same files, read by ``ServerConfiguration.loadConf`` and by ``load_properties``."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from bkctl.config.properties import load_properties, resolve
from bkctl.errors import UsageError
from tests.support.java_bookkeeper import require_jars

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("PropertiesDump.java")
FILES = 400
PIECES = [
    *"abk=:,#! \t\"'\\",
    "\\\\",
    "\\,",
    "\\n",
    "\\u0041",
    "\n",
    "\r\n",
    "\r",
    "\\\n",
    "\n\n",
    "${z}",
    "é",
    "\x0c",
]


def text_of(item: str) -> str:
    return "".join(chr(int(item[at : at + 4], 16)) for at in range(1, len(item), 4))


def ours(path: Path) -> dict[str, list[str]] | None:
    """None for what only Java takes, and drops then."""
    try:
        found = load_properties(str(path)).by_key()
        known = {key: tuple(item for one in ones for item in one.items) for key, ones in found.items()}
        return {key: list(resolve(items, known, {}, "here")) for key, items in known.items()}
    except UsageError:
        return None


def comparable(found: dict[str, list[str]] | None) -> dict[str, tuple[str, list[str]]]:
    """First item and those with text: of several empty values of one key Java keeps an odd number."""
    assert found is not None
    return {key: (items[0], [item for item in items if item]) for key, items in found.items()}


def test_random_files_are_read_alike(tmp_path: Path, release_conf: Path) -> None:
    jars = require_jars()
    chance = random.Random(20_4173)
    paths = [release_conf]
    for number in range(FILES):
        path = tmp_path / f"{number}.conf"
        text = "z=1\n" + "".join(chance.choices(PIECES, k=chance.randrange(5, 60)))
        path.write_bytes(text.encode("latin-1"))
        paths.append(path)
    readable = [path for path in paths if ours(path) is not None]
    assert len(readable) > FILES // 2
    command = [jars.java, "-cp", jars.classpath, "-Dorg.apache.logging.log4j.level=OFF", str(PROGRAM)]
    done = subprocess.run(
        [*command, *map(str, readable)], capture_output=True, text=True, timeout=120, check=True
    )
    theirs: list[dict[str, list[str]]] = []
    for line in done.stdout.splitlines():
        if line == "file":
            theirs.append({})
        else:
            key, *items = line.split()
            theirs[-1][text_of(key)] = [text_of(item) for item in items]
    assert len(theirs) == len(readable)
    for path, expected in zip(readable, theirs, strict=True):
        assert comparable(ours(path)) == comparable(expected), path.read_bytes()
