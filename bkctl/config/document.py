"""Documents made of the key declarations: ``conf/bk_server.conf`` and the page bk_server.conf(5)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bkctl import __version__
from bkctl.config.bookie import DEFAULT_MEMORY_BYTES
from bkctl.config.keys import Area, ConfigKey, State
from bkctl.config.server_keys import SERVER_KEYS

_WIDTH = 108
_RULE = "#" * 80


def conf_text() -> str:
    """Return the text of ``bk_server.conf``: what has to be set is active, all else stands at its default."""
    lines = [
        "# Configuration of a bookie, in the syntax and with the keys of Apache BookKeeper 4.17.3.",
        "# Written by conf/make.py from bkctl/config/server_keys; change those.",
        "# A line that is commented out shows the default. Commas make lists; a value can hold no comma.",
        f"# Caches are sized by `bkctl bookie start --memory` ({DEFAULT_MEMORY_BYTES >> 20} MiB without it).",
    ]
    for area in Area:
        honoured = [key for key in _of(area, State.HONOURED) if not key.use_instead]
        if honoured:
            lines += ["", _RULE, f"# {area.value}", _RULE]
            for key in honoured:
                lines += ["", *_comment(_sentence(key)), _line(key)]
    lines += ["", _RULE, "# Deprecated, read as well", _RULE, ""]
    lines += [f"# {key.name}: use {key.use_instead}" for key in SERVER_KEYS.values() if key.use_instead]
    for state, heading in (
        (State.PLANNED, "Known, without effect yet: a later release honours them"),
        (State.REFUSED, "The bookie does not start with these"),
        (State.IGNORED, "Known, without effect here"),
    ):
        lines += ["", _RULE, f"# {heading}", _RULE, ""]
        for key in SERVER_KEYS.values():
            if key.state is state and not key.use_instead:
                lines += _comment(_in_a_list(key))
    return "\n".join(lines) + "\n"


def man_page() -> str:
    """Return the manual page bk_server.conf(5) in roff."""
    lines = [
        '.\\" Written by conf/make.py from bkctl/config/server_keys; change those.',
        f'.TH BK_SERVER.CONF 5 "" "bkctl {__version__}" "File Formats"',
        ".SH NAME",
        r"bk_server.conf \- configuration of a bookie",
        ".SH DESCRIPTION",
        _roff(
            "The configuration file of Apache BookKeeper 4.17.3, read as it is: Java properties in "
            "ISO-8859-1. A line is key=value; colons and blanks separate as well. Lines beginning with # or "
            "! are comments, a backslash at the end of a line continues it, commas make lists. include=FILE "
            "reads another file, ${key}, ${env:NAME} and ${key:-default} are replaced. A key that is given "
            "twice is one list; where one value is wanted the first counts."
        ),
        ".PP",
        _roff(
            "bkctl bookie start -X key=value wins over BKCTL_METADATA_URI, that over the file, and the file "
            "over defaults. An unknown key is a warning; a known one without effect is named with the "
            "reason."
        ),
    ]
    for area in Area:
        honoured = _of(area, State.HONOURED)
        if honoured:
            lines.append(f".SH {_roff(area.value.upper())}")
            for key in honoured:
                lines += [".TP", rf"\fB{_roff(key.name)}\fR", _roff(_sentence(key))]
    for state, heading in (
        (State.PLANNED, "WITHOUT EFFECT YET"),
        (State.REFUSED, "REFUSED"),
        (State.IGNORED, "WITHOUT EFFECT"),
    ):
        lines.append(f".SH {heading}")
        for key in SERVER_KEYS.values():
            if key.state is state:
                lines += [".TP", rf"\fB{_roff(key.name)}\fR", _roff(_explained(key))]
    lines += [".SH SEE ALSO", r"\fBbkctl\fR(1)"]
    return "\n".join(lines) + "\n"


def default_of(key: ConfigKey) -> str:
    """Return the value that counts without the key, as people read it."""
    return key.default_text or key.or_else or key.text_of(key.default) or "none"


def _of(area: Area, state: State) -> list[ConfigKey]:
    return [key for key in SERVER_KEYS.values() if key.area is area and key.state is state]


def _sentence(key: ConfigKey) -> str:
    allowed = key.allowed[0].upper() + key.allowed[1:]
    text = f"{key.doc} {allowed}. Default: {default_of(key)}"
    text += f" (Java: {key.java_default})." if key.java_default else "."
    return f"{text} Deprecated: use {key.use_instead}." if key.use_instead else text


def _explained(key: ConfigKey) -> str:
    if key.state is State.PLANNED:
        return _sentence(key)
    return ": ".join(filter(None, (key.doc.rstrip("."), key.reason))) + "."


def _in_a_list(key: ConfigKey) -> str:
    if key.state is State.PLANNED:
        return f"{key.name}: {key.doc}"
    return f"{key.name}: {key.reason}"


def _line(key: ConfigKey) -> str:
    if key.sample:
        return f"{key.name}={key.sample}"
    return f"#{key.name}={key.text_of(key.default)}"


def _comment(text: str) -> Iterator[str]:
    # A backslash at the end of a comment continues nothing, but looks as if it did.
    for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False):
        yield f"# {line}"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
