"""The compiled kernels with address and undefined-behaviour sanitizers: built, trusted, and examined."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import mutation_process, sanitized_kernels
from tests.fuzz.targets import TARGETS

SECONDS = 1
TIMEOUT_S = 240
SEED = "1"

WHY_NOT = sanitized_kernels.why_not()
pytestmark = [
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
    pytest.mark.xdist_group("sanitized kernels"),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sanitized_kernels.build(tmp_path_factory.mktemp("kernels"))


def run(kernels: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=sanitized_kernels.environment(kernels),
        cwd=sanitized_kernels.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_changed_inputs_under_the_sanitizers(kernels: Path, tmp_path: Path) -> None:
    targets = [target.name for target in TARGETS.values() if target.sanitized]
    assert "kernels" in targets
    last = str(tmp_path / "last")
    ended = run(kernels, "-m", "tests.fuzz.mutation_process", ",".join(targets), str(SECONDS), SEED, last)
    assert ended.returncode == 0, (ended.stderr[-4000:], mutation_process.last_input(tmp_path / "last").hex())
    assert int(ended.stdout.removeprefix("runs=")) > 20 * len(targets)


def test_the_build_is_what_bkctl_uses_then(kernels: Path) -> None:
    code = (
        "import os; from tests.fuzz.sanitized_kernels import load_kernels, PATH_VARIABLE\n"
        "load_kernels(os.environ[PATH_VARIABLE])\n"
        "import bkctl._kernels as kernels, bkctl._kernels._native as native\n"
        "print(kernels.IMPL, native.__file__)"
    )
    ended = run(kernels, "-c", code)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["native", str(kernels)]
    assert b"__asan_report_load8" in kernels.read_bytes()
    assert b"__ubsan_handle" in kernels.read_bytes()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("int64_t starts[1] = {20}, sizes[1] = {40};", ""),
        ("int64_t starts[1] = {60}, sizes[1] = {60};", "AddressSanitizer"),
        ("int64_t starts[1] = {0}, sizes[1] = {40}; sizes[0] += (int)(size + 2147483600);", "runtime error"),
    ],
    ids=["inside", "outside of the buffer", "an integer that overflows"],
)
def test_the_sanitizers_notice_what_they_are_for(tmp_path: Path, wrong: str, said: str) -> None:
    """The same C with places that Cython's front would have refused."""
    compiler = shutil.which("cc")
    assert compiler is not None
    source = tmp_path / "wrong.c"
    source.write_text(f"""\
#include <stdlib.h>
#include "checksums.h"
int main(int size, char **arguments) {{
  (void)arguments;
  size += 63;
  unsigned char *buffer = calloc(1, (size_t)size);
  {wrong}
  bkctl_prepare(0);
  ptrdiff_t failing = bkctl_next_failing(BKCTL_CRC32, buffer, starts, sizes, 0, 1);
  free(buffer);
  return failing > 1;
}}
""")
    program = tmp_path / "wrong"
    headers = sanitized_kernels.REPOSITORY / "bkctl" / "_kernels"
    flags = sanitized_kernels.FLAGS.split()
    subprocess.run([compiler, *flags, f"-I{headers}", str(source), "-o", str(program)], check=True)
    ended = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert bool(ended.returncode) == bool(said)
    assert said in ended.stderr
    assert bool(ended.stderr) == bool(said)
