"""The table of nouns, and the top-level help drawn from it.

Nothing here imports typer: ``bkctl --help`` is answered from this module alone, and a noun's module is
imported when that noun is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bkctl import __version__

# The exit code that a shell reports for a program that SIGPIPE ended (128 + 13).
READER_GONE = 141
# I/O, permission, a bug: what was to be done was not done.
FAILED = 7
#: The second column of a table is no narrower than this.
_COLUMN_MIN = 30

WHAT_IT_IS = (
    "Reads, checks, repairs and administers Apache BookKeeper storage.\n"
    "This is not the bkctl that Apache BookKeeper ships (a JVM tool of the same name)."
)


@dataclass(frozen=True, slots=True)
class Noun:
    """One first word of the command line.

    ``module`` exposes ``app``, a ``typer.Typer``. ``verbs`` is False where the noun is itself the command.
    ``safety`` opens its help: ``[offline]`` or ``[online]``, ``[reads]`` or ``[writes]``.
    """

    name: str
    module: str
    safety: str
    summary: str
    verbs: bool = True


NOUNS: dict[str, Noun] = {
    noun.name: noun
    for noun in (
        Noun(
            "inspect",
            "bkctl.commands.inspect",
            "[offline] [reads]",
            "Say what a file or directory is and what it holds.",
            verbs=False,
        ),
        Noun(
            "entrylog",
            "bkctl.commands.entrylog.app",
            "[offline] [reads] [writes]",
            "List, scan, verify, salvage and quarantine entry logs.",
        ),
        Noun(
            "journal",
            "bkctl.commands.journal.app",
            "[offline] [reads] [writes]",
            "List, scan, verify and salvage journals.",
        ),
        Noun(
            "index",
            "bkctl.commands.index.app",
            "[offline] [reads] [writes]",
            "Read, check, rebuild and repair indexes.",
        ),
        Noun(
            "gc",
            "bkctl.commands.gc.app",
            "[offline] [online] [reads] [writes]",
            "Explain, plan and reclaim garbage in entry logs.",
        ),
        Noun(
            "bookie",
            "bkctl.commands.bookie.app",
            "[online] [offline] [reads] [writes]",
            "Make, start, check, empty; replace a disk.",
        ),
        Noun(
            "bookies",
            "bkctl.commands.bookies.app",
            "[online] [reads] [writes]",
            "List, probe, drain and rename the bookies of a cluster.",
        ),
        Noun(
            "cluster",
            "bkctl.commands.cluster",
            "[online] [reads] [writes]",
            "Make a cluster; show what it is.",
        ),
        Noun(
            "context",
            "bkctl.commands.context",
            "[offline] [reads] [writes]",
            "Name clusters; choose the one that commands are run on.",
        ),
        Noun(
            "autorecovery",
            "bkctl.commands.autorecovery.app",
            "[online] [reads] [writes]",
            "Under-replicated ledgers: list, explain, copy; on and off.",
        ),
        Noun(
            "maintenance",
            "bkctl.commands.maintenance",
            "[online] [reads] [writes]",
            "Work on bookies while autorecovery rests.",
        ),
        Noun(
            "ledger",
            "bkctl.commands.ledger.app",
            "[online] [reads] [writes]",
            "List, show, write, read, recover, fence, delete ledgers.",
        ),
        Noun(
            "metadata",
            "bkctl.commands.metadata.app",
            "[online] [reads]",
            "Dump and show what the metadata store holds.",
        ),
        Noun(
            "pulsar",
            "bkctl.commands.pulsar",
            "[online] [reads]",
            "Find ledgers that Apache Pulsar no longer names.",
        ),
        Noun(
            "space",
            "bkctl.commands.space",
            "[offline] [online] [reads]",
            "Say who uses the space: ledgers, topics, applications.",
            verbs=False,
        ),
        Noun(
            "top",
            "bkctl.commands.top.app",
            "[online] [reads] [writes]",
            "Watch bookies live: queues, caches, disks, bottleneck.",
            verbs=False,
        ),
        Noun(
            "doctor",
            "bkctl.commands.doctor.app",
            "[offline] [online] [reads]",
            "Examine a bookie's directories, or a live bookie.",
            verbs=False,
        ),
        Noun(
            "pipeline",
            "bkctl.commands.pipeline.app",
            "[offline] [reads] [writes]",
            "Audit what a fleet has on disk, here or on Spark.",
        ),
        Noun("bench", "bkctl.commands.bench", "[online] [reads] [writes]", "Put load on a bookie."),
        Noun(
            "cookie",
            "bkctl.commands.cookie.app",
            "[offline] [online] [reads] [writes]",
            "Show, compare, make, store and remove cookies.",
        ),
        Noun(
            "lastmark",
            "bkctl.commands.lastmark",
            "[offline] [reads] [writes]",
            "Show and set the journals' last mark.",
        ),
        Noun(
            "repair",
            "bkctl.commands.repair.app",
            "[offline] [online] [reads] [writes]",
            "Plan, run and undo repairs of a bookie.",
        ),
        Noun(
            "explain",
            "bkctl.commands.explain",
            "[offline] [reads]",
            "Say what an error code or a word of BookKeeper means.",
            verbs=False,
        ),
        Noun(
            "version",
            "bkctl.commands.version",
            "[offline] [reads]",
            "Show the versions of bkctl and of the libraries that it uses.",
            verbs=False,
        ),
    )
}

# Jobs, and the line that each begins with, for those who do not know the nouns yet.
FIRST_LINES: tuple[tuple[str, str], ...] = (
    ("a bookie does not start", "bkctl doctor --conf FILE"),
    ("all of a bookie, after a power cut", "bkctl doctor --conf FILE --deep"),
    ("several things are damaged", "bkctl repair plan --conf FILE --deep"),
    ("a disk has died", "bkctl bookie rebuild --conf FILE --dry-run"),
    ("the index is lost or damaged", "bkctl index rebuild PATH --dry-run"),
    ("a disk is full", "bkctl space PATH, then bkctl gc explain PATH"),
    ("read one entry from the files", "bkctl entrylog scan PATH --ledger 42 --entry 17 --payload text"),
    ("a ledger does not open", "bkctl ledger doctor 42, then bkctl ledger recover 42 --dry-run"),
    ("under-replicated ledgers", "bkctl autorecovery list --explain"),
    ("restart a bookie", "bkctl maintenance begin, later bkctl maintenance end"),
    ("take a bookie out for good", "bkctl bookies drain ID --dry-run"),
    ("a bookie is slow", "bkctl top"),
    ("what a code or a word means", "bkctl explain limbo"),
)

SAFETY = (
    "[offline] works on files, of a stopped bookie or copied ones; [online] asks bookies or metadata.\n"
    "[reads] changes nothing; [writes] does, and each verb's page says which of the two it is."
)

GLOBAL_OPTIONS: tuple[tuple[str, str], ...] = (
    ("--debug", "Show a traceback when something fails (anywhere on the line)."),
    ("-c, --context NAME", "Run in this context, or none (anywhere on the line)."),
    ("--quiet", "Show errors only: no progress, no messages (anywhere on the line)."),
    ("--version", "Show the version and exit."),
    ("--install-completion [SHELL]", "Install completion for bash, zsh or fish."),
    ("--show-completion [SHELL]", "Print the completion script."),
    ("-h, --help", "Show this message and exit."),
)

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done and clean"),
    (1, "done, and something was found (damage, missing replicas)"),
    (2, "wrong usage"),
    (3, "partly done, or not all of it could be checked (goes before 1)"),
    (4, "refused for safety"),
    (5, "cannot connect"),
    (6, "no such thing"),
    (FAILED, "failed (I/O, permission, damage in the way of a change, a bug)"),
    (130, "interrupted"),
    (READER_GONE, "the reader of the output went away"),
)

ENVIRONMENT: tuple[tuple[str, str], ...] = (
    ("BKCTL_METADATA_URI", "Metadata store, where the line has no --metadata."),
    (
        "BKCTL_CONTEXT",
        "Context to run in, or none, if the line has no -c; before that of 'bkctl context use'.",
    ),
    ("BKCTL_CONFIRM", "Name of the protected context that a script may write to."),
    ("XDG_CONFIG_HOME", "Directory of bkctl/contexts.json. Default: ~/.config."),
    ("BKCTL_URL", "HTTP admin of a bookie, where the line has no --url, and no PATH either."),
    ("BKCTL_KEY_PREFIX", "Prefix of variables that are keys of bk_server.conf: BK_ makes BK_bookiePort one."),
    ("BKCTL_HTTP_TOKEN", "Token that a bookie's HTTP admin wants before it changes anything."),
    (
        "BKCTL_HTTP_TOKEN_HOSTS",
        "Hosts, separated by commas, that get this token though only the cluster's metadata name them; the "
        "loopback and the host of --url get it anyway.",
    ),
    ("BKCTL_HTTP_TOKEN_FILE", "File with this token, where BKCTL_HTTP_TOKEN is not set."),
    ("BKCTL_LEDGER_PASSWORD_FILE", "File with the ledger password, where neither line nor variable has it."),
    ("BKCTL_LEDGER_PASSWORD", "Ledger password for the mac digest, where no --password option is given."),
    ("BKCTL_TLS_CA, BKCTL_TLS_CERT, BKCTL_TLS_KEY", "PEM files for TLS to bookies, where no --tls-... says."),
    ("BKCTL_SASL_USER, BKCTL_SASL_PASSWORD", "Who to be for bookies that ask for SASL (DIGEST-MD5)."),
    ("BKCTL_ZK_DIGEST", "ZooKeeper's digest authentication for commands, USER:PASSWORD."),
    (
        "BKCTL_ZK_SASL_USER, BKCTL_ZK_SASL_PASSWORD",
        "ZooKeeper's SASL for commands, with -X zkEnableSecurity=true.",
    ),
    ("TERM, LC_ALL, LC_CTYPE, LANG", "bkctl top: no colour on a dumb terminal; ASCII where it has no UTF-8."),
    ("BKCTL_TOP_THEME", "Theme of the screen of bkctl top, where the line has no --theme."),
    ("NO_COLOR", "When set to anything, no colour."),
)


def top_level_help() -> str:
    """Return what ``bkctl --help`` prints, without the final newline."""
    nouns = [(noun.name, f"{noun.safety} {noun.summary}") for noun in NOUNS.values()]
    width = _terminal_width()
    parts = [
        "Usage: bkctl [OPTIONS] COMMAND [ARGS]...",
        _indented(WHAT_IT_IS, width),
        "Options:\n" + _columns(list(GLOBAL_OPTIONS), width),
        "Commands:\n" + _columns(nouns, width),
        _indented(SAFETY, width),
        "Where to begin:\n" + _columns(list(FIRST_LINES), width),
        "Exit codes:\n" + _columns([(str(code), meaning) for code, meaning in EXIT_CODES], width),
        _broken("", "Try 'bkctl COMMAND --help', or 'bkctl help COMMAND [VERB]'.", "", width),
    ]
    return "\n\n".join(parts)


def _terminal_width() -> int | None:
    """Return the columns of the terminal, None where stdout is none: there no line is broken."""
    try:
        return os.get_terminal_size(1).columns or None
    except OSError:
        return None


def version_line() -> str:
    """Return what ``bkctl --version`` prints."""
    return f"bkctl {__version__}"


def _indented(text: str, width: int | None) -> str:
    return "\n".join(_broken("  ", line, "  ", width) for line in text.splitlines())


def _columns(rows: list[tuple[str, str]], width: int | None) -> str:
    """Return rows of two columns; where the second would be too narrow it stands below the first."""
    first = max(len(term) for term, _ in rows)
    indent = " " * (first + 4)
    if width is not None and width - len(indent) < _COLUMN_MIN:
        return "\n".join(f"  {term}\n{_broken('      ', text, '      ', width)}" for term, text in rows)
    return "\n".join(_broken(f"  {term:<{first}}  ", text, indent, width) for term, text in rows)


def _broken(before: str, text: str, indent: str, width: int | None) -> str:
    """Return a text behind ``before``, in lines that end at the width, at blanks alone."""
    if width is None or len(before) + len(text) <= width:
        return before + text
    lines = [before]
    begun = len(before)
    for word in text.split():
        if len(lines[-1]) > begun and len(lines[-1]) + 1 + len(word) > width:
            lines.append(indent)
            begun = len(indent)
        lines[-1] += word if len(lines[-1]) == begun else f" {word}"
    return "\n".join(lines)
