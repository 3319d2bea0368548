"""Every fuzz target over its seeds, what is kept of soaks, and some hundred changes of these."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from bkctl.codec.last_mark import decode_last_mark
from tests.fuzz import corpus, soak
from tests.fuzz.mutation import mutations
from tests.fuzz.target import Target, cut, decodes, json_variants
from tests.fuzz.targets import TARGETS

CHANGES = 300
SEED = 1
#: Inputs of a target whose memory is looked at.
MEASURED = 12
KEPT_BYTES_MAX = 512 << 10


def examine(target: Target, inputs: Sequence[bytes]) -> None:
    for data in inputs:
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"target {target.name}, input {data[:2000].hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_are_known(name: str) -> None:
    target = TARGETS[name]
    inputs = corpus.known(target)
    assert inputs
    examine(target, inputs)
    # The largest take the most, and caches are filled by now.
    for data in sorted(inputs, key=len)[-MEASURED:]:
        target.run_within_memory(data)


@pytest.mark.parametrize("name", TARGETS)
def test_changes_of_inputs(name: str) -> None:
    target = TARGETS[name]
    changed = mutations(corpus.known(target), target.words, target.bytes_max, SEED)
    examine(target, [b"", *islice(changed, CHANGES)])


def test_the_corpus_is_of_targets_and_small() -> None:
    files = sorted(corpus.CORPUS.glob("*"))
    assert {path.stem for path in files} <= TARGETS.keys()
    assert all(path.suffix == ".b64" for path in files)
    assert sum(path.stat().st_size for path in files) <= KEPT_BYTES_MAX


def test_changes_are_the_same_for_a_seed_and_differ() -> None:
    first, again, other = (
        list(islice(mutations([b"0123456789"], (b"word",), 40, seed), 500)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert len(set(first)) > 400
    assert any(b"word" in data for data in first)
    assert max(map(len, first)) <= 40


def test_a_target_that_fails_is_noticed() -> None:
    def run(data: bytes) -> None:
        assert b"\xff\xff" not in data

    failing = Target("failing", run, lambda: [b"seed"])
    with pytest.raises(AssertionError) as found:
        examine(failing, [b"a", b"\xff\xff"])
    assert "ffff" in found.value.__notes__[0]


def test_memory_beyond_the_bound_is_noticed() -> None:
    held: list[bytearray] = []
    greedy = Target("greedy", lambda data: held.append(bytearray(len(data) << 10)), lambda: [b""])
    greedy.run_within_memory(bytes(100))
    with pytest.raises(AssertionError, match="bytes of memory"):
        greedy.run_within_memory(bytes(10_000))


def test_pieces_are_the_whole() -> None:
    assert cut(b"0123456789", b"\0\2") == [b"0", b"123", b"4", b"567", b"8", b"9"]
    assert cut(b"0123", b"") == [b"0123"]
    assert cut(b"", b"\1") == []


def test_variants_of_json_change_one_part() -> None:
    variants = [json.dumps(each) for each in json_variants({"a": [1], "b": 2})]
    assert '{"a": [1]}' in variants
    assert '{"a": [null], "b": 2}' in variants
    assert '{"a": [1], "b": {}}' in variants
    assert '{"a": [1], "b": 2}' not in variants


def test_what_is_kept_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    corpus.keep("cookie", [b"longer", b"a", b"longer", b""])
    assert corpus.kept("cookie") == [b"a", b"longer"]
    corpus.keep("cookie", [])
    assert corpus.kept("cookie") == []


def test_what_reaches_more_is_worth_keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    target = Target("marks", lambda data: decodes(data, decode_last_mark) and None, lambda: [b"short"])
    good, negative = struct.pack(">qq", 1, 2), struct.pack(">qq", -1, 2)
    found = {good, struct.pack(">qq", 3, 4), negative, b"also short"}
    assert len(corpus.worth_keeping(target, found)) == 2
    corpus.keep("marks", [good, negative])
    assert corpus.worth_keeping(target, found) == []


def test_processor_time_adds_up_over_logs(tmp_path: Path) -> None:
    line = "slice target=cookie at=21:58:15Z cpu_s={} runs={} cov=100 new=66 crashes=0\n"
    (tmp_path / "a.log").write_text("# seed 1\n" + line.format(13.5, 10) + line.format(1.5, 5))
    (tmp_path / "b.log").write_text(line.format(5, 2).replace("cookie", "kernels+asan"))
    seconds, runs = soak.spent(tmp_path)
    assert seconds == {"cookie": 15, "kernels+asan": 5}
    assert runs == {"cookie": 15, "kernels+asan": 2}


def test_a_soak_has_a_part_for_every_target() -> None:
    names = [part.name for part in soak.parts(sanitized=True)]
    assert set(TARGETS) < set(names)
    assert "kernels+asan" in names
    assert "kernels+asan" not in [part.name for part in soak.parts(sanitized=False)]


def test_the_tool_of_soaks_is_installed_by_its_hashes() -> None:
    repository = Path(__file__).resolve().parents[2]
    assert "--require-hashes --upgrade --target $(FUZZ_TOOLS)" in (repository / "Makefile").read_text()
    pins = (repository / ".ci" / "fuzz-constraints.txt").read_text()
    assert re.search(r"^atheris==3[0-9.]+ ", pins, re.MULTILINE)
    assert pins.count("--hash=sha256:") >= 3
