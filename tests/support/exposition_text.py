"""A Prometheus scrape, taken apart: types, label names and values."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]

_LINE = re.compile(r"([A-Za-z_:][A-Za-z_:0-9]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z_0-9]*)="((?:[^"\\]|\\.)*)"(?:,|$)')


@dataclass(slots=True)
class ScrapeText:
    """``types`` by family, ``samples`` by the name of the line."""

    types: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; there is at least one."""
        wanted = set(labels.items())
        found = [value for given, value in self.samples.get(name, {}).items() if wanted <= given]
        assert found, f"no sample {name} with {labels}"
        return sum(found)

    def label_names(self, family: str) -> set[str]:
        """Names of the labels of a family's lines, ``quantile`` left out."""
        names: set[str] = set()
        for suffix in ("", "_count", "_sum"):
            for labels in self.samples.get(family + suffix, {}):
                names |= {name for name, _ in labels}
        return names - {"quantile"}

    def families(self) -> set[str]:
        """Families that have a line; one without a TYPE line goes by its line's name."""
        found = set()
        for name in self.samples:
            stems = [name.removesuffix(suffix) for suffix in ("_count", "_sum")]
            summary = next((stem for stem in stems if self.types.get(stem) == "summary"), None)
            found.add(summary or name)
        return found


def parse_scrape(text: str) -> ScrapeText:
    """Every line of the text is understood, or this fails."""
    scrape = ScrapeText()
    for line in text.splitlines():
        if line.startswith("#"):
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in scrape.types, f"{name} has two type lines"
                scrape.types[name] = kind
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        labels, at = set(), 0
        text_of_labels = match[2] or ""
        while at < len(text_of_labels):
            label = _LABEL.match(text_of_labels, at)
            assert label is not None, line
            labels.add((label[1], label[2].replace('\\"', '"').replace("\\\\", "\\")))
            at = label.end()
        samples = scrape.samples.setdefault(match[1], {})
        assert frozenset(labels) not in samples, f"twice: {line}"
        samples[frozenset(labels)] = float(match[3])
    return scrape


def scrape(port: int) -> ScrapeText:
    """The scrape of a bookie on this host."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return parse_scrape(answer.read().decode())
