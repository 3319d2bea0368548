"""Contexts: names for clusters, each with what a command needs to know of its cluster.

They stand in ``contexts.json`` in ``$XDG_CONFIG_HOME/bkctl`` (``~/.config/bkctl``), which only its owner can
read. A context gives values to environment variables, so that it says nothing that a variable could not, and
a secret is always the name of a file. The order of precedence, from the strongest to the weakest:

1. options on the line;
2. the context that ``-c`` names on the line;
3. environment variables;
4. the context that ``BKCTL_CONTEXT`` names, or else the one of ``bkctl context use``;
5. ``./bkctl-data``.

``none`` in place of a name is no context: the line runs as if ``bkctl context use`` had never been.

A bookie is not started by the context of ``bkctl context use``: its configuration says where its data belong.

Where the file cannot be read for lack of permission, as with the HOME of another user after ``su``, a command
runs in no context and says so, unless a context is named: then it fails.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

from bkctl.errors import (
    ConnectionFailedError,
    CorruptionError,
    NotFoundError,
    StorageError,
    UsageError,
    storage_error,
)

CONTEXT_VARIABLE = "BKCTL_CONTEXT"
#: In place of a name: no context, also where one is in use.
NO_CONTEXT = "none"
#: The theme of the screen of `bkctl top`.
THEME_VARIABLE = "BKCTL_TOP_THEME"
#: Its value is the name of the protected context that a script may write to.
CONFIRM_VARIABLE = "BKCTL_CONFIRM"
#: Commands that heed no context but one that the line or the environment names.
_OWN_CONFIGURATION = {
    ("bookie", "start"),
    ("bookie", "init"),
    ("bookie", "format"),
    ("autorecovery", "start"),
}
_FILE_BYTES_MAX = 1 << 20
#: The variables that say where a cluster is, and the options that count before them.
_ADDRESSES = ("BKCTL_METADATA_URI", "BKCTL_URL")
_ADDRESS_OPTIONS = ("--metadata", "--metadata-uri", "--url", "--conf", "-X")

#: The environment variable that each field of a context sets.
VARIABLES = {
    "metadata": "BKCTL_METADATA_URI",
    "url": "BKCTL_URL",
    "tls_ca": "BKCTL_TLS_CA",
    "tls_cert": "BKCTL_TLS_CERT",
    "tls_key": "BKCTL_TLS_KEY",
    "password_file": "BKCTL_LEDGER_PASSWORD_FILE",
    "http_token_file": "BKCTL_HTTP_TOKEN_FILE",
    "http_token_hosts": "BKCTL_HTTP_TOKEN_HOSTS",
    "top_theme": THEME_VARIABLE,
}


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that are known of one cluster. Secrets are names of files."""

    metadata: str | None = None
    url: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    password_file: str | None = None
    http_token_file: str | None = None
    http_token_hosts: str | None = None
    top_theme: str | None = None
    protected: bool = False

    def variables(self) -> dict[str, str]:
        """Return the environment variables that it gives values to."""
        values = asdict(self)
        return {name: values[key] for key, name in VARIABLES.items() if values[key] is not None}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and the one that is in use."""

    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """Return a context. Raises NotFoundError, with the name that may be meant."""
        found = self.contexts.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.contexts, n=1)
            known = ", ".join(sorted(self.contexts)) or "none; 'bkctl context add' makes one"
            meant = f"did you mean {close[0]}?" if close else f"there are: {known}"
            raise NotFoundError(f"no context {name!r}; {meant}")
        return found


def contexts_path() -> str:
    """Return where contexts are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "bkctl", "contexts.json")


def load_contexts() -> Contexts:
    """Return the contexts, none where there is no file. Raises CorruptionError and StorageError."""
    path = contexts_path()
    try:
        with open(path, "rb") as stream:
            content = stream.read(_FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):  # a user of services may have /dev/null for a home
        return Contexts()
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        value = json.loads(content)
        contexts = {name: _context(each) for name, each in value["contexts"].items()}
        current = value.get("current")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(f"not a file of contexts: {error}", offset=0, path=path) from error
    return Contexts(contexts, current if current in contexts else None)


