"""Write man/bkctl.1 and man/bkctl-NOUN.1 from the commands themselves, and man/bkctl-shell.7 from
docs/coming-from-bookkeeper-shell.md.

    python man/make.py           write the pages
    python man/make.py --check   exit 1 when a committed page is not what would be written

The text of a page is the help text: what a docstring says before ``Examples:`` is the description, the
indented lines below it are the examples.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkctl import __version__
from bkctl.commands.frame.nouns import (
    ENVIRONMENT,
    EXIT_CODES,
    FIRST_LINES,
    GLOBAL_OPTIONS,
    NOUNS,
    SAFETY,
    WHAT_IT_IS,
    Noun,
)
from bkctl.commands.frame.root import app, load

HERE = Path(__file__).resolve().parent
SHELL_PAGE = HERE.parent / "docs" / "coming-from-bookkeeper-shell.md"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made = {"bkctl.1": top_page()}
    for noun in NOUNS.values():
        made[f"bkctl-{noun.name}.1"] = noun_page(noun)
    made["bkctl-shell.7"] = shell_page(SHELL_PAGE.read_text())
    return made


def top_page() -> str:
    """bkctl(1): what it is, its nouns, where to begin, exit codes and environment."""
    lines = [
        *_head("bkctl", "read, check, repair and administer Apache BookKeeper storage"),
        *_section("SYNOPSIS", [r"\fBbkctl\fR [\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]..."]),
        *_section("DESCRIPTION", _paragraphs(WHAT_IT_IS)),
        ".SH OPTIONS",
        *_terms(GLOBAL_OPTIONS),
        ".SH COMMANDS",
        *_terms((noun.name, f"{noun.safety} {noun.summary}") for noun in NOUNS.values()),
        *_paragraphs(SAFETY),
        ".SH WHERE TO BEGIN",
        *_terms(FIRST_LINES),
        *_tail([f"bkctl-{noun}" for noun in NOUNS], "bkctl-shell", "bk_server.conf"),
    ]
    return "\n".join(lines) + "\n"


def noun_page(noun: Noun) -> str:
    """bkctl-NOUN(1): each verb with its synopsis, description, arguments, options and examples."""
    command = load(noun)
    name = f"bkctl-{noun.name}"
    lines = [*_head(name, f"{noun.safety} {noun.summary}".rstrip("."))]
    verbs = verbs_of(command)
    lines += [".SH SYNOPSIS"]
    for index, (words, verb) in enumerate(verbs):
        lines += [".br"] if index else []
        lines += [_synopsis(" ".join(["bkctl", noun.name, *words]), verb)]
    for words, verb in verbs:
        lines += _verb(" ".join(["bkctl", noun.name, *words]), verb)
    lines += _tail(["bkctl"])
    return "\n".join(lines) + "\n"


def shell_page(markdown: str) -> str:
    """bkctl-shell(7): what each command of ``bookkeeper shell`` is here."""
    title, *lines = markdown.splitlines()
    made = [*_head("bkctl-shell", title.removeprefix("# ").replace("`", ""), section=7), ".SH DESCRIPTION"]
    for line in lines:
        plain = line.replace("`", "")
        if line.startswith("## "):
            made.append(f".SH {_roff(plain.removeprefix('## ').upper())}")
        elif line.startswith("|"):
            theirs, ours, note = (cell.strip() for cell in plain.strip("|").split("|"))
            if theirs != "shell" and set(theirs) != {"-"}:
                here = "not here" if ours == "-" else f"bkctl {ours.replace(', ', ', bkctl ')}"
                says = note if note.startswith("not here") else "; ".join(filter(None, (here, note)))
                made += _terms([(theirs, says)])[:-1]
        else:
            made.append(_roff(plain) if plain else ".PP")
    return "\n".join([*made, *_section("SEE ALSO", [r"\fBbkctl\fR(1)"])]) + "\n"


def verbs_of(command: Any) -> list[tuple[list[str], Any]]:
    """The commands below a command with the words that lead to them; itself where there are none."""
    children = getattr(command, "commands", None)
    if children is None:
        return [([], command)]
    return [
        ([child.name, *words], verb)
        for child in children.values()
        if not child.hidden
        for words, verb in verbs_of(child)
    ]


def _verb(line: str, command: Any) -> Iterator[str]:
    description, examples = _split_help(command)
    yield f".SH {_roff(line.upper())}"
    yield from description
    rows = list(_parameters(command))
    if rows:
        yield ".PP"
        yield from _terms(rows)
    if examples:
        yield ".PP"
        yield "Examples:"
        yield from (".PP", ".nf", ".RS 4", *map(_roff, examples), ".RE", ".fi")


def _split_help(command: Any) -> tuple[list[str], list[str]]:
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    description, _, examples = text.partition("Examples:")
    shown = inspect.cleandoc(examples).splitlines() if examples.strip() else []
    return _paragraphs(description.strip()), [line.strip() for line in shown]


def _parameters(command: Any) -> Iterator[tuple[str, str]]:
    context = app_context(command)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        term, meaning = record
        if parameter.param_type_name == "argument":  # typer adds the Python type
            term = parameter.display_name_raw + ("" if parameter.nargs == 1 else "...")
        yield term, meaning


def app_context(command: Any) -> Any:
    """A parsing context with the help options of the real application."""
    return command.context_class(command, help_option_names=app.info.context_settings["help_option_names"])


def _synopsis(line: str, command: Any) -> str:
    pieces = " ".join(command.collect_usage_pieces(app_context(command)))
    return rf"\fB{_roff(line)}\fR {_roff(pieces.replace('{', '').replace('}', ''))}"


def _head(name: str, summary: str, section: int = 1) -> list[str]:
    summary = summary[0].lower() + summary[1:] if summary[:1].isalpha() else summary
    return [
        '.\\" Written by man/make.py from the commands; change those.',
        f'.TH {name.upper()} {section} "" "bkctl {__version__}" "User Commands"',
        ".SH NAME",
        rf"{_roff(name)} \- {_roff(summary)}",
    ]


def _tail(see_also: list[str], conventions: str = "", file_format: str = "") -> list[str]:
    pages = [(name, 1) for name in see_also]
    pages += [(name, section) for name, section in ((conventions, 7), (file_format, 5)) if name]
    return [
        ".SH EXIT STATUS",
        *_terms((str(code), meaning) for code, meaning in EXIT_CODES),
        "Of several, the worst in the order 7, 4, 5, 3, 1.",
        ".SH ENVIRONMENT",
        *_terms(ENVIRONMENT),
        *_section("SEE ALSO", [", ".join(rf"\fB{_roff(name)}\fR({section})" for name, section in pages)]),
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    return [f".SH {title}", *lines]


def _terms(rows: Any) -> list[str]:
    lines = []
    for term, meaning in rows:
        lines += [".TP", rf"\fB{_roff(term)}\fR", _roff(" ".join(meaning.split()))]
    return [*lines, ".PP"]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [".PP"] if lines else []
        lines += [_roff(line.strip()) for line in paragraph.splitlines()]
    return lines


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def main() -> int:
    """Write the pages, or compare them with --check."""
    wrong = 0
    made = pages()
    stale = {path.name for path in HERE.glob("*.[17]")} - made.keys()
    for name in sorted(stale):
        print(f"{name}: no such command any more")
        wrong += 1
    for name, text in made.items():
        path = HERE / name
        if path.is_file() and path.read_text() == text:
            continue
        print(f"{name}: {'differs' if '--check' in sys.argv else 'written'}")
        wrong += 1
        if "--check" not in sys.argv:
            path.write_text(text)
    if "--check" not in sys.argv:
        for name in stale:
            (HERE / name).unlink()
        return 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
