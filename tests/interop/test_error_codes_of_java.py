"""Every code that the released classes declare is explained, under its number and name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bkctl.admin.explanations.meaning import Place, every_code
from tests.support.java_bookkeeper import require_jars

pytestmark = pytest.mark.interop

CONSTANT = re.compile(r"static final int (\w+) = (-?\d+);")

CLASSES = {
    Place.CLIENT: "org.apache.bookkeeper.client.api.BKException$Code",
    Place.BOOKIE: "org.apache.bookkeeper.bookie.BookieException$Code",
    Place.PROCESS: "org.apache.bookkeeper.bookie.ExitCode",
}


@pytest.mark.parametrize("place", CLASSES)
def test_codes_are_those_of_the_class(place: Place) -> None:
    jars = require_jars()
    javap = [str(Path(jars.java).with_name("javap")), "-constants", "-cp", jars.classpath, CLASSES[place]]
    printed = subprocess.run(javap, capture_output=True, text=True, timeout=60, check=True).stdout
    declared = {(int(number), name) for name, number in CONSTANT.findall(printed)}
    assert declared
    assert {(code.code, code.name) for code in every_code() if code.place is place} == declared