def _context(value: dict[str, Any]) -> Context:
    """Return a context of its JSON; keys of a later version are left alone."""
    texts = {key: value[key] for key in VARIABLES if isinstance(value.get(key), str)}
    return Context(**texts, protected=value.get("protected") is True)


def save_contexts(contexts: Contexts) -> None:
    """Write the contexts, in one step, so that only their owner can read them. Raises StorageError."""
    path = contexts_path()
    value = {
        "current": contexts.current,
        "contexts": {
            name: {key: each for key, each in asdict(context).items() if each not in (None, False)}
            for name, context in sorted(contexts.contexts.items())
        },
    }
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        number, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".contexts-")  # mode 0600
        try:
            with os.fdopen(number, "w") as stream:
                stream.write(json.dumps(value, indent=2) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise storage_error(error, path) from error


@dataclass(frozen=True, slots=True)
class Applied:
    """The context that a command runs in."""

    name: str
    context: Context


_APPLIED: ContextVar[Applied | None] = ContextVar("context", default=None)


def applied_context() -> Applied | None:
    """Return the context that the command runs in, None without one."""
    return _APPLIED.get()


#: Whether the command that runs may change the cluster of its context.
_CHANGES_CLUSTER: ContextVar[bool] = ContextVar("changes_cluster", default=False)


def protected_context() -> str | None:
    """Return the name of the context if it is protected and the command may change its cluster."""
    applied = _APPLIED.get()
    protected = applied is not None and applied.context.protected and _CHANGES_CLUSTER.get()
    return applied.name if applied is not None and protected else None


@contextmanager
def changing_cluster(changes: bool) -> Iterator[None]:
    """Say of a command whether it may change a cluster."""
    token = _CHANGES_CLUSTER.set(changes)
    try:
        yield
    finally:
        _CHANGES_CLUSTER.reset(token)


@contextmanager
def in_context(named: str | None, words: tuple[str, ...]) -> Iterator[None]:
    """Let a command, by its first words, run in a context: ``named`` on the line, or the one that counts.

    Raises NotFoundError when a context is named that does not exist, and as :func:`load_contexts`.
    """
    chosen = named or os.environ.get(CONTEXT_VARIABLE) or None
    heedless = named is None and words[:1] == ("context",)
    if heedless or (chosen is None and words[:2] in _OWN_CONFIGURATION):
        yield
        return
    contexts = _contexts_for(chosen)
    name = chosen or contexts.current
    if name is None or (name == NO_CONTEXT and name not in contexts.contexts):
        yield
        return
    context = contexts.named(name)
    values = context.variables()
    before = {variable: os.environ.get(variable) for variable in values}
    for variable, value in values.items():
        if named is not None or not before[variable]:
            os.environ[variable] = value
    token = _APPLIED.set(Applied(name, context))
    try:
        yield
    except ConnectionFailedError as error:
        given = named is None and any(before.get(each) for each in _ADDRESSES)
        if given or any(word.partition("=")[0] in _ADDRESS_OPTIONS for word in words):
            raise
        text = f"{error}; this ran in the context {name} ('-c {NO_CONTEXT}' runs in none)"
        raise ConnectionFailedError(text) from error
    finally:
        _APPLIED.reset(token)
        for variable, old in before.items():
            if old is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = old


def _contexts_for(chosen: str | None) -> Contexts:
    """Return the contexts, none where they may not be read and ``chosen`` is none of them, which is said.

    Raises CorruptionError and StorageError as :func:`load_contexts`.
    """
    try:
        return load_contexts()
    except StorageError as error:
        denied = isinstance(error.__cause__, PermissionError)
        if not denied or chosen not in (None, NO_CONTEXT):
            raise
        if chosen is None:
            sys.stderr.write(f"bkctl: {error}: this command runs in no context\n")
        return Contexts()


def take_context(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the context that a command line names, and the line without it. Raises UsageError."""
    rest: list[str] = []
    name = None
    line = iter(words)
    for word in line:
        if word in ("-c", "--context"):
            name = next(line, None)
            if name is None:
                raise UsageError(f"{word} needs the name of a context")
        elif word.startswith("--context="):
            name = word.partition("=")[2]
        else:
            rest.append(word)
    return name, rest
