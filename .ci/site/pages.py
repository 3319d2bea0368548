"""Put the pages outside docs/ into the site, list the decisions, and lead links to their targets there.

A link to a file of the project that is no page of the site keeps its words only. A link to nothing stays as
it is, and fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
# Pages of the site whose text is outside docs/.
OUTSIDE = {
    "index.md": "README.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "bench.md": "bench/README.md",
}
SITE_OF = {source: page for page, source in OUTSIDE.items()} | {"docs/adr": "adr/index.md"}
DECISIONS = sorted(path.name for path in (DOCS / "adr").glob("*.md"))
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(?:```|~~~)")


def title_of(text: str) -> str:
    """Return the first heading of a page."""
    return text.partition("\n")[0].removeprefix("# ")


def decisions_page() -> str:
    """Return the page that lists the decisions."""
    rows = [f"* [{title_of((DOCS / 'adr' / name).read_text())}]({name})" for name in DECISIONS]
    intro = "Decisions that were hard, with what was measured and what was not chosen."
    return "\n".join(["# Decisions", "", intro, "", *rows, ""])


def listed(nav: Any) -> set[str]:
    """Return the pages that a part of the navigation names."""
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(listed, parts))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: pages of docs/ that it does not name, and the decisions."""
    assert config.nav is not None
    parts = {name: pages for part in config.nav for name, pages in part.items()}
    parts["Reference"] += sorted({path.name for path in DOCS.glob("*.md")} - listed(config.nav))
    parts["Decisions"] += [f"adr/{name}" for name in DECISIONS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, the list of the decisions and the style sheet."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "adr/index.md", content=decisions_page()))
    files.append(File.generated(config, "site.css", content=(HERE / "site.css").read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with its links as they are in the site."""
    uri = page.file.src_uri
    folder = posixpath.dirname(OUTSIDE.get(uri, f"docs/{uri}"))

    def led(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        if "://" in target or not (ROOT / path).exists():
            return found[0]
        if path in SITE_OF:
            site = SITE_OF[path]
        elif files.get_file_from_path(path.removeprefix("docs/")) and path.startswith("docs/"):
            site = path.removeprefix("docs/")
        else:
            return words
        return f"{mark}[{words}]({posixpath.relpath(site, posixpath.dirname(uri) or '.')}{anchor})"

    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= bool(FENCE.match(line))
        lines.append(line if fenced else LINK.sub(led, line))
    return "\n".join(lines)
